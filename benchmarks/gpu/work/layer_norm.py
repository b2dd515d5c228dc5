"""Layer normalisation of fp16 rows, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import tilewright as tw
from benchmarks.gpu.case import Case, Run, Setting
from benchmarks.gpu.measure import Planned, planned
from benchmarks.gpu.results import Bars

EPSILON = 1e-5
ROWS = 8192
COLUMNS = (1024, 2048, 4096, 8192)
PROGRAMS = 528  # of the backward kernel: four for each processor of an H200
PARTS, PART_COLUMNS = 64, 32  # the tile in which their sums are added up

TOLERANCE = 2e-3  # results are fp16, of 11 bits
GRADIENT_TOLERANCE = 4e-3


@dataclass(frozen=True)
class Inputs:
    """A matrix, the gradient of its normal form, and the parameters, one of each a column."""

    x: torch.Tensor
    dy: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor


def _inputs(setting: Setting, rows: int, columns: int) -> Inputs:
    x, dy = (setting.randn(rows, columns, dtype=torch.float16) for _ in range(2))
    weight, bias = (setting.randn(columns, dtype=torch.float16) for _ in range(2))
    return Inputs(x, dy, weight, bias)


def _warps(columns: int) -> list[int]:
    fewest = max(1, min(8, columns // 1024))
    return [fewest, 2 * fewest, 4 * fewest] if fewest < 8 else [8, 16]


def _forward(setting: Setting, rows: int, columns: int) -> Case:
    given = _inputs(setting, rows, columns)
    y = torch.empty_like(given.x)
    mean, rstd = setting.empty(rows), setting.empty(rows)

    def launches(kernels: Any) -> dict[str, Run]:
        launch = partial(
            kernels.forward_kernel[(rows,)],
            given.x, y, given.weight, given.bias, mean, rstd, columns, columns, EPSILON,
            BLOCK=tw.next_power_of_2(columns),
        )  # fmt: skip
        return {f"{w} warps": partial(launch, num_warps=w) for w in _warps(columns)}

    def expected() -> list[torch.Tensor]:
        x = given.x.double()
        m, r = _moments(x)
        return [(x - m) * r * given.weight + given.bias, m[:, 0], r[:, 0]]

    library = partial(
        torch.native_layer_norm, given.x, [columns], given.weight, given.bias, EPSILON
    )
    return Case(
        kernels="layer_norm",
        launches=launches,
        outputs=[y, mean, rstd],
        expected=expected,
        tolerance=TOLERANCE,
        bytes=2 * 2 * rows * columns,
        bars=Bars(triton=1.0, torch=1.0),
        library={"native_layer_norm": library},
    )


def _moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and 1 / sqrt(variance + epsilon) of each row, as columns."""
    mean = x.mean(1, keepdim=True)
    return mean, ((x - mean).square().mean(1, keepdim=True) + EPSILON).rsqrt()


def forward(setting: Setting) -> dict[str, Planned]:
    return _plan(setting, _forward)


def _gradients(given: Inputs) -> list[torch.Tensor]:
    """dx, dw and db in fp64."""
    x, dy = given.x.double(), given.dy.double()
    mean, rstd = _moments(x)
    normal, g = (x - mean) * rstd, dy * given.weight
    along = (g * normal).mean(1, keepdim=True)
    dx = rstd * (g - g.mean(1, keepdim=True) - normal * along)
    return [dx, (dy * normal).sum(0), dy.sum(0)]


def _backward(setting: Setting, rows: int, columns: int) -> Case:
    given = _inputs(setting, rows, columns)
    mean, rstd = (t.float() for t in _moments(given.x.double()))
    programs = min(PROGRAMS, rows // 3)
    parts = [setting.empty(programs, columns) for _ in range(2)]
    dx = torch.empty_like(given.x)
    dw, db = torch.empty_like(given.weight), torch.empty_like(given.bias)

    def launches(kernels: Any) -> dict[str, Run]:
        return {
            f"{warps} warps": partial(
                _launch_backward, kernels, given, mean, rstd, parts, [dx, dw, db], warps
            )
            for warps in _warps(columns)
        }

    library = partial(
        torch.ops.aten.native_layer_norm_backward,
        given.dy, given.x, [columns], mean, rstd, given.weight, given.bias, [True] * 3,
    )  # fmt: skip
    return Case(
        kernels="layer_norm",
        launches=launches,
        outputs=[dx, dw, db],
        expected=lambda: _gradients(given),
        tolerance=GRADIENT_TOLERANCE,
        bytes=3 * 2 * rows * columns,
        bars=Bars(triton=1.0),
        library={"native_layer_norm_backward": library},
    )


def _launch_backward(
    kernels: Any,
    given: Inputs,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    parts: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    warps: int,
) -> None:
    (rows, columns), (dx, dw, db) = given.x.shape, gradients
    programs = len(parts[0])
    kernels.backward_kernel[(programs,)](
        given.x, given.dy, dx, given.weight, mean, rstd, *parts, columns, rows, columns,
        BLOCK=tw.next_power_of_2(columns), num_warps=warps,
    )  # fmt: skip
    kernels.sum_parts_kernel[(tw.cdiv(columns, PART_COLUMNS),)](
        *parts, dw, db, programs, columns, PARTS=PARTS, BLOCK=PART_COLUMNS
    )


def backward(setting: Setting) -> dict[str, Planned]:
    return _plan(setting, _backward)


def _plan(setting: Setting, make: Any) -> dict[str, Planned]:
    rows = setting.pick(50, ROWS, ROWS)
    widths = setting.pick((128, 300), (1024, 8192), COLUMNS)
    return {f"{rows} x {columns}": planned(make, rows, columns) for columns in widths}
