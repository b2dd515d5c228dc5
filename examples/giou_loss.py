"""Generalised-IoU loss of padded batches of boxes, for torch. python examples/giou_loss.py

Detectors compare predicted boxes with target boxes. Samples have different numbers of boxes, so
batches are padded with boxes of zeros; a box (left, top, right, bottom) is padding unless its
bottom is positive. With I the area of the intersection, U that of the union, and C that of the
smallest enclosing box (Rezatofighi et al., "Generalized intersection over union", 2019):

    GIoU = I / (U + ε) - (C - U) / (C + ε),        loss = mean of 1 - GIoU over the valid boxes

Eager torch makes about twenty passes over memory for this; the kernel makes one. A program
processes the boxes of one sample, and loads their coordinates with a stride of four elements. It
computes in fp32; predictions and targets may have different types. A second kernel computes the
sums for the mean.

The gradient is not written: `tw.autograd_function` derives it from the kernel. At the end,
predictions are trained for 50 steps, on a GPU if there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from report import QUICK, check, compare_speed, require_torch

import tilewright as tw
import tilewright.language as tl

torch = require_torch("the loss")

EPSILON = 1e-5
SHARE = 4096
"""Boxes per program of the second kernel."""


@tw.jit
def load_boxes(box_ptr, inside):
    """Left, top, right and bottom of a tile of boxes, in fp32; zeros where masked."""
    left = tl.load(box_ptr, mask=inside, other=0.0).to(tl.float32)
    top = tl.load(box_ptr + 1, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(box_ptr + 2, mask=inside, other=0.0).to(tl.float32)
    bottom = tl.load(box_ptr + 3, mask=inside, other=0.0).to(tl.float32)
    return left, top, right, bottom


@tw.jit
def giou_kernel(
    predicted_ptr,
    target_ptr,
    giou_ptr,
    valid_ptr,
    boxes,
    EPSILON: tl.constexpr,
    BLOCK: tl.constexpr,
):
    box = tl.arange(0, BLOCK)
    inside = box < boxes
    place = tl.program_id(0).to(tl.int64) * boxes + box
    p_left, p_top, p_right, p_bottom = load_boxes(predicted_ptr + place * 4, inside)
    t_left, t_top, t_right, t_bottom = load_boxes(target_ptr + place * 4, inside)

    predicted_area = (p_right - p_left) * (p_bottom - p_top)
    target_area = (t_right - t_left) * (t_bottom - t_top)
    width = tl.minimum(p_right, t_right) - tl.maximum(p_left, t_left)
    height = tl.minimum(p_bottom, t_bottom) - tl.maximum(p_top, t_top)
    intersection = tl.maximum(width, 0.0) * tl.maximum(height, 0.0)
    union = predicted_area + target_area - intersection
    around_width = tl.maximum(p_right, t_right) - tl.minimum(p_left, t_left)
    around_height = tl.maximum(p_bottom, t_bottom) - tl.minimum(p_top, t_top)
    around = around_width * around_height
    giou = intersection / (union + EPSILON) - (around - union) / (around + EPSILON)

    valid = inside & (t_bottom > 0)
    tl.store(giou_ptr + place, giou, mask=valid)
    tl.store(valid_ptr + place, valid, mask=inside)


@tw.jit
def sum_kernel(giou_ptr, valid_ptr, loss_ptr, count_ptr, n, SHARE: tl.constexpr):
    """Sum of 1 - GIoU and number of boxes over SHARE boxes, without the padding."""
    share = tl.program_id(0)
    box = share * SHARE + tl.arange(0, SHARE)
    valid = tl.load(valid_ptr + box, mask=box < n, other=0)
    # The GIoU of padding was not stored: the memory is uninitialised and may contain NaN.
    loss = tl.where(valid, 1 - tl.load(giou_ptr + box, mask=box < n, other=0.0), 0.0)
    tl.store(loss_ptr + share, tl.sum(loss, axis=0))
    tl.store(count_ptr + share, tl.sum(valid.to(tl.float32), axis=0))


__tilewright_signatures__ = {
    "giou_kernel": (
        "predicted_ptr=*fp32:16, target_ptr=*fp32:16, giou_ptr=*fp32:16, valid_ptr=*i1:16, "
        "boxes=i32",
        {"EPSILON": EPSILON, "BLOCK": 16},
    ),
    "sum_kernel": (
        "giou_ptr=*fp32:16, valid_ptr=*i1:16, loss_ptr=*fp32:16, count_ptr=*fp32:16, n=i32",
        {"SHARE": SHARE},
    ),
}


def giou(predicted: Any, target: Any, out: Any, valid: Any) -> None:
    """Store the GIoU of boxes whose target is not padding to `out`, and that condition to `valid`.

    Args:
        predicted, target: contiguous tensors of shape (samples, boxes, 4), fp32, fp16 or bf16.
        out: fp32 of shape (samples, boxes); unchanged where the target is padding.
        valid: bool of the same shape.
    """
    samples, boxes, _ = target.shape
    block = tw.next_power_of_2(boxes)
    giou_kernel[(samples,)](predicted, target, out, valid, boxes, EPSILON, BLOCK=block)


def giou_loss(predicted: Any, target: Any) -> Any:
    """Mean of 1 - GIoU over the boxes that are not padding, 0 if there are none; an fp32 scalar."""
    out = torch.empty(target.shape[:2], dtype=torch.float32)
    valid = torch.empty(target.shape[:2], dtype=torch.bool)
    giou(predicted.contiguous(), target.contiguous(), out, valid)
    # torch's sums over all boxes would use its thread pool, whose threads spin for milliseconds
    # afterwards and would compete with the next kernel for the cores.
    shares = tw.cdiv(out.numel(), SHARE)
    loss, count = torch.empty(shares), torch.empty(shares)
    sum_kernel[(shares,)](out, valid, loss, count, out.numel(), SHARE=SHARE)
    return loss.sum() / count.sum().clamp(min=1)


differentiable_giou = tw.autograd_function(
    giou_kernel,
    grid=lambda a: (a["target_ptr"].shape[0],),
    outputs={
        "giou_ptr": lambda a: a["target_ptr"].new_empty(
            a["target_ptr"].shape[:2], dtype=torch.float32
        ),
        "valid_ptr": lambda a: a["target_ptr"].new_empty(
            a["target_ptr"].shape[:2], dtype=torch.bool
        ),
    },
)


def trainable_giou_loss(predicted: Any, target: Any) -> Any:
    """`giou_loss` with a gradient, on any device."""
    boxes = target.shape[1]
    block = tw.next_power_of_2(boxes)
    value, valid = differentiable_giou(predicted, target, boxes, EPSILON=EPSILON, BLOCK=block)
    # The value of padding was not stored.
    return torch.where(valid, 1 - value, 0.0).sum() / valid.sum().clamp(min=1)


def trained(loss_of: Callable[[Any, Any], Any], predicted: Any, target: Any) -> list[float]:
    """The losses of the predictions in 50 steps of gradient descent."""
    predicted = predicted.clone().requires_grad_()
    optimizer = torch.optim.Adam([predicted], lr=2e-3)
    losses: list[float] = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = loss_of(predicted, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def eager_giou(predicted: Any, target: Any) -> tuple[Any, Any]:
    """`giou` in plain torch: the values of all boxes, and a mask of those that are not padding."""
    p, t = predicted.float(), target.float()
    predicted_area = (p[..., 2] - p[..., 0]) * (p[..., 3] - p[..., 1])
    target_area = (t[..., 2] - t[..., 0]) * (t[..., 3] - t[..., 1])
    overlap = torch.minimum(p[..., 2:], t[..., 2:]) - torch.maximum(p[..., :2], t[..., :2])
    intersection = overlap.clamp(min=0).prod(-1)
    union = predicted_area + target_area - intersection
    around = torch.maximum(p[..., 2:], t[..., 2:]) - torch.minimum(p[..., :2], t[..., :2])
    around = around.prod(-1)
    value = intersection / (union + EPSILON) - (around - union) / (around + EPSILON)
    return value, t[..., 3] > 0


def eager_giou_loss(predicted: Any, target: Any) -> Any:
    """`giou_loss` in plain torch."""
    value, valid = eager_giou(predicted, target)
    count = valid.sum()
    return torch.where(valid, 1 - value, 0.0).sum() / count.clamp(min=1)


def random_boxes(samples: int, boxes: int, dtype: Any, seed: int = 0) -> tuple[Any, Any]:
    """Predictions and targets in the unit square, with a random number of boxes per sample."""
    make = torch.Generator().manual_seed(seed)
    target = torch.rand((samples, boxes, 4), generator=make)
    target[..., 2:] = target[..., :2] + 0.01 + 0.5 * target[..., 2:]
    predicted = target + 0.05 * torch.randn(target.shape, generator=make)
    predicted[..., 2:] = torch.maximum(predicted[..., 2:], predicted[..., :2] + 0.01)
    count = torch.randint(0, boxes + 1, (samples, 1), generator=make)
    target[torch.arange(boxes) >= count] = 0
    return predicted.to(dtype), target.to(dtype)


def main() -> None:
    samples, boxes = (50, 13) if QUICK else (65536, 16)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        predicted, target = random_boxes(samples, boxes, dtype)
        out = torch.full((samples, boxes), np.nan)
        valid = torch.empty((samples, boxes), dtype=torch.bool)
        giou(predicted, target, out, valid)
        value, is_box = eager_giou(predicted, target)
        name = str(dtype).removeprefix("torch.")
        check(f"GIoU of {samples}x{boxes} {name} boxes", out[is_box], value[is_box], 1e-5)
        check("mask of valid boxes", valid, is_box, 0)
        untouched = torch.isnan(out[~is_box])
        check("padding is unchanged", untouched, torch.ones_like(untouched), 0)
        losses = giou_loss(predicted, target), eager_giou_loss(predicted, target)
        check("loss", *losses, 1e-5)
        compare_speed(
            {
                "tilewright": lambda p=predicted, t=target: giou_loss(p, t),
                "eager torch": lambda p=predicted, t=target: eager_giou_loss(p, t),
            }
        )
    train()


def train() -> None:
    """Train predictions with the derived gradient, and with that of eager torch."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    samples, boxes = (10, 13) if QUICK else (4096, 16)
    predicted, target = (t.to(device) for t in random_boxes(samples, boxes, torch.float32))
    ours = trained(trainable_giou_loss, predicted, target)
    eager = trained(eager_giou_loss, predicted, target)
    print(f"50 steps of training on {device}: loss {ours[0]:.4f} to {ours[-1]:.4f}")
    check("losses", ours, eager, 1e-3)
    if not ours[-1] < ours[0] / 2:
        raise SystemExit("the loss has not halved: WRONG")


if __name__ == "__main__":
    main()
