"""Runs one op by itself, on Python numbers in and out, through the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.ops.exact import FORMATS, INTEGERS
from tilewright.ir.core import Function, Op
from tilewright.ir.interpret import evaluate_function
from tilewright.ir.parser import parse_module
from tilewright.ir.types import Tile, Type, dtype_of, numpy_of, scalar_type
from tilewright.ir.verify import verify_function, verify_module
from tilewright.ops.control import Return


def array_of(short: str, numbers: Sequence[int]) -> Any:
    """A 1-D array of integers, or of floats given as bit patterns."""
    dtype = numpy_of(scalar_type(short))
    if short == "i1":
        return np.array([bool(n) for n in numbers], np.bool_)
    if short in INTEGERS:
        return np.array(numbers, dtype)
    return np.array(numbers, f"u{dtype.itemsize}").view(dtype)


def numbers_of(short: str, array: Any) -> list[int]:
    """The inverse of `array_of`, every NaN as the format's own."""
    array = np.asarray(array).ravel()
    if short in INTEGERS:
        return [int(v) for v in array]
    f = FORMATS[short]
    return [f.canonical(p) for p in np.ascontiguousarray(array).view(f"u{f.bits // 8}").tolist()]


def run_op(cls: type[Op], types: Sequence[Type], args: Sequence[Any], **attrs: Any) -> list[Any]:
    """The results of one op on arrays, verified first."""
    fn = Function("f", list(types))
    make: Any = cls
    op = make(*fn.args, **attrs)
    fn.body.append(op)
    fn.body.append(Return(op.results))
    fn.result_types = [r.type for r in op.results]
    verify_function(fn)
    return evaluate_function(fn, args)


def elementwise(
    cls: type[Op], shorts: Sequence[str], columns: Sequence[Sequence[int]], **attrs: Any
) -> list[int]:
    """An elementwise op on columns of numbers, as one tile and (the first few) as scalars."""
    n = len(columns[0])
    tiles = [Tile((n,), scalar_type(s)) for s in shorts]
    arrays = [array_of(s, c) for s, c in zip(shorts, columns, strict=True)]
    (out,) = run_op(cls, tiles, arrays, **attrs)
    assert out.shape == (n,)
    make: Any = cls
    result = make(*Function("f", tiles).args, **attrs).result.type
    short = dtype_of(result).short
    found = numbers_of(short, out)
    for i in range(0, n, max(1, n // 4)):
        scalars = [np.asarray(a[i]) for a in arrays]
        (one,) = run_op(cls, [scalar_type(s) for s in shorts], scalars, **attrs)
        assert one.shape == ()
        assert numbers_of(short, one) == [found[i]], "a scalar differs from a tile's element"
    return found


def run_text(text: str, args: Sequence[Any]) -> list[Any]:
    """The results of the entry of a module given as text."""
    module = parse_module(text)
    verify_module(module)
    return evaluate_function(module.entry, args, module=module)
