"""Runs a single op, on Python numbers in and out, through the interpreter; compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from tests.ops.exact import FORMATS, INTEGERS, Format, Integer
from tilewright.ir.core import Function, Op
from tilewright.ir.interpret import evaluate_function
from tilewright.ir.parser import parse_module
from tilewright.ir.types import Tile, Type, dtype_of, numpy_of, scalar_type
from tilewright.ir.verify import verify_function, verify_module
from tilewright.ops.control import Return

FLOATS = list(FORMATS)
INTS = list(INTEGERS)


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


def check(
    cls: Any,
    shorts: list[str],
    rows: list[tuple[int, ...]],
    expected: Callable[..., int],
    **attrs: Any,
) -> None:
    """Check that the op on each row of numbers returns what `expected` does."""
    got = elementwise(cls, shorts, list(zip(*rows, strict=True)), **attrs)
    wrong = [(row, g, e) for row, g in zip(rows, got, strict=True) if g != (e := expected(*row))]
    assert not wrong, f"{len(wrong)} of {len(rows)}: (operands, found, expected) {wrong[:5]}"


def float_rows(f: Format, count: int = 60) -> list[tuple[int, ...]]:
    samples = f.samples(count)
    return list(product(samples, samples[:: max(1, len(samples) // 40)]))


def int_rows(t: Integer) -> list[tuple[int, ...]]:
    return list(product(t.samples(20), repeat=2))


def run_text(text: str, args: Sequence[Any]) -> list[Any]:
    """The results of the entry of a module given as text."""
    module = parse_module(text)
    verify_module(module)
    return evaluate_function(module.entry, args, module=module)
