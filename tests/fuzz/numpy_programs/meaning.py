"""What a program leaves in memory, by Python and NumPy alone.

The functions of the program's text are run by Python, with `language.tl` in the place of
`tilewright.language`. One rule is not Python's: a variable that is assigned a number holds an
int32 or fp32 value from then on.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fuzz.numpy_programs import language
from tests.fuzz.numpy_programs.values import DTYPES, DType, Pointer, strong


class _Strong(ast.NodeTransformer):
    """Assigned numbers become values."""

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        if isinstance(node.targets[0], ast.Name):
            node.value = ast.Call(ast.Name("_strong", ast.Load()), [node.value], [])
        return node


def kernel_of(text: str) -> Any:
    """The program's kernel as a function of Python."""
    module = ast.parse(text)
    module.body = [n for n in module.body if isinstance(n, ast.FunctionDef)]
    module = ast.fix_missing_locations(_Strong().visit(module))
    scope: dict[str, Any] = {
        "tw": SimpleNamespace(jit=lambda f: f),
        "tl": language.tl,
        "range": language.counted,
        "_strong": strong,
        "nan": float("nan"),
        "inf": float("inf"),
    }
    exec(compile(module, "<program>", "exec"), scope)
    return scope["kernel"]


def leave(
    text: str,
    args: Sequence[Any],
    types: Sequence[str],
    constants: Mapping[str, Any],
    grid: Sequence[int],
) -> None:
    """Change the arrays among the arguments as the program does; types are "*int8" of an array."""
    kernel = kernel_of(text)
    passed = [_passed(arg, type) for arg, type in zip(args, types, strict=True)]
    language.grid.set((*grid, 1, 1)[:3])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for z, y, x in product(*map(range, reversed(language.grid.get()))):
            language.program.set((x, y, z))
            kernel(*passed, **constants)


def _passed(arg: Any, type: str) -> Any:
    if not isinstance(arg, np.ndarray):
        return strong(arg)
    dtype: DType = DTYPES[type.removeprefix("*")]
    return Pointer(arg, dtype, np.asarray(0, np.int64))
