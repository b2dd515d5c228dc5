"""Removable wraps: the elements that they redirect never affect a stored value."""

from __future__ import annotations

import numpy as np
import pytest

from tests.analysis.block_kernels import MATMUL
from tests.analysis.recording import Array, Moment, kernel_ir, moments
from tilewright.analysis.blocks import Block, BlockFinder
from tilewright.analysis.wraps import wrap_is_needed
from tilewright.ir.core import Module
from tilewright.ops.memory import Load, Store

COPY = """
def kernel(x, y, m, n, s):
    rows = tl.program_id(0) * 8 + tl.arange(0, 8)
    cols = tl.arange(0, 4)
    tile = tl.load(x + (rows % m)[:, None] * s + cols[None, :])
    {body}
"""
STORE = "tl.store(y + rows[:, None] * s + cols[None, :], {value}, mask={mask})"
ROWS = "rows[:, None] < m"

BODIES = {
    # name: (body, whether the wrap is needed)
    "stored below": (STORE.format(value="tile", mask=ROWS), False),
    "stored below less": (STORE.format(value="tile", mask="rows[:, None] < m - 2"), False),
    "stored below more": (STORE.format(value="tile", mask="rows[:, None] < m + 1"), True),
    "stored below another": (STORE.format(value="tile", mask="rows[:, None] < n"), True),
    "stored at all": (STORE.format(value="tile", mask="cols[None, :] < n"), True),
    "computed with": (STORE.format(value="tl.exp(tile) * 2 + tile", mask=ROWS), False),
    "cast": (STORE.format(value="tile.to(tl.float16).to(tl.float32)", mask=ROWS), False),
    "turned": (
        "tl.store(y + rows[None, :] * s + cols[:, None], tile.T, mask=rows[None, :] < m)", False,
    ),
    "turned and stored by columns": (
        "tl.store(y + tl.arange(0, 8)[None, :] + cols[:, None], tile.T, mask=cols[:, None] < m)",
        True,
    ),
    "summed over columns": ("tl.store(y + rows, tl.sum(tile, 1), mask=rows < m)", False),
    "summed over rows": ("tl.store(y + cols, tl.sum(tile, 0), mask=cols < m)", True),
    "scanned along columns": (
        STORE.format(value="tl.cumsum(tile, 1)", mask=ROWS), False,
    ),
    "scanned along rows": (STORE.format(value="tl.cumsum(tile, 0, reverse=True)", mask=ROWS), True),
    "flipped": (STORE.format(value="tl.flip(tile, 0)", mask=ROWS), True),
    "an index": (
        "at = tile.to(tl.int32)\n"
        "    tl.store(y + at, 1.0, mask=cols[None, :] < n)", True,
    ),
    "a mask": (STORE.format(value="1.0", mask="tile > 1"), True),
    "accumulated": (
        "total = tl.zeros((8, 4), tl.float32)\n"
        "    for i in range(0, 3):\n"
        "        total += tile * i\n    " + STORE.format(value="total", mask=ROWS),
        False,
    ),
    "a bound of each iteration": (
        "last = tile\n"
        "    for i in range(0, 3):\n"
        "        below = rows[:, None] < m + i\n"
        "        tl.store(y + rows[:, None] * s + cols[None, :], last, mask=below)\n"
        "        last = last + 1", True,
    ),
    "the wrap of the iteration before": (
        "for i in range(0, 3):\n"
        "        below = rows[:, None] < m + i\n"
        "        tl.store(y + rows[:, None] * s + cols[None, :], tile, mask=below)\n"
        "        tile = tl.load(x + (rows % (m + i))[:, None] * s + cols[None, :])", True,
    ),
    "summed over by a product": (
        "left = tl.load(x + tl.arange(0, 16)[:, None] * 8 + tl.arange(0, 8)[None, :])\n"
        "    sums = tl.dot(left, tile)\n"
        "    down = tl.program_id(0) * 8 + tl.arange(0, 16)[:, None]\n"
        "    tl.store(y + down * 4 + cols[None, :], sums, mask=down < m)", True,
    ),
    "in a branch": (
        "if n > 3:\n        tile = tile + 1\n    " + STORE.format(value="tile", mask=ROWS), False,
    ),
}  # fmt: skip


