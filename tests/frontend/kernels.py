"""Kernels without a runtime: built from functions or text, built, and run by the interpreter."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.base.diagnostics import CompilationError
from tilewright.conformance.text_kernels import constexpr_function as constexpr_function
from tilewright.conformance.text_kernels import function_from as function_from
from tilewright.conformance.text_kernels import jit as jit
from tilewright.conformance.text_kernels import kernel_from as kernel_from
from tilewright.frontend.build import build_module
from tilewright.frontend.options import FrontendOptions
from tilewright.frontend.source import ConstexprFunction, SourceFunction
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.types import Pointer, element_of, numpy_of
from tilewright.ir.verify import verify_module
from tilewright.runtime.device_array import SHORT as SHORT


def type_string(value: Any) -> Any:
    """The type string of an argument."""
    if isinstance(value, tuple):
        types = [type_string(v) for v in value]
        return type(value)(*types) if hasattr(value, "_fields") else tuple(types)
    if isinstance(value, np.ndarray):
        return f"*{SHORT[value.dtype]}"
    if isinstance(value, np.generic):
        return SHORT[value.dtype]
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    assert isinstance(value, float)
    return "fp32"


def build(
    fn: SourceFunction,
    signature: Mapping[str, Any] | None = None,
    constexprs: Mapping[Any, Any] | None = None,
    options: FrontendOptions | None = None,
) -> Module:
    """The verified module of a kernel."""
    module = build_module(fn, signature or {}, constexprs or {}, {}, options)
    verify_module(module)
    return module


def flat(values: Sequence[Any]) -> list[Any]:
    """The values, with those in tuples in their place."""
    found: list[Any] = []
    for v in values:
        found.extend(flat(v) if isinstance(v, tuple) else [v])
    return found


def launch(fn: SourceFunction, *args: Any, grid: Any = 1, **constexprs: Any) -> Module:
    """Build a kernel for these arguments and interpret it on them."""
    names = [p.name for p in fn.params if p.name not in constexprs and not p.is_constexpr]
    signature = {n: type_string(a) for n, a in zip(names, args, strict=True)}
    module = build(fn, signature, constexprs)
    interpret(module, grid, flat(args))
    return module


def evaluate(expression: str, *inputs: Any, out: Any = None, **names: Any) -> Any:
    """The value of an expression of the language, as an array.

    Arrays are loaded whole as `a`, `b`, `c`, …; they are small. Numbers are run-time scalars.
    `names` are globals.
    """
    kernel, result = _expression(expression, *inputs, **names)
    result = result if out is None else out
    launch(kernel, result, *inputs)
    return result


def expression_module(expression: str, *inputs: Any, **names: Any) -> tuple[Module, list[Any]]:
    """A kernel that stores the value of an expression, and its arguments, the result first."""
    kernel, result = _expression(expression, *inputs, **names)
    args = [result, *inputs]
    signature = {p.name: type_string(a) for p, a in zip(kernel.params, args, strict=True)}
    return build(kernel, signature), args


def _expression(expression: str, *inputs: Any, **names: Any) -> tuple[SourceFunction, Any]:
    """A kernel that stores the value of an expression, and an array for it."""
    letters = "abcdefgh"[: len(inputs)]
    dtype = result_type(expression, *inputs, **names)
    lines = [f"def kernel(result, {', '.join(letters)}):"]
    lines += [f"    {x} = {_loaded(x, v)}" for x, v in zip(letters, inputs, strict=True)]
    body = "\n".join(lines)
    shape = dtype.shape
    kernel = kernel_from(
        f"{body}\n    r = {expression}\n    {_stored('r', 'result', shape)}", **names
    )
    element = element_of(dtype)
    numpy = np.dtype(np.uint64) if isinstance(element, Pointer) else numpy_of(element)
    return kernel, np.zeros(shape, numpy)


def result_type(expression: str, *inputs: Any, **names: Any) -> Any:
    """The type of an expression of the language."""
    letters = "abcdefgh"[: len(inputs)]
    seen: list[Any] = []
    lines = [f"def kernel({', '.join(letters)}):"]
    lines += [f"    {x} = {_loaded(x, v)}" for x, v in zip(letters, inputs, strict=True)]
    lines += [f"    see({expression})"]
    see = ConstexprFunction(_see)
    _see.seen = seen  # pyright: ignore[reportFunctionMemberAccess]
    kernel = kernel_from("\n".join(lines), see=see, **names)
    build(kernel, {x: type_string(v) for x, v in zip(letters, inputs, strict=True)})
    return seen[0]


def _see(value: Any) -> None:
    """Record the type of a value while the kernel is compiled."""
    _see.seen.append(value.type)  # pyright: ignore[reportFunctionMemberAccess]


def _grid(shape: Sequence[int]) -> str:
    """The row-major offsets of a tile, as an expression."""
    terms: list[str] = []
    for axis, size in enumerate(shape):
        index = ", ".join(":" if a == axis else "None" for a in range(len(shape)))
        stride = int(np.prod(shape[axis + 1 :]))
        terms.append(f"tl.arange(0, {size})[{index}] * {stride}")
    return " + ".join(terms)


def _loaded(name: str, value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return name
    return f"tl.load({name} + {_grid(value.shape)})" if value.shape else f"tl.load({name})"


def _stored(value: str, pointer: str, shape: Sequence[int]) -> str:
    return (
        f"tl.store({pointer} + {_grid(shape)}, {value})"
        if shape
        else (f"tl.store({pointer}, {value})")
    )


def fails(text: str, /, *args: Any, constexprs: Any = None, **names: Any) -> CompilationError:
    """The error of building a kernel from text; its parameters have the types of `args`."""
    kernel = kernel_from(text, **names)
    given = dict(constexprs or {})
    params = [p.name for p in kernel.params if p.name not in given]
    signature = {n: type_string(a) for n, a in zip(params, args, strict=True)}
    with pytest.raises(CompilationError) as info:
        build(kernel, signature, given)
    return info.value
