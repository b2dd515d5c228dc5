"""Loads one kernel file for either compiler: its imports of tilewright may be replaced by Triton.

    softmax = load("softmax", "triton")      # kernels/softmax.py, with Triton's jit and language
    softmax.row_kernel[(rows,)](...)

A file in `kernels/` is as a user of Triton writes it, except for its two imports,
`import tilewright as triton` and `import tilewright.language as tl`. To load it for Triton, the
names in these imports are replaced before the file is executed; the kernels' source is unchanged.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent / "kernels"

WRITTEN_FOR = "tilewright"
MODULES = (WRITTEN_FOR, "triton")
"""The modules for which kernels can be loaded."""


def missing(module: str) -> str:
    """Why kernels can't be loaded for `module` here, "" if they can."""
    return "" if importlib.util.find_spec(module) else f"{module} is not installed"


@contextmanager
def caches(folder: Path) -> Generator[None]:
    """Within, this process and those that it starts keep what they compile in `folder`."""
    names = {f"{module.upper()}_CACHE_DIR": str(folder / module) for module in MODULES}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


class _Reimport(ast.NodeTransformer):
    """Replaces `import tilewright…` by an import of another module."""

    def __init__(self, module: str) -> None:
        self.module = module

    def visit_Import(self, node: ast.Import) -> ast.Import:
        for alias in node.names:
            first, dot, rest = alias.name.partition(".")
            if first == WRITTEN_FOR:
                alias.name = f"{self.module}{dot}{rest}"
        return node


@cache
def load(stem: str, module: str, folder: Path = FOLDER) -> ModuleType:
    """The kernels of `<folder>/<stem>.py` for `module`, one of `MODULES`.

    Each call creates a new module, so the same file may be loaded for several compilers.
    """
    path = folder / f"{stem}.py"
    tree = _Reimport(module).visit(ast.parse(path.read_text("utf-8")))
    # Line numbers are preserved: jit locates the source of a kernel by them.
    code = compile(tree, str(path), "exec", dont_inherit=True)
    loaded = ModuleType(f"benchmarks.{folder.parent.name}.kernels.{stem}_for_{module}")
    loaded.__file__ = str(path)
    sys.modules[loaded.__name__] = loaded
    exec(code, loaded.__dict__)
    return loaded
