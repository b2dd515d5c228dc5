"""Tiles whose extents are no powers of two, on the emulated GPU against the interpreter.

The padding that a pass adds to such a tile must never be visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import pytest

from tests.lowering.simt.tiles import (
    THREADS,
    Build,
    Threads,
    arguments,
    check,
    splat,
    tile,
    tile_kernel,
)
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Region, Value
from tilewright.ir.interpret import interpret
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PassContext
from tilewright.ir.verify import verify_module
from tilewright.ops.arith import (
    Add,
    And,
    Cmp,
    Constant,
    IntDiv,
    Max,
    Min,
    Mul,
    Or,
    Select,
    Sub,
    Xor,
)
from tilewright.ops.atomic import AtomicCAS, AtomicRMW
from tilewright.ops.control import Condition, For, If, While, Yield
from tilewright.ops.dot import Dot
from tilewright.ops.histogram import Histogram
from tilewright.ops.map import Map
from tilewright.ops.reduce import Reduce, Scan
from tilewright.ops.shape import (
    Arange,
    Broadcast,
    Cat,
    ExpandDims,
    Flip,
    Gather,
    Join,
    Permute,
    Reshape,
    Split,
)
from tilewright.ops.sort import Sort
from tilewright.passes.pad_tiles import pad_tiles
from tilewright.passes.padding import groups_match

SHAPES: list[tuple[int, ...]] = [(3,), (48,), (100,), (3, 40), (5, 3), (8, 6), (6, 8), (2, 3, 5)]
FEW = (Threads(1, 4), Threads(4, 8), Threads(2, 32))


def ids(value: object) -> str:
    if isinstance(value, ir.DType):
        return value.short
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


shapes = pytest.mark.parametrize("shape", SHAPES, ids=ids)


def same(
    build: Build,
    sources: Sequence[ir.Type],
    *,
    columns: Sequence[int] = (),
    turn: int | None = None,
) -> None:
    """Memory is the same on the emulated GPU.

    Args:
        turn: which number of threads runs it: for tests of which each parameter meets all of them
            in turn. By default all run it.
    """
    check(build, sources, threads=FEW if turn is None else [FEW[turn % len(FEW)]], columns=columns)


@shapes
def test_elementwise_and_constants(shape: tuple[int, ...]) -> None:
    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        total = b.value(Add(x, b.value(Mul(y, splat(b, 3, y)))))
        chosen = b.value(Select(b.value(Cmp(x, y, "lt")), total, b.value(IntDiv(x, y))))
        return [total, chosen, b.value(Constant(7, x.type))]

    same(build, [tile(ir.I32, *shape)] * 2, columns=(1,))


@pytest.mark.parametrize("start", [0, 5, -7, 2**31 - 12])
def test_arange(start: int) -> None:
    def build(b: Builder) -> list[Value]:
        return [b.value(Arange(start, start + 12))]

    same(build, [])


@shapes
def test_flip_cat_join_split(shape: tuple[int, ...]) -> None:
    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        joined = b.value(Join(x, y))
        axes = range(len(shape))
        return [
            *(b.value(Flip(x, axis)) for axis in axes),
            *(b.value(Cat(x, y, axis)) for axis in axes),
            joined,
            *b.insert(Split(b.value(Add(joined, joined)))).results,
        ]

    same(build, [tile(ir.I32, *shape)] * 2)


def test_cat_of_other_lengths() -> None:
    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        return [b.value(Cat(x, y, 1)), b.value(Cat(y, x, 1))]

    same(build, [tile(ir.I16, 3, 4), tile(ir.I16, 3, 7)])


@shapes
def test_permute_expand_broadcast(shape: tuple[int, ...]) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        turned = b.value(Permute(x, tuple(reversed(range(len(shape))))))
        spread = b.value(ExpandDims(x, 1))
        return [turned, b.value(Broadcast(spread, (shape[0], 3, *shape[1:]))), spread]

    for element in (ir.I8, ir.FP64):
        same(build, [tile(element, *shape)])


@pytest.mark.parametrize(("source", "target"), [
    ((12,), (3, 4)), ((12,), (4, 3)), ((4, 3), (12,)), ((3, 4), (6, 2)), ((6, 5), (10, 3)),
    ((2, 3, 5), (30,)), ((30,), (5, 2, 3)), ((3, 8), (3, 2, 4)), ((48,), (3, 1, 16)),
    ((1, 7), (7,)), ((3, 5, 4), (3, 20)), ((3, 5, 4), (15, 4)), ((16,), (4, 4)),
], ids=ids)  # fmt: skip
def test_reshape(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        there = b.value(Reshape(x, target))
        return [there, b.value(Reshape(b.value(Add(there, there)), source))]

    same(build, [tile(ir.I32, *source)])


@pytest.mark.parametrize(("source", "target", "matches"), [
    ((3, 4), (12,), True), ((4, 3), (12,), False), ((3, 8), (6, 4), True),
    ((2, 3), (2, 3, 1), True), ((5, 6, 2), (5, 12), True), ((5, 2, 6), (5, 12), False),
    ((4, 4), (16,), True), ((3, 5), (15,), False), ((3, 5), (5, 3), False),
])  # fmt: skip
def test_reshapes_that_keep_the_order_of_padded_tiles(
    source: tuple[int, ...], target: tuple[int, ...], matches: bool
) -> None:
    assert groups_match(source, target) is matches
    assert groups_match(target, source) is matches


@pytest.mark.parametrize(("source", "index", "axis"), [
    ((7,), (20,), 0), ((3, 10), (5, 10), 0), ((3, 10), (3, 3), 1), ((8,), (5,), 0), ((5,), (8,), 0),
], ids=ids)  # fmt: skip
@pytest.mark.parametrize("kind", [ir.I8, ir.U16, ir.I32, ir.I64], ids=ids)
def test_gather_clamps_to_the_unpadded_extent(
    source: tuple[int, ...], index: tuple[int, ...], axis: int, kind: ir.DType
) -> None:
    def build(b: Builder, x: Value, i: Value) -> list[Value]:
        return [b.value(Gather(x, i, axis))]

    same(build, [tile(ir.FP32, *source), tile(kind, *index)])


# -- reductions and scans --------------------------------------------------------------------------


def combining(b: Builder, types: Sequence[ir.Type], fn: Callable[..., Sequence[Value]]) -> Region:
    region = Region([*types, *types])
    with b.at_end(region):
        b.insert(Yield(list(fn(*region.args))))
    return region


def both_ways(
    b: Builder, srcs: list[Value], fn: Callable[..., Sequence[Value]], rank: int
) -> list[Value]:
    """The reduction and the two scans along each axis."""
    types = [ir.element_of(s.type) for s in srcs]
    found: list[Value] = []
    for axis in range(rank):
        found += b.insert(Reduce(srcs, axis, combining(b, types, fn))).results
        for reverse in (False, True):
            found += b.insert(Scan(srcs, axis, reverse, combining(b, types, fn))).results
    return found


SIMPLE: dict[str, Callable[[Value, Value], object]] = {
    "add": Add,
    "mul": Mul,
    "max": lambda x, y: Max(x, y, False),
    "min": lambda x, y: Min(x, y, True),
    "and": And,
    "or": Or,
    "xor": Xor,
}


@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize("element", [ir.I8, ir.U32, ir.I64], ids=ids)
def test_reduce_and_scan_integers(element: ir.DType, name: str) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        return both_ways(b, [x], lambda p, q: [b.value(SIMPLE[name](p, q))], 2)  # pyright: ignore

    turn = [*SIMPLE].index(name) + element.primitive_bitwidth // 16
    same(build, [tile(element, 5, 12)], turn=turn)


@pytest.mark.parametrize("name", ["and", "or", "xor", "max", "min"])
def test_reduce_and_scan_bools(name: str) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        return both_ways(b, [x], lambda p, q: [b.value(SIMPLE[name](p, q))], 1)  # pyright: ignore

    same(build, [tile(ir.I1, 23)])


@pytest.mark.parametrize("element", [ir.FP16, ir.FP32, ir.FP8E5], ids=ids)
@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize("op", [Max, Min])
def test_extremum_of_floats(element: ir.DType, propagate: bool, op: type[Max]) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        return both_ways(b, [x], lambda p, q: [b.value(op(p, q, propagate))], 2)

    same(build, [tile(element, 3, 6)])


def test_extremum_of_nans_only() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        nan = b.value(Constant(float("nan"), x.type))
        region = combining(b, [ir.FP32], lambda p, q: [b.value(Max(p, q, False))])
        return [*b.insert(Reduce([nan], 0, region)).results, x]

    same(build, [tile(ir.FP32, 5)])


@shapes
def test_reduce_with_a_custom_function(shape: tuple[int, ...]) -> None:
    """The greatest and its place; and the last of each row, which depends on the order."""

    def better(b: Builder, v: Value, i: Value, w: Value, j: Value) -> list[Value]:
        tie = b.value(And(b.value(Cmp(v, w, "eq")), b.value(Cmp(i, j, "lt"))))
        first = b.value(Or(b.value(Cmp(v, w, "gt")), tie))
        return [b.value(Select(first, v, w)), b.value(Select(first, i, j))]

    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        found = both_ways(b, [x, y], lambda *args: better(b, *args), len(shape))
        last = combining(b, [ir.I32], lambda p, q: [q])
        for axis in range(len(shape)):
            for reverse in (False, True):
                found += b.insert(Scan([x], axis, reverse, last.clone({}))).results
        return found

    # LLVM's time is quadratic in the elements of a thread: 10 s for 3 x 40 on four threads.
    several = FEW if prod(shape) <= 64 else FEW[1:]
    check(build, [tile(ir.I32, *shape)] * 2, threads=THREADS if len(shape) == 1 else several)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("element", [ir.I8, ir.U16, ir.I32, ir.U64], ids=ids)
@shapes
def test_sort(shape: tuple[int, ...], element: ir.DType) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        return [b.value(Sort(x, False, False)), b.value(Sort(x, True, False))]

    turn = SHAPES.index(shape) + element.primitive_bitwidth.bit_length()
    same(build, [tile(element, *shape)], turn=turn)


@shapes
def test_histogram(shape: tuple[int, ...]) -> None:
    def build(b: Builder, x: Value, mask: Value) -> list[Value]:
        near = b.value(And(x, splat(b, 15, x)))
        return [b.value(Histogram(near, None, 10)), b.value(Histogram(near, mask, 3))]

    same(build, [tile(ir.I32, *shape), tile(ir.I1, *shape)])


@pytest.mark.parametrize(("m", "n", "k"), [(3, 5, 7), (16, 8, 24), (20, 12, 16), (1, 3, 3)])
@pytest.mark.parametrize(("element", "sum"), [(ir.I8, ir.I32), (ir.FP16, ir.FP32)], ids=ids)
def test_dot(m: int, n: int, k: int, element: ir.DType, sum: ir.DType) -> None:
    def build(b: Builder, x: Value, y: Value, acc: Value) -> list[Value]:
        return [
            b.value(Dot(x, y, acc, "ieee", 0)),
            b.value(Dot(b.value(Add(x, x)), y, acc, "ieee", 0)),
        ]

    sources = [tile(element, m, k), tile(element, k, n), tile(sum, m, n)]
    check(build, sources, threads=(Threads(1, 32), Threads(4, 32)), close=element is ir.FP16)


# -- functions of scalars, control flow ------------------------------------------------------------


def halvings(b: Builder, number: Value) -> Value:
    """How often a number can be halved until it is 0; of a negative one it would not end."""
    body, before = Region([ir.I32, ir.I32]), Region([ir.I32, ir.I32])
    with b.at_end(before):
        left, _ = before.args
        zero = b.value(Constant(0, ir.I32))
        b.insert(Condition(b.value(Cmp(left, zero, "ne")), list(before.args)))
    with b.at_end(body):
        left, count = body.args
        two, one = b.value(Constant(2, ir.I32)), b.value(Constant(1, ir.I32))
        b.insert(Yield([b.value(IntDiv(left, two)), b.value(Add(count, one))]))
    zero = b.value(Constant(0, ir.I32))
    return b.insert(While([number, zero], before, body)).results[1]


@pytest.mark.parametrize(("shape", "pack"), [
    ((5,), 1), ((12,), 4), ((3, 4), 2), ((4, 3), 2), ((6, 5), 2), ((2, 3, 6), 4),
], ids=ids)  # fmt: skip
def test_map(shape: tuple[int, ...], pack: int) -> None:
    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        body = Region([ir.I32] * pack + [ir.FP32] * pack)
        with b.at_end(body):
            numbers, floats = body.args[:pack], body.args[pack:]
            counted = [halvings(b, n) for n in numbers]
            b.insert(Yield([*reversed(counted), *(b.value(Add(f, floats[0])) for f in floats)]))
        return list(b.insert(Map([x, y], pack, body)).results)

    same(build, [tile(ir.I32, *shape), tile(ir.FP32, *shape)])


def test_map_does_not_run_on_padding() -> None:
    """There it would divide -1 by 1 for ever."""

    def build(b: Builder) -> list[Value]:
        body = Region([ir.I32])
        with b.at_end(body):
            zero, one = b.value(Constant(0, ir.I32)), b.value(Constant(1, ir.I32))
            before, inner = Region([ir.I32]), Region([ir.I32])
            with b.at_end(before):
                b.insert(Condition(b.value(Cmp(before.args[0], zero, "lt")), list(before.args)))
            with b.at_end(inner):
                b.insert(Yield([b.value(IntDiv(inner.args[0], one))]))
            b.insert(Yield(b.insert(While([body.args[0]], before, inner)).results))
        falling = b.value(Sub(b.value(Constant(4, ir.Tile((5,), ir.I32))), b.value(Arange(0, 5))))
        return list(b.insert(Map([falling], 1, body)).results)

    same(build, [])


def test_loops_and_branches_carry_tiles() -> None:
    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        zero, one, four = (b.value(Constant(n, ir.I32)) for n in (0, 1, 4))
        body = Region([ir.I32, x.type, y.type])
        with b.at_end(body):
            i, p, q = body.args
            then, otherwise = Region(), Region()
            with b.at_end(then):
                b.insert(Yield([b.value(Add(p, q)), p]))
            with b.at_end(otherwise):
                b.insert(Yield([q, b.value(Flip(p, 0))]))
            odd = b.value(Cmp(b.value(And(i, one)), zero, "ne"))
            b.insert(Yield(b.insert(If(odd, then, otherwise)).results))
        return list(b.insert(For(zero, four, one, [x, y], 0, 0, (), body)).results)

    same(build, [tile(ir.I32, 3, 5)] * 2)


# -- memory ----------------------------------------------------------------------------------------


@shapes
def test_atomics(shape: tuple[int, ...]) -> None:
    """All elements add to a few places; and swap in one of the source's own."""

    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        assert x.op is not None
        ptr = x.op.operands[0]
        added = b.value(AtomicRMW(ptr, y, None, "add", "relaxed", "gpu"))
        zero = splat(b, 0, y)
        mask = b.value(Cmp(y, zero, "lt"))
        b.insert(AtomicRMW(ptr, y, mask, "max", "relaxed", "gpu"))
        seen = b.value(AtomicCAS(ptr, b.value(Add(x, y)), y, None, "relaxed", "gpu"))
        return [added, seen]

    same(build, [tile(ir.I32, *shape)] * 2)


