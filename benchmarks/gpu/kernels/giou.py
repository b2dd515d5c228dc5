"""Generalised intersection over union of pairs of boxes, and the loss computed from it.

A box is (left, top, right, bottom) in fp32; it is padding unless the target's bottom is positive.
With I the area of the intersection, U that of the union and C that of the smallest box around both,
GIoU = I / U - (C - U) / C, and the loss is the mean of 1 - GIoU over all pairs but padding.
"""

from __future__ import annotations

import tilewright as triton
import tilewright.language as tl


@triton.jit
def giou_of(predicted_ptr, target_ptr, box, inside, EPSILON: tl.constexpr):
    """GIoU of a tile of pairs, and the mask of those that are not padding."""
    p, t = predicted_ptr + box * 4, target_ptr + box * 4
    p_left = tl.load(p, mask=inside, other=0.0)
    p_top = tl.load(p + 1, mask=inside, other=0.0)
    p_right = tl.load(p + 2, mask=inside, other=0.0)
    p_bottom = tl.load(p + 3, mask=inside, other=0.0)
    t_left = tl.load(t, mask=inside, other=0.0)
    t_top = tl.load(t + 1, mask=inside, other=0.0)
    t_right = tl.load(t + 2, mask=inside, other=0.0)
    t_bottom = tl.load(t + 3, mask=inside, other=0.0)

    width = tl.minimum(p_right, t_right) - tl.maximum(p_left, t_left)
    height = tl.minimum(p_bottom, t_bottom) - tl.maximum(p_top, t_top)
    common = tl.maximum(width, 0.0) * tl.maximum(height, 0.0)
    p_area = (p_right - p_left) * (p_bottom - p_top)
    t_area = (t_right - t_left) * (t_bottom - t_top)
    union = p_area + t_area - common
    around = (tl.maximum(p_right, t_right) - tl.minimum(p_left, t_left)) * (
        tl.maximum(p_bottom, t_bottom) - tl.minimum(p_top, t_top)
    )
    giou = common / (union + EPSILON) - (around - union) / (around + EPSILON)
    return giou, inside & (t_bottom > 0)


@triton.jit
def giou_kernel(
    predicted_ptr, target_ptr, giou_ptr, valid_ptr, boxes,
    EPSILON: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """GIoU of each pair, 0 for padding, and a byte that is 0 for padding, else 1."""
    box = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = box < boxes
    giou, valid = giou_of(predicted_ptr, target_ptr, box.to(tl.int64), inside, EPSILON)
    tl.store(giou_ptr + box, tl.where(valid, giou, 0.0), mask=inside)
    tl.store(valid_ptr + box, valid, mask=inside)


@triton.jit
def partial_loss_kernel(
    predicted_ptr, target_ptr, loss_ptr, count_ptr, boxes,
    EPSILON: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of 1 - GIoU and the number of boxes, over every (number of programs)-th tile."""
    loss = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(tl.program_id(0) * BLOCK, boxes, tl.num_programs(0) * BLOCK):
        box = start + tl.arange(0, BLOCK)
        giou, valid = giou_of(predicted_ptr, target_ptr, box.to(tl.int64), box < boxes, EPSILON)
        loss += tl.where(valid, 1 - giou, 0.0)
        count += valid.to(tl.float32)
    tl.store(loss_ptr + tl.program_id(0), tl.sum(loss, axis=0))
    tl.store(count_ptr + tl.program_id(0), tl.sum(count, axis=0))


@triton.jit
def mean_loss_kernel(loss_ptr, count_ptr, mean_ptr, parts, PARTS: tl.constexpr):
    """The loss from its parts, in one program."""
    part = tl.arange(0, PARTS)
    loss = tl.sum(tl.load(loss_ptr + part, mask=part < parts, other=0.0), axis=0)
    count = tl.sum(tl.load(count_ptr + part, mask=part < parts, other=0.0), axis=0)
    tl.store(mean_ptr, loss / tl.maximum(count, 1.0))
