"""Which programs each block runs: all of them once, and about as much work in each block."""

from __future__ import annotations

import numpy as np
import pytest

from tests.covering import covering
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Region, Value
from tilewright.ir.interpret import interpret
from tilewright.ir.types import I32, Pointer
from tilewright.ops.arith import Add, Constant, Mul, Sub
from tilewright.ops.control import For, NumPrograms, ProgramId, Return, Yield
from tilewright.ops.gpu import BlockId
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.targets.nvidia.program_order import BalancedOrder

Grid = tuple[int, int, int]


def _module(axis: int, rising: bool) -> Module:
    """Counts how often each program of a grid runs, and adds its length to a sum of its block."""
    fn = Function("f", [Pointer(I32), Pointer(I32)])
    counts, sums = fn.args
    builder = Builder(fn.body)

    def number(value: int) -> Value:
        return builder.value(Constant(value, I32))

    def add(pointer: Value, index: Value, by: Value) -> None:
        place = builder.value(AddPtr(pointer, index))
        old = builder.value(Load(place, None, None, "", "", False))
        builder.insert(Store(place, builder.value(Add(old, by)), None, "", ""))

    index, count = builder.value(ProgramId(axis)), builder.value(NumPrograms(axis))
    ahead = builder.value(Add(index, number(1)))
    stop = ahead if rising else builder.value(Sub(count, index))
    loop = For(number(0), stop, number(1), [], 1, 0, (), Region([I32]))
    order = BalancedOrder(axis, [loop], builder)
    body = Region([I32])
    block = builder.value(BlockId(3))
    builder.insert(For(*order.span, [], 1, 0, (), body))
    builder.insert(Return([]))
    builder.region = body
    x, y, z = order.places(body.args[0], builder)
    extents = [builder.value(NumPrograms(a)) for a in range(2)]
    rows = builder.value(Add(y, builder.value(Mul(z, extents[1]))))
    add(counts, builder.value(Add(x, builder.value(Mul(rows, extents[0])))), number(1))
    along = (x, y, z)[axis]
    length = Add(along, number(1)) if rising else Sub(count, along)
    add(sums, block, builder.value(length))
    builder.insert(Yield([]))
    return Module([fn])


def _dealt(grid: Grid, axis: int, rising: bool, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    counts, sums = np.zeros(np.prod(grid), np.int32), np.zeros(blocks, np.int32)
    interpret(_module(axis, rising), grid, [counts, sums], blocks=blocks)
    return counts, sums


GRIDS = (1, 1, 1), (1, 7, 1), (5, 1, 1), (3, 2, 5), (8, 12, 1), (2, 3, 4), (31, 2, 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("grid", "axis", "rising"), covering(GRIDS, (0, 1, 2), (False, True)))
def test_each_program_runs_once(grid: Grid, axis: int, rising: bool) -> None:
    total = int(np.prod(grid))
    for blocks in {1, 2, 3, 7, total // 2 or 1, total - 1 or 1, total, total + 3}:
        counts, _ = _dealt(grid, axis, rising, blocks)
        assert (counts == 1).all(), (blocks, counts)


@pytest.mark.parametrize("rising", [False, True])
@pytest.mark.parametrize(
    ("grid", "blocks"),
    [((8, 32, 4), 132), ((32, 16, 1), 132), ((16, 8, 4), 66), ((64, 8, 1), 132), ((8, 16, 1), 16)],
)
def test_blocks_have_as_much_work(grid: Grid, blocks: int, rising: bool) -> None:
    """In turn, blocks would differ by up to a third; with these grids, none is more than 4 % above
    the mean."""
    counts, sums = _dealt(grid, 0, rising, blocks)
    assert (counts == 1).all()
    assert sums.max() <= 1.04 * sums.mean() + 1
