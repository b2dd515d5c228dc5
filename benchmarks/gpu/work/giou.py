"""GIoU of many pairs of boxes, and the loss computed from it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import tilewright as tw
from benchmarks.gpu.case import Case, Run, Setting
from benchmarks.gpu.measure import Planned, planned
from benchmarks.gpu.results import Bars

EPSILON = 1e-5
SAMPLES, BOXES = 65536, 256
CONFIGS = ((256, 4), (512, 4), (1024, 4))
"""Boxes and warps of a program."""

PARTS = 1056  # programs that sum up parts of the loss: eight for each processor of an H200
TOLERANCE = 1e-5


def _boxes(setting: Setting, pairs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictions near their targets in the unit square; every fourth pair is padding."""
    target = torch.rand((pairs, 4), device=setting.device)
    target[:, 2:] = target[:, :2] + 0.01 + 0.5 * target[:, 2:]
    predicted = target + 0.05 * setting.randn(pairs, 4)
    predicted[:, 2:] = torch.maximum(predicted[:, 2:], predicted[:, :2] + 0.01)
    target[::4] = 0
    return predicted, target


def _eager(predicted: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """GIoU, 0 for padding, and which pairs are none, in plain torch."""
    p_left, p_top, p_right, p_bottom = predicted.unbind(-1)
    t_left, t_top, t_right, t_bottom = target.unbind(-1)
    width = torch.minimum(p_right, t_right) - torch.maximum(p_left, t_left)
    height = torch.minimum(p_bottom, t_bottom) - torch.maximum(p_top, t_top)
    common = width.clamp(min=0) * height.clamp(min=0)
    p_area = (p_right - p_left) * (p_bottom - p_top)
    t_area = (t_right - t_left) * (t_bottom - t_top)
    union = p_area + t_area - common
    around = (torch.maximum(p_right, t_right) - torch.minimum(p_left, t_left)) * (
        torch.maximum(p_bottom, t_bottom) - torch.minimum(p_top, t_top)
    )
    giou = common / (union + EPSILON) - (around - union) / (around + EPSILON)
    valid = t_bottom > 0
    return torch.where(valid, giou, 0.0), valid


def _eager_loss(predicted: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    giou, valid = _eager(predicted, target)
    return torch.where(valid, 1 - giou, 0.0).sum() / valid.sum().clamp(min=1)


def _library(function: Any, setting: Setting, *boxes: torch.Tensor) -> dict[str, Run]:
    """Eager and compiled; compiling takes too long for a first look."""
    ways: dict[str, Run] = {"eager": partial(function, *boxes)}
    if setting.scale == "full":
        ways["torch.compile"] = partial(torch.compile(function), *boxes)
    return ways


def _values(setting: Setting, pairs: int) -> Case:
    predicted, target = _boxes(setting, pairs)
    giou, valid = setting.empty(pairs), setting.empty(pairs, dtype=torch.bool)

    def launches(kernels: Any) -> dict[str, Run]:
        return {
            f"{block} boxes, {warps} warps": partial(
                kernels.giou_kernel[(tw.cdiv(pairs, block),)],
                predicted, target, giou, valid, pairs,
                EPSILON=EPSILON, BLOCK=block, num_warps=warps,
            )
            for block, warps in CONFIGS
        }  # fmt: skip

    return Case(
        kernels="giou",
        launches=launches,
        outputs=[giou, valid],
        expected=lambda: _eager(predicted.double(), target.double()),
        tolerance=TOLERANCE,
        bytes=(16 + 16 + 4 + 1) * pairs,
        bars=Bars(triton=1.0),
        library=_library(_eager, setting, predicted, target),
    )


def _loss(setting: Setting, pairs: int) -> Case:
    predicted, target = _boxes(setting, pairs)
    parts, loss = [setting.empty(PARTS) for _ in range(2)], setting.empty(1)

    def run(kernels: Any, block: int, warps: int) -> None:
        kernels.partial_loss_kernel[(PARTS,)](
            predicted, target, *parts, pairs, EPSILON=EPSILON, BLOCK=block, num_warps=warps
        )
        kernels.mean_loss_kernel[(1,)](*parts, loss, PARTS, PARTS=tw.next_power_of_2(PARTS))

    return Case(
        kernels="giou",
        launches=lambda kernels: {
            f"{block} boxes, {warps} warps": partial(run, kernels, block, warps)
            for block, warps in CONFIGS
        },
        outputs=[loss],
        expected=lambda: [_eager_loss(predicted.double(), target.double()).view(1)],
        tolerance=TOLERANCE,
        bytes=(16 + 16) * pairs,
        bars=Bars(triton=1.0, torch=5.0 if setting.scale == "full" else None),
        library=_library(_eager_loss, setting, predicted, target),
    )


def plan(setting: Setting) -> dict[str, Planned]:
    samples, boxes = setting.pick((50, 13), (SAMPLES, BOXES), (SAMPLES, BOXES))
    name = f"{samples} x {boxes} boxes"
    pairs = samples * boxes
    return {
        f"values, {name}": planned(_values, pairs),
        f"loss with its sums, {name}": planned(_loss, pairs),
    }
