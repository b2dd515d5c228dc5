"""Ops that move elements between threads, on the emulated GPU against their NumPy meaning.

Elements are checked bit for bit. Where the order of a reduction or scan is open, it is over
integers or takes an extremum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest

from tests.covering import covering
from tests.lowering.simt.harness import run_emulated
from tests.lowering.simt.tiles import THREADS, Threads, check, splat, tile, tile_kernel
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Region, Value
from tilewright.lowering.simt import reduce
from tilewright.ops.arith import Add, And, Cmp, Max, Mul, Or, Select
from tilewright.ops.control import Yield
from tilewright.ops.reduce import Reduce, Scan
from tilewright.ops.shape import (
    Broadcast,
    Cat,
    ExpandDims,
    Flip,
    Gather,
    Join,
    Permute,
    Reshape,
    Splat,
    Split,
)
from tilewright.passes.layout_rules import reduced_layout

# One type of each size in memory, with bools and floats.
ELEMENTS = [ir.I1, ir.I8, ir.FP16, ir.I32, ir.FP64]
SHAPES = [(1,), (8,), (256,), (4, 16), (16, 4), (1, 32), (32, 1), (2, 4, 8)]
COLUMNS = [(), (0,)]


def ids(value: object) -> str:
    if isinstance(value, ir.DType):
        return value.short
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize("shape", SHAPES, ids=ids)
def test_flip_cat_join_split(shape: tuple[int, ...]) -> None:
    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        joined = b.value(Join(x, y))
        doubled = b.value(Add(joined, joined))
        axes = range(len(shape))
        return [
            *(b.value(Flip(x, axis)) for axis in axes),
            *(b.value(Cat(x, y, axis)) for axis in axes),
            doubled,
            *b.insert(Split(doubled)).results,
        ]

    for columns in COLUMNS:
        check(build, [tile(ir.I32, *shape)] * 2, columns=columns)


@pytest.mark.parametrize("element", ELEMENTS, ids=ids)
def test_flip_and_gather_of_each_size(element: ir.DType) -> None:
    def build(b: Builder, x: Value, index: Value) -> list[Value]:
        return [b.value(Flip(x, 0)), b.value(Gather(x, index, 0)), b.value(Gather(x, index, 1))]

    check(build, [tile(element, 16, 4), tile(ir.I32, 16, 4)])


@pytest.mark.parametrize("shape", [(2, 8), (8, 2), (16, 2), (2, 2, 2)], ids=ids)
def test_split_across_lanes(shape: tuple[int, ...]) -> None:
    """A loaded tile keeps its last axis in lanes where a thread has one element."""

    def build(b: Builder, x: Value) -> list[Value]:
        turned = x if shape[-1] == 2 else b.value(Permute(x, (1, 0)))
        return list(b.insert(Split(turned)).results)

    for columns in COLUMNS:
        check(build, [tile(ir.FP32, *shape)], columns=columns)


@pytest.mark.parametrize("index", [t for t in ir.SCALARS if t.is_int()], ids=ids)
def test_gather_clamps_every_index(index: ir.DType) -> None:
    def build(b: Builder, x: Value, i: Value) -> list[Value]:
        return [b.value(Gather(x, i, 0))]

    check(build, [tile(ir.FP32, 64), tile(index, 64)])


@pytest.mark.parametrize(("source", "index", "axis"), [
    ((8,), (32,), 0), ((32,), (4,), 0), ((4, 16), (8, 16), 0), ((4, 16), (4, 2), 1),
    ((2, 4, 8), (2, 16, 8), 1),
], ids=ids)  # fmt: skip
def test_gather_of_another_shape(
    source: tuple[int, ...], index: tuple[int, ...], axis: int
) -> None:
    def build(b: Builder, x: Value, i: Value) -> list[Value]:
        return [b.value(Gather(x, i, axis))]

    for columns in ((), (0,), (1,)):
        check(build, [tile(ir.I16, *source), tile(ir.U8, *index)], columns=columns)


@pytest.mark.parametrize("shape", [(4, 16), (16, 16), (2, 4, 8)], ids=ids)
def test_shapes_in_another_order_than_memory(shape: tuple[int, ...]) -> None:
    """Tiles loaded by columns and stored by rows have their layout converted."""

    def build(b: Builder, x: Value) -> list[Value]:
        rank = len(shape)
        turned = b.value(Permute(x, tuple(reversed(range(rank)))))
        flat = b.value(Reshape(x, (prod(shape),)))
        spread = b.value(ExpandDims(x, 1))
        wide = (shape[0], 4, *shape[1:])
        return [turned, flat, b.value(Broadcast(spread, wide)), x]

    for columns in COLUMNS:
        for element in (ir.I8, ir.FP32, ir.I64):
            check(build, [tile(element, *shape)], columns=columns)


# -- reductions and scans -------------------------------------------------------------------------

Combine = Callable[[Builder, list[Value], list[Value]], Sequence[Value]]


def region(elements: Sequence[ir.DType], combine: Combine) -> Region:
    found = Region([*elements, *elements])
    b = Builder(found)
    n = len(elements)
    b.insert(Yield(list(combine(b, found.args[:n], found.args[n:]))))
    return found


def add(b: Builder, left: list[Value], right: list[Value]) -> list[Value]:
    return [b.value(Add(x, y)) for x, y in zip(left, right, strict=True)]


def larger(b: Builder, left: list[Value], right: list[Value]) -> list[Value]:
    return [b.value(Max(x, y, propagate_nan=True)) for x, y in zip(left, right, strict=True)]


def affine(b: Builder, left: list[Value], right: list[Value]) -> list[Value]:
    """First x -> a*x + c, then x -> d*x + e: in which order matters."""
    (a, c), (d, e) = left, right
    product = b.value(Mul(c, d))
    return [b.value(Mul(a, d)), b.value(Add(product, e))]


@pytest.mark.parametrize("element", [*ELEMENTS, ir.BF16, ir.FP8E5, ir.U16], ids=ids)
@pytest.mark.parametrize("shape", [(128,), (8, 16)], ids=ids)
def test_extremum_of_each_type(shape: tuple[int, ...], element: ir.DType) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        return [
            made
            for axis in range(len(shape))
            for made in (
                b.value(Reduce([x], axis, region([element], larger))),
                b.value(Scan([x], axis, False, region([element], larger))),
            )
        ]

    check(build, [tile(element, *shape)])


@pytest.mark.parametrize("shape", SHAPES, ids=ids)
@pytest.mark.parametrize("columns", COLUMNS)
def test_sums_along_each_axis(shape: tuple[int, ...], columns: tuple[int, ...]) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        return [
            made
            for axis in range(len(shape))
            for made in (
                b.value(Reduce([x], axis, region([ir.I32], add))),
                b.value(Scan([x], axis, False, region([ir.I32], add))),
                b.value(Scan([x], axis, True, region([ir.I32], add))),
            )
        ]

    check(build, [tile(ir.I32, *shape)], columns=columns)


@pytest.mark.parametrize("shape", SHAPES, ids=ids)
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_keeps_the_order(shape: tuple[int, ...], reverse: bool) -> None:
    elements = [ir.I64, ir.I64]

    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        return [
            result
            for axis in range(len(shape))
            for result in b.insert(Scan([x, y], axis, reverse, region(elements, affine))).results
        ]

    threads = [*THREADS[reverse::2], Threads(8, 4)]
    check(build, [tile(ir.I64, *shape)] * 2, columns=(1,), threads=threads)


def test_scan_of_more_elements_than_threads_hold() -> None:
    """Rounds of all threads follow each other in far registers."""

    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        scan = b.insert(Scan([x, y], 0, False, region([ir.I32, ir.I32], affine)))
        back = b.insert(Scan([x, y], 0, True, region([ir.I32, ir.I32], affine)))
        return [*scan.results, *back.results]

    threads = [Threads(2, 4), Threads(4, 4), Threads(1, 8)]
    check(build, [tile(ir.I32, 256)] * 2, threads=threads)


def largest(b: Builder, left: list[Value], right: list[Value]) -> list[Value]:
    """The larger number and where it is. Of equal numbers the first counts, as each thread sees
    them in an order of its own."""
    above = b.value(Cmp(left[0], right[0], "gt"))
    tie = b.value(Cmp(left[0], right[0], "eq"))
    lower = b.value(Cmp(left[1], right[1], "lt"))
    better = b.value(Or(above, b.value(And(tie, lower))))
    return [b.value(Select(better, x, y)) for x, y in zip(left, right, strict=True)]


def argmax(b: Builder, x: Value, i: Value) -> list[Value]:
    return [
        result
        for axis in range(len(ir.shape_of(x.type)))
        for result in b.insert(Reduce([x, i], axis, region([ir.I8, ir.I32], largest))).results
    ]


def test_argmax_of_several_rows() -> None:
    check(argmax, [tile(ir.I8, 8, 32), tile(ir.I32, 8, 32)])


# Where there are many warps, lanes share what these have found; where a warp has a row for each
# lane, none can; with few lanes, each still has several.
MANY_WARPS = [Threads(16, 1), Threads(16, 4), Threads(32, 2), Threads(32, 8), Threads(16, 32)]
LONG = [(1024,), (2, 1024), (64, 16), (16, 64), (1024, 1)]


@pytest.mark.parametrize(
    ("shape", "element", "threads"), covering(LONG, ELEMENTS, MANY_WARPS), ids=ids
)
def test_extremum_over_many_warps(
    shape: tuple[int, ...], element: ir.DType, threads: Threads
) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        axes = range(len(shape))
        return [b.value(Reduce([x], axis, region([element], larger))) for axis in axes]

    check(build, [tile(element, *shape)], threads=[threads])


@pytest.mark.parametrize("threads", [Threads(4, 8), Threads(2, 32), Threads(8, 4)], ids=str)
@pytest.mark.parametrize("element", [ir.FP16, ir.FP32, ir.FP64], ids=ids)
def test_sums_that_lanes_deal_out_have_the_bits_of_a_butterfly(
    element: ir.DType, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        return [b.value(Reduce([x], 0, region([element], add)))]

    module = tile_kernel(build, [tile(element, 128, 16)])
    source = np.random.default_rng(0).normal(size=(128, 16)).astype(element.numpy)
    source[5, 1], source[7, 2], source[:, 3], source[9, 4] = np.inf, -np.inf, -0.0, np.nan
    results: list[bytes] = []
    for _ in range(2):
        out = np.zeros(16, element.numpy)
        args = [source.ravel(), out]
        run_emulated(module, (1, 1, 1), args, warps=threads.warps, lanes=threads.lanes)
        results.append(out.tobytes())
        assert np.isnan(out[4])
        monkeypatch.setattr(reduce, "_distributed", butterfly)
    assert results[0] == results[1]


def butterfly(kernel: Any, op: Reduce, elements: Any, bits: Sequence[int]) -> Any:
    """Each element combined in all lanes, in place of `reduce._distributed`."""
    layout = op.srcs[0].layout
    assert layout is not None
    return reduce._over_lanes(kernel, op, elements, bits), reduced_layout(layout, op.axis)


@pytest.mark.parametrize("shape", LONG, ids=ids)
def test_sum_and_argmax_over_many_warps(shape: tuple[int, ...]) -> None:
    def build(b: Builder, x: Value, i: Value) -> list[Value]:
        axes = range(len(shape))
        sums = [b.value(Reduce([i], axis, region([ir.I32], add))) for axis in axes]
        return [*sums, *argmax(b, x, i)]

    check(build, [tile(ir.I8, *shape), tile(ir.I32, *shape)], threads=MANY_WARPS)


@pytest.mark.parametrize("threads", [*THREADS, *MANY_WARPS], ids=str)
def test_threads_agree_for_either_operand_order(threads: Threads) -> None:
    """A function that is not symmetric, if only by rounding, has one result in all threads."""

    def left_one(b: Builder, left: list[Value], right: list[Value]) -> list[Value]:
        return left

    def build(b: Builder, x: Value) -> list[Value]:
        some = b.value(Reduce([x], 0, region([ir.I32], left_one)))
        return [b.value(Splat(some, (1024,)))]

    module = tile_kernel(build, [tile(ir.I32, 1024)])
    source, out = np.arange(1024, dtype=np.int32), np.full(1024, -1, np.int32)
    run_emulated(module, (1, 1, 1), [source, out], warps=threads.warps, lanes=threads.lanes)
    assert len(set(out.tolist())) == 1
    assert out[0] in source


def test_reductions_of_reductions_share_memory() -> None:
    """Each exchanges through shared memory, and may not overwrite what another still reads."""

    def build(b: Builder, x: Value) -> list[Value]:
        found: list[Value] = []
        for _ in range(4):
            total = b.value(Reduce([x], 0, region([ir.I32], add)))
            scanned = b.value(Scan([x], 0, False, region([ir.I32], add)))
            x = b.value(Add(b.value(Flip(scanned, 0)), splat(b, 3, scanned)))
            found += [total, x]
        return found

    check(build, [tile(ir.I32, 256)])