def needed_wraps(module: Module) -> tuple[BlockFinder, dict[Load, list[bool]]]:
    finder = BlockFinder()
    found: dict[Load, list[bool]] = {}
    for op in module.walk():
        if isinstance(op, Load):
            block = finder.of(op)
            assert isinstance(block, Block)
            wrapped = [axis for axis in block.axes if axis.end is not None]
            found[op] = [wrap_is_needed(finder, block, axis) for axis in wrapped]
    return finder, found


def shows(module: Module, finder: BlockFinder, grid: tuple[int, ...], args: list[int]) -> bool:
    """Whether what is stored depends on elements that a wrap brought in."""

    def garble(moment: Moment, loaded: Array) -> Array:
        assert isinstance(moment.op, Load)
        block = finder.of(moment.op)
        assert isinstance(block, Block)
        loaded = loaded.copy()
        for axis in block.axes:
            if axis.end is not None and axis.tile_axis is not None:
                limit = axis.end - axis.begin
                first = limit.value({a: moment.number(a) for a in limit.atoms()})
                places = np.arange(axis.extent) >= first
                loaded[(slice(None),) * axis.tile_axis + (places,)] += 3
        return loaded

    def stored(found: list[Moment]) -> list[bytes]:
        stores = [(m, m.op) for m in found if isinstance(m.op, Store)]
        parts = [
            (m.addresses[m.mask], m.values[op.value][m.mask] if op.value in m.values else m.mask)
            for m, op in stores
        ]
        return [array.tobytes() for pair in parts for array in pair]

    return stored(moments(module, grid, args)) != stored(moments(module, grid, args, garble))


@pytest.mark.parametrize("name", BODIES)
def test_wrap_is_needed_where_it_is_observable(name: str) -> None:
    body, needed = BODIES[name]
    check_copy(COPY.format(body=body), needed)


@pytest.mark.parametrize("name", BODIES)
def test_a_clamp_is_needed_where_it_is_observable(name: str) -> None:
    body, needed = BODIES[name]
    check_copy(COPY.format(body=body).replace("rows % m", "tl.where(rows < m, rows, 0)"), needed)


def check_copy(text: str, needed: bool) -> None:
    module = kernel_ir(text, "*fp32, *fp32, i32, i32, i32")
    finder, found = needed_wraps(module)
    assert {answer for answers in found.values() for answer in answers} == {needed}
    arguments = [[1 << 40, 1 << 42, m, n, 16] for m, n in ((11, 40), (5, 9), (16, 40))]
    seen = [shows(module, finder, (2,), args) for args in arguments]
    assert any(seen) == needed


def test_products_of_wrapped_operands_need_no_wraps() -> None:
    rows, cols = "(pid_m * BM + tl.arange(0, BM)) % M", "(pid_n * BN + tl.arange(0, BN)) % N"
    for value, needed in [
        ("tl.maximum(acc, 0.0)", [False, False]),
        ("tl.sort(acc)", [False, True]),  # rows are sorted independently
    ]:
        module = kernel_ir(
            MATMUL.format(rows=rows, cols=cols, value=value),
            "*fp16, *fp16, *fp32, i32, i32, i32, i32, i32, i32",
            BM=16, BN=16, BK=16, GROUP=2,
        )  # fmt: skip
        finder, found = needed_wraps(module)
        assert list(found.values()) == [[answer] for answer in needed]
        args = [1 << 40, 3 << 40, 5 << 40, 21, 25, 20, 32, 32, 32]
        assert shows(module, finder, (4,), args) == any(needed)
