"""Python imports this module at its start, under ``python -m tilewright run --cuda-on-cpu`` and in
the processes started there, as PYTHONPATH names its folder; see `tilewright/compat/cuda_on_cpu.py`.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


class TorchFinder:
    """A meta path finder by which torch, when it is imported, is adapted."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            execute = loader.exec_module

            def execute_and_adapt(module: object) -> None:
                execute(module)
                from tilewright.compat import cuda_on_cpu

                cuda_on_cpu.adapt(module)

            loader.exec_module = execute_and_adapt
        return spec


def import_hidden_module() -> None:
    """Execute the environment's own module of this name, which this one precedes."""
    spec = PathFinder.find_spec(__name__, [p for p in sys.path if Path(p) != FOLDER])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if __name__ == "sitecustomize":
    if find_spec("tilewright") is None:
        sys.path.append(str(FOLDER.parents[2]))
    sys.meta_path.insert(0, TorchFinder())
    import_hidden_module()
