"""Every elementwise op on every element type, on the emulated GPU, against its NumPy meaning.

A kernel does all ops of a kind on one element type; an argument that differs is the result of the
op at its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.lowering.simt.tiles import Threads, check, tile
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ops import arith, math

SIZE = 256
# Threads that hold one element, several, and copies of one.
CASES = ((Threads(1, 4), 64), (Threads(4, 8), SIZE), (Threads(4, 32), 32), (Threads(2, 8), 1))
FLOATS = [t for t in ir.SCALARS if t.is_floating()]
MATH = [c for c in vars(math).values()
        if isinstance(c, type) and issubclass(c, math.MathFunction) and c.name]  # fmt: skip


def ids(t: ir.DType) -> str:
    return t.short


def each(makes: list[Callable[..., Any]], count: int, element: ir.DType, **options: Any) -> None:
    """Apply ops to `count` tiles of an element type."""

    def build(b: Builder, *operands: Value) -> list[Value]:
        return [b.value(make(*operands)) for make in makes]

    for threads, size in CASES:
        check(build, [tile(element, size)] * count, threads=[threads], **options)


def binary_ops(element: ir.DType) -> list[Callable[..., Any]]:
    found: list[Any] = [arith.Add, arith.Sub, arith.Mul, arith.Min, arith.Max, arith.Rem]
    if element.is_floating():
        found += [
            lambda x, y: arith.Div(x, y, ieee=True),
            lambda x, y: arith.Min(x, y, propagate_nan=True),
            lambda x, y: arith.Max(x, y, propagate_nan=True),
        ]
    else:
        found += [arith.IntDiv, arith.And, arith.Or, arith.Xor, arith.Shl, arith.Shr]
        if element.primitive_bitwidth >= 32:
            found.append(arith.MulHi)
    return found


@pytest.mark.parametrize("element", ir.SCALARS, ids=ids)
def test_binary(element: ir.DType) -> None:
    each(binary_ops(element), 2, element)


@pytest.mark.parametrize("element", ir.SCALARS, ids=ids)
def test_comparisons(element: ir.DType) -> None:
    each([lambda x, y, p=p: arith.Cmp(x, y, p) for p in arith.PREDICATES], 2, element)


@pytest.mark.parametrize("element", ir.SCALARS, ids=ids)
def test_unary(element: ir.DType) -> None:
    exact: list[Any] = [arith.Neg, arith.Abs]
    if element.is_floating() and not element.is_fp8():
        exact += [math.Floor, math.Ceil, math.Trunc, math.Rint]
    each(exact, 1, element)


@pytest.mark.parametrize("element", ir.SCALARS, ids=ids)
def test_casts(element: ir.DType) -> None:
    makes: list[Any] = [lambda x, t=t: arith.Cast(x, t, "rtne") for t in ir.SCALARS]
    if element.is_floating():
        narrower = [t for t in FLOATS if t.primitive_bitwidth < element.primitive_bitwidth]
        makes += [lambda x, t=t: arith.Cast(x, t, "rtz") for t in narrower]
    each(makes, 1, element)


@pytest.mark.parametrize("element", ir.SCALARS, ids=ids)
def test_select(element: ir.DType) -> None:
    def build(b: Builder, c: Value, x: Value, y: Value) -> list[Value]:
        return [b.value(arith.Select(c, x, y))]

    for threads, size in CASES:
        sources = [tile(ir.I1, size), tile(element, size), tile(element, size)]
        check(build, sources, threads=[threads])


@pytest.mark.parametrize("element", [ir.FP16, ir.BF16, ir.FP32], ids=ids)
def test_fma(element: ir.DType) -> None:
    each([arith.Fma], 3, element)


@pytest.mark.parametrize("element", [ir.FP16, ir.BF16, ir.FP32, ir.FP64], ids=ids)
def test_math_is_close(element: ir.DType) -> None:
    """That the right functions are called; `tests/lowering/test_math.py` has their accuracy."""
    each(list(MATH), 1, element, close=True)
