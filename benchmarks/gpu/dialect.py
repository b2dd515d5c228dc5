"""One kernel file for several modules: what it imports as tilewright may be Triton as well.

    softmax = load("softmax", "triton")      # kernels/softmax.py, with Triton's jit and language
    softmax.row_kernel[(rows,)](...)

A file of `kernels/` is what a user of Triton writes, with two lines changed: it begins with
`import tilewright as triton` and `import tilewright.language as tl`. To load it for Triton, the
names in these two imports are changed back before the file runs; all else, the text that the
compilers read included, stays as it is in the file.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent / "kernels"

WRITTEN_FOR = "tilewright"
MODULES = (WRITTEN_FOR, "triton")
"""What the kernels can be loaded for."""


def missing(module: str) -> str:
    """Why kernels can't be loaded for `module` here, "" if they can."""
    return "" if importlib.util.find_spec(module) else f"{module} is not installed"


class _Reimport(ast.NodeTransformer):
    """Lets `import tilewright…` import the same of another module."""

    def __init__(self, module: str) -> None:
        self.module = module

    def visit_Import(self, node: ast.Import) -> ast.Import:
        for alias in node.names:
            first, dot, rest = alias.name.partition(".")
            if first == WRITTEN_FOR:
                alias.name = f"{self.module}{dot}{rest}"
        return node


@cache
def load(stem: str, module: str) -> ModuleType:
    """The kernels of `kernels/<stem>.py` for `module`, one of `MODULES`.

    They are a module of their own, so the same file may be loaded for each.
    """
    path = FOLDER / f"{stem}.py"
    tree = _Reimport(module).visit(ast.parse(path.read_text("utf-8")))
    # The line numbers are the file's: jit finds the text of a kernel by them.
    code = compile(tree, str(path), "exec", dont_inherit=True)
    loaded = ModuleType(f"benchmarks.gpu.kernels.{stem}_for_{module}")
    loaded.__file__ = str(path)
    sys.modules[loaded.__name__] = loaded
    exec(code, loaded.__dict__)
    return loaded
