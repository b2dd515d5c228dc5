"""Tensors of the microscaling formats: conversion of numbers, and lossless packing."""

import numpy as np
import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.tools.mxfp import E2M1, MXFP4Tensor, MXScaleTensor


def _fp4(*numbers: float) -> list[float]:
    return MXFP4Tensor(data=torch.tensor(numbers)).to(torch.float32).tolist()


def test_all_fp4_numbers_are_themselves() -> None:
    numbers = [*E2M1, *(-x for x in E2M1)]
    tensor = MXFP4Tensor(data=torch.tensor(numbers))
    assert tensor.data.tolist() == list(range(16))
    assert tensor.to(torch.float32).tolist() == numbers


def test_fp4_rounds_to_the_nearest_with_ties_to_even_codes() -> None:
    assert _fp4(0.2, 0.3, 0.7, 1.2, 2.4, 2.6, 4.9, 5.1) == [0, 0.5, 0.5, 1, 2, 3, 4, 6]
    assert _fp4(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5) == [0, 1, 1, 2, 2, 4, 4]
    assert _fp4(-0.75, -1000, torch.inf) == [-1, -6, 6]


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", [(4, 6), (5, 7)])
def test_packing_keeps_the_codes(shape: tuple[int, int], dim: int) -> None:
    tensor = MXFP4Tensor(size=shape, device="cpu").random()
    assert 0 <= tensor.data.min() <= tensor.data.max() < 16
    packed = tensor.to_packed_tensor(dim)
    assert packed.shape[dim] == (shape[dim] + 1) // 2
    assert (
        packed.flatten()[0] == tensor.data[0, 0] + 16 * tensor.data[(1, 0) if dim == 0 else (0, 1)]
    )
    assert torch.equal(tensor.unpack_packed_tensor(packed, dim, shape), tensor.data)


def test_scales_are_rounded_down_to_powers_of_two() -> None:
    numbers = torch.tensor([1.0, 1.9, 2.0, 0.3, 2.0**-149, 3e38])
    found = MXScaleTensor(data=numbers).to(torch.float32)
    assert found.tolist() == [1, 1, 2, 0.25, 2.0**-127, 2.0**127]
    wrong = torch.tensor([0.0, -1.0, torch.inf, torch.nan])
    assert MXScaleTensor(data=wrong).to(torch.float32).isnan().all()


def test_random_scales_are_within_their_bounds() -> None:
    found = MXScaleTensor(size=(1000,)).random(low=0.25, high=8.0).to(torch.float32)
    assert set(found.tolist()) == {0.25, 0.5, 1, 2, 4, 8}
    assert MXScaleTensor(size=(1000,)).random().to(torch.float32).isfinite().all()
    within = MXScaleTensor(size=(1000,)).random(low=0.3, high=3.0).to(torch.float32)
    assert set(within.tolist()) == {0.5, 1, 2}
    assert MXScaleTensor(size=(9,)).random(0, torch.inf).data.max() < 255


@pytest.mark.parametrize(("low", "high"), [(8.0, 2.0), (3.0, 3.5), (1.0, 0.0), (1.0, -1.0)])
def test_bounds_without_a_scale_are_rejected(low: float, high: float) -> None:
    with pytest.raises(ValueError, match=rf"no power of two from {low} to {high}"):
        MXScaleTensor(size=(1,)).random(low, high)


def test_wrong_usage_is_rejected() -> None:
    with pytest.raises(ValueError, match="pass data, a tensor to round, or size"):
        MXFP4Tensor()
    with pytest.raises(TypeError, match=r"real numbers, not torch\.complex64"):
        MXFP4Tensor(data=torch.tensor([1j]))
    with pytest.raises(TypeError, match=r"real numbers, not \[1\.0\]"):
        MXFP4Tensor(data=[1.0])
    with pytest.raises(ValueError, match=r"torch\.float32, not torch\.float16"):
        MXFP4Tensor(size=(1,)).to(torch.float16)


def test_a_kernel_reads_the_packed_format() -> None:
    """`tl.dot_scaled` of packed codes and scales is the product of the numbers."""

    @tw.jit
    def product_kernel(a, a_scale, b, out, K: tl.constexpr):
        m, n, k = tl.arange(0, 16), tl.arange(0, 16), tl.arange(0, K)
        half, block = tl.arange(0, K // 2), tl.arange(0, K // 32)
        x = tl.load(a + m[:, None] * (K // 2) + half[None, :])
        scale = tl.load(a_scale + m[:, None] * (K // 32) + block[None, :])
        y = tl.load(b + k[:, None] * 16 + n[None, :])
        found = tl.dot_scaled(x, scale, "e2m1", y, None, "bf16")
        tl.store(out + m[:, None] * 16 + n[None, :], found)

    torch.manual_seed(0)
    a = MXFP4Tensor(size=(16, 64)).random()
    scale = MXScaleTensor(size=(16, 2)).random(0.5, 4.0)
    b = torch.randn(64, 16).bfloat16()
    out = torch.empty(16, 16)
    product_kernel[(1,)](a.to_packed_tensor(1), scale.data, b, out, K=64)
    scaled = a.to(torch.float32) * scale.to(torch.float32).repeat_interleave(32, 1)
    np.testing.assert_allclose(out, scaled @ b.float(), rtol=1e-4, atol=1e-3)
