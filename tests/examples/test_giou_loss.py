"""The GIoU loss of the example equals the one in plain torch, for any type of the boxes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tilewright as tw
from tilewright.tools.load import import_script

EXAMPLE = import_script(Path(__file__).parents[2] / "examples" / "giou_loss.py")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("samples", "boxes"), [(1, 1), (7, 16), (33, 100)])
def test_loss_equals_the_eager_one(samples: int, boxes: int, dtype: torch.dtype) -> None:
    predicted, target = EXAMPLE.random_boxes(samples, boxes, dtype, seed=samples)
    ours, eager = EXAMPLE.giou_loss(predicted, target), EXAMPLE.eager_giou_loss(predicted, target)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, eager, rtol=0, atol=1e-5)


@pytest.mark.parametrize("predicted_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("target_dtype", DTYPES, ids=str)
def test_types_of_both_sides_may_differ(
    predicted_dtype: torch.dtype, target_dtype: torch.dtype
) -> None:
    predicted, target = EXAMPLE.random_boxes(5, 9, torch.float32)
    predicted, target = predicted.to(predicted_dtype), target.to(target_dtype)
    ours, eager = EXAMPLE.giou_loss(predicted, target), EXAMPLE.eager_giou_loss(predicted, target)
    torch.testing.assert_close(ours, eager, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_value_and_validity_of_each_box(dtype: torch.dtype) -> None:
    predicted, target = EXAMPLE.random_boxes(20, 13, dtype)
    out = torch.full((20, 13), 123.0)
    valid = torch.ones((20, 13), dtype=torch.bool)
    EXAMPLE.giou(predicted, target, out, valid)
    value, is_box = EXAMPLE.eager_giou(predicted, target)
    assert torch.equal(valid, is_box)
    torch.testing.assert_close(out[is_box], value[is_box], rtol=0, atol=1e-5)
    assert bool((out[~is_box] == 123.0).all()), "padding must be left as it was"


def test_known_boxes() -> None:
    """Equal boxes have 1; halves of a square 0; squares apart what the empty space takes."""
    target = torch.tensor([[[0.0, 0, 4, 4], [0, 0, 4, 2], [0, 0, 1, 1], [0, 0, 0, 0]]])
    predicted = torch.tensor([[[0.0, 0, 4, 4], [0, 2, 4, 4], [2, 0, 3, 1], [0, 0, 1, 1]]])
    out, valid = torch.zeros((1, 4)), torch.empty((1, 4), dtype=torch.bool)
    EXAMPLE.giou(predicted, target, out, valid)
    assert valid.tolist() == [[True, True, True, False]]
    expected = torch.tensor([[1.0, 0.0, -1 / 3, 0.0]])
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-4)


def test_batch_of_padding_has_no_loss() -> None:
    nothing = torch.zeros((3, 8, 4))
    assert EXAMPLE.giou_loss(nothing, nothing).item() == 0


def test_boxes_that_are_not_contiguous() -> None:
    predicted, target = EXAMPLE.random_boxes(6, 10, torch.float32)
    ours = EXAMPLE.giou_loss(predicted[::2], target[::2])
    torch.testing.assert_close(ours, EXAMPLE.eager_giou_loss(predicted[::2], target[::2]))


@pytest.mark.parametrize(("samples", "boxes"), [(1, 1), (7, 16), (33, 100)])
def test_the_derived_gradient_is_that_of_eager_torch(samples: int, boxes: int) -> None:
    """Eight fields of two arrays, each stored once, without atomics; padding has none."""
    predicted, target = EXAMPLE.random_boxes(samples, boxes, torch.float32, seed=samples)
    out, valid = torch.zeros(samples, boxes), torch.zeros(samples, boxes, dtype=torch.bool)
    weights = torch.randn(samples, boxes)
    gradients = [torch.full_like(predicted, torch.nan), torch.full_like(target, torch.nan)]
    backward = tw.grad(EXAMPLE.giou_kernel, deterministic=True)
    args = predicted, target, out, valid, boxes, EXAMPLE.EPSILON
    backward[(samples,)](
        *args, BLOCK=tw.next_power_of_2(boxes), grads={"giou_ptr": weights},
        into={"predicted_ptr": gradients[0], "target_ptr": gradients[1]},
    )  # fmt: skip
    leaves = predicted.requires_grad_(), target.requires_grad_()
    value, is_box = EXAMPLE.eager_giou(*leaves)
    expected = torch.autograd.grad((value * weights)[is_box].sum(), leaves, allow_unused=True)
    for found, reference in zip(gradients, expected, strict=True):
        reference = torch.where(is_box[..., None], reference, 0.0)
        torch.testing.assert_close(found, reference, rtol=1e-4, atol=1e-5)