@shapes
def test_pass_alone_changes_no_effect(shape: tuple[int, ...]) -> None:
    """With arrays that end where the tiles do, so that an access of padding is out of bounds."""

    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        region = combining(b, [ir.I32], lambda p, q: [b.value(Add(p, q))])
        totals = b.insert(Reduce([x], 0, region)).results
        return [b.value(Add(x, y)), b.value(Reshape(x, (prod(shape),))), *totals]

    sources = [tile(ir.I32, *shape)] * 2
    module = tile_kernel(build, sources)
    args = arguments(module, sources, seed=1)
    theirs = [a.copy() for a in args]
    interpret(module, (1, 1, 1), theirs)
    changed = module.clone()
    assert pad_tiles(changed.entry, PassContext(module=changed))
    verify_module(changed)
    assert not pad_tiles(changed.entry, PassContext(module=changed))
    interpret(changed, (1, 1, 1), args)
    for ours, expected in zip(args, theirs, strict=True):
        assert ours.tolist() == expected.tolist()


def test_padding_is_not_asserted() -> None:
    text = """func @f(%x: i32) {
      %i = tile.arange start=0, end=5 : () -> 5xi32
      %n = arith.constant value=5, type=5xi32 : () -> 5xi32
      %c = arith.cmp %i, %n, predicate="lt" : (5xi32, 5xi32) -> 5xi1
      debug.assert %c, message="inside" : 5xi1 -> ()
      control.return [] : () -> ()
    }"""
    module = parse_module(text)
    assert pad_tiles(module.entry, PassContext(module=module))
    verify_module(module)
    interpret(module, (1, 1, 1), [0])
