"""Sorting, counting, and functions of scalars, on the emulated GPU against their NumPy meaning."""

from __future__ import annotations

import pytest

from tests.lowering.simt.tiles import THREADS, check, tile
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Region, Value
from tilewright.ops.arith import Add, Cmp, Constant, Sub
from tilewright.ops.control import For, If, Yield
from tilewright.ops.histogram import Histogram
from tilewright.ops.map import Map
from tilewright.ops.sort import Sort

INTS = [t for t in ir.SCALARS if t.is_int() and not t.is_bool()]


def ids(value: object) -> str:
    if isinstance(value, ir.DType):
        return value.short
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize("shape", [(1,), (8,), (256,), (4, 16), (16, 4), (2, 4, 8)], ids=ids)
def test_sort_both_ways(shape: tuple[int, ...]) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        up = b.value(Sort(x, False, False))
        down = b.value(Sort(x, True, False))
        merged = b.value(Sort(x, True, True))
        return [up, down, merged]

    for columns in ((), (0,)):
        check(build, [tile(ir.I32, *shape)], columns=columns)


@pytest.mark.parametrize("element", INTS, ids=ids)
def test_sort_each_type(element: ir.DType) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        return [b.value(Sort(x, False, False)), b.value(Sort(x, True, False))]

    turn = INTS.index(element) % 3  # signed and unsigned: each width runs on four of the six
    check(build, [tile(element, 128)], threads=THREADS[turn::3])


@pytest.mark.parametrize("element", INTS, ids=ids)
@pytest.mark.parametrize("bins", [1, 16, 256])
def test_histogram(element: ir.DType, bins: int) -> None:
    def build(b: Builder, x: Value, mask: Value) -> list[Value]:
        return [b.value(Histogram(x, None, bins)), b.value(Histogram(x, mask, bins))]

    check(build, [tile(element, 128), tile(ir.I1, 128)])


def sum_below(b: Builder, number: Value) -> Value:
    """0 + 1 + … + (number & 7), by a loop, but -1 for an odd number."""
    zero, one = b.value(Constant(0, ir.I32)), b.value(Constant(1, ir.I32))
    parity = b.value(Sub(number, b.value(Add(number, one))))
    odd = b.value(Cmp(number, parity, "lt"))
    then, otherwise = Region(), Region()
    with b.at_end(then):
        b.insert(Yield([parity]))
    with b.at_end(otherwise):
        body = Region([ir.I32, ir.I32])
        with b.at_end(body):
            b.insert(Yield([b.value(Add(*body.args))]))
        limit = b.value(Constant(5, ir.I32))
        b.insert(Yield(b.insert(For(zero, limit, one, [number], 0, 0, (), body)).results))
    return b.insert(If(odd, then, otherwise)).results[0]


@pytest.mark.parametrize("pack", [1, 2, 8])
@pytest.mark.parametrize("shape", [(8,), (64,), (4, 16), (16, 4), (8, 1)], ids=ids)
def test_map_with_control_flow(shape: tuple[int, ...], pack: int) -> None:
    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        body = Region([ir.I32] * pack + [ir.FP32] * pack)
        with b.at_end(body):
            numbers, floats = body.args[:pack], body.args[pack:]
            found = [sum_below(b, n) for n in numbers]
            summed = [b.value(Add(f, floats[0])) for f in floats]
            b.insert(Yield([*reversed(found), *summed]))
        return list(b.insert(Map([x, y], pack, body)).results)

    sources = [tile(ir.I32, *shape), tile(ir.FP32, *shape)]
    for turn, columns in enumerate(((), (0,))):
        check(build, sources, columns=columns, threads=THREADS[(turn + pack) % 2 :: 2])
