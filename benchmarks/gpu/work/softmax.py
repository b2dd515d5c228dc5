"""Softmax along the rows of fp32 matrices, with three kernels for rows of different lengths."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import tilewright as tw
from benchmarks.gpu.case import Case, Run, Setting
from benchmarks.gpu.measure import Planned, planned
from benchmarks.gpu.results import Bars

ROWS = 16384
COLUMNS = (256, 512, 781, 1024, 2048, 4096, 8192, 12672, 16384)
SMALL_ROWS = 37  # not a multiple of any number of rows a program
SMALL_COLUMNS = (64, 100)

TILE_ELEMENTS = (1024, 2048, 4096)
"""Elements of a tile of several rows."""

LONG_CONFIGURATIONS = ((4096, 3, 16), (8192, 1, 16), (8192, 1, 32), (16384, 1, 32))
"""Elements at a time, stages, warps of the loop over a row. More rows at once than the L2 holds
would be read twice; a single stage leaves registers for a second program."""

Launches = Callable[[Any, torch.Tensor, torch.Tensor], dict[str, Run]]


def _case(setting: Setting, rows: int, columns: int, launches: Launches, bars: Bars) -> Case:
    x, out = setting.randn(rows, columns), setting.empty(rows, columns)
    return Case(
        kernels="softmax",
        launches=lambda kernels: launches(kernels, x, out),
        outputs=[out],
        expected=lambda: [x.double().softmax(1)],
        tolerance=2e-6,
        bytes=2 * 4 * rows * columns,
        bars=bars,
        library={"softmax": partial(torch.softmax, x, 1, out=out)},
    )


def _bars(columns: int) -> Bars:
    return Bars(triton=1.3 if columns == 256 else 1.0, torch=1.0 if columns >= 1024 else None)


def _row_launches(kernels: Any, x: torch.Tensor, out: torch.Tensor) -> dict[str, Run]:
    rows, columns = x.shape
    block = tw.next_power_of_2(columns)
    fewest = max(1, min(16, block // 512))
    return {
        f"{warps} warps": partial(
            kernels.row_kernel[(rows,)], x, out, columns, columns, columns,
            BLOCK=block, num_warps=warps,
        )
        for warps in (fewest, 2 * fewest, 4 * fewest)
        if warps <= 16
    }  # fmt: skip


def one_row(setting: Setting) -> dict[str, Planned]:
    rows = setting.pick(SMALL_ROWS, ROWS, ROWS)
    widths = setting.pick(SMALL_COLUMNS, (256, 1024, 8192), COLUMNS)
    return {
        f"{rows} x {columns}": planned(_case, rows, columns, _row_launches, _bars(columns))
        for columns in widths
    }


def _rows_launches(kernels: Any, x: torch.Tensor, out: torch.Tensor) -> dict[str, Run]:
    rows, columns = x.shape
    block = tw.next_power_of_2(columns)
    return {
        f"{elements // block} rows, {warps} warps": partial(
            kernels.rows_kernel[(tw.cdiv(rows, elements // block),)],
            x, out, columns, columns, rows, columns,
            ROWS=elements // block, BLOCK=block, num_warps=warps,
        )
        for elements in TILE_ELEMENTS
        for warps in (4, 8)
        if elements >= block
    }  # fmt: skip


def several_rows(setting: Setting) -> dict[str, Planned]:
    rows = setting.pick(SMALL_ROWS, ROWS, ROWS)
    widths = setting.pick(SMALL_COLUMNS, (256,), (256, 512, 781, 1024, 2048))
    return {
        f"{rows} x {columns}": planned(_case, rows, columns, _rows_launches, _bars(columns))
        for columns in widths
    }


def _long_launches(kernels: Any, x: torch.Tensor, out: torch.Tensor) -> dict[str, Run]:
    rows, columns = x.shape
    return {
        f"{block} at a time, {stages} stages, {warps} warps": partial(
            kernels.long_row_kernel[(rows,)], x, out, columns, columns, columns,
            BLOCK=block, num_stages=stages, num_warps=warps,
        )
        for block, stages, warps in LONG_CONFIGURATIONS
    }  # fmt: skip


def long_rows(setting: Setting) -> dict[str, Planned]:
    """Rows that are too long for one tile; on a small scale they are not, but the tiles are."""
    everything = ((16384, 32768), (8192, 65536))
    shapes = setting.pick(((3, 20_000),), everything[:1], everything)
    return {
        f"{rows} x {columns}": planned(_case, rows, columns, _long_launches, Bars(copy=0.85))
        for rows, columns in shapes
    }
