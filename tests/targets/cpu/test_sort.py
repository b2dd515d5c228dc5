"""Sorting, counting, and functions of scalars, compiled for the CPU against their NumPy meaning."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.lowering.simt.tiles import Build, arguments, tile, tile_kernel
from tests.targets.cpu.harness import PLAIN_AVX2, assert_same, host
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Region, Value
from tilewright.ops.arith import Add, Cmp, Constant
from tilewright.ops.control import For, If, Yield
from tilewright.ops.histogram import Histogram
from tilewright.ops.map import Map
from tilewright.ops.reduce import Reduce
from tilewright.ops.shape import Flip
from tilewright.ops.sort import Sort

INTS = [t for t in ir.SCALARS if t.is_int() and not t.is_bool()]
SHAPES = [(1,), (2,), (7,), (8,), (33,), (100,), (256,), (1000,), (4, 16), (5, 3), (2, 3, 40)]


def ids(value: object) -> str:
    if isinstance(value, ir.DType):
        return value.short
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def check(build: Build, sources: Sequence[ir.Type]) -> None:
    module = tile_kernel(build, sources)
    args = arguments(module, sources, seed=1)
    assert_same(module, (1, 1, 1), args)
    if "avx2" in host().features:
        assert_same(module, (1, 1, 1), args, machine=host(PLAIN_AVX2))


@pytest.mark.parametrize("shape", SHAPES, ids=ids)
def test_sort(shape: tuple[int, ...]) -> None:
    merges = shape[-1] & (shape[-1] - 1) == 0

    def build(b: Builder, x: Value) -> list[Value]:
        found = [b.value(Sort(x, d, False)) for d in (False, True)]
        found += [b.value(Sort(x, d, True)) for d in (False, True) if merges]
        return found

    check(build, [tile(ir.I32, *shape)])


@pytest.mark.parametrize("element", INTS, ids=ids)
def test_sort_each_type(element: ir.DType) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        return [b.value(Sort(x, False, False)), b.value(Sort(x, True, False))]

    check(build, [tile(element, 75)])


def test_sort_among_other_ops() -> None:
    """Keys are computed in loops, and so are results that depend on the sorted tile."""

    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        up = b.value(Sort(b.value(Add(b.value(Flip(x, 1)), y)), False, False))
        combine = Region([ir.I32, ir.I32])
        with b.at_end(combine):
            b.insert(Yield([b.value(Add(*combine.args))]))
        total = b.insert(Reduce([up], 0, combine)).results[0]
        return [b.value(Add(up, x)), b.value(Sort(total, True, False)), total]

    check(build, [tile(ir.I32, 6, 20)] * 2)


@pytest.mark.parametrize("element", INTS, ids=ids)
@pytest.mark.parametrize("bins", [1, 20, 300])
def test_histogram(element: ir.DType, bins: int) -> None:
    def build(b: Builder, x: Value, mask: Value) -> list[Value]:
        counts = b.value(Histogram(x, mask, bins))
        return [b.value(Histogram(x, None, bins)), b.value(Add(counts, counts))]

    check(build, [tile(element, 5, 30), tile(ir.I1, 5, 30)])


@pytest.mark.parametrize("pack", [1, 2, 4])
@pytest.mark.parametrize("shape", [(12,), (3, 4), (2, 1, 8)], ids=ids)
def test_map_with_control_flow(shape: tuple[int, ...], pack: int) -> None:
    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        body = Region([ir.I32] * pack + [ir.FP32] * pack)
        with b.at_end(body):
            numbers, floats = body.args[:pack], body.args[pack:]
            found = [one_element(b, n) for n in numbers]
            summed = [b.value(Add(f, floats[0])) for f in floats]
            b.insert(Yield([*reversed(found), *summed]))
        first, second = b.insert(Map([b.value(Add(x, x)), y], pack, body)).results
        return [first, b.value(Add(second, second))]

    check(build, [tile(ir.I32, *shape), tile(ir.FP32, *shape)])


def one_element(b: Builder, number: Value) -> Value:
    """A sum by a loop for negative numbers; the others as they are."""
    zero, one = b.value(Constant(0, ir.I32)), b.value(Constant(1, ir.I32))
    then, otherwise = Region(), Region()
    with b.at_end(then):
        body = Region([ir.I32, ir.I32])
        with b.at_end(body):
            b.insert(Yield([b.value(Add(*body.args))]))
        limit = b.value(Constant(5, ir.I32))
        b.insert(Yield(b.insert(For(zero, limit, one, [number], 0, 0, (), body)).results))
    with b.at_end(otherwise):
        b.insert(Yield([number]))
    return b.insert(If(b.value(Cmp(number, zero, "lt")), then, otherwise)).results[0]
