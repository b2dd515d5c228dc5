"""The layer norm of the example is a function that torch's autograd can use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tilewright.tools.load import import_script

EXAMPLE = import_script(Path(__file__).parents[2] / "examples" / "layer_norm.py")


def _inputs(shape: tuple[int, ...], dtype: torch.dtype) -> list[Any]:
    make = torch.Generator().manual_seed(3)
    x = torch.randn(shape, generator=make)
    weight, bias = (torch.rand(shape[-1], generator=make) for _ in range(2))
    return [t.to(dtype).requires_grad_() for t in (x, weight, bias)]


@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (2, 3, 64), (130, 100)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_value_and_gradients_are_those_of_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    ours, theirs = _inputs(shape, dtype), _inputs(shape, torch.float32)
    with torch.no_grad():
        for a, b in zip(ours, theirs, strict=True):
            b.copy_(a)  # rounded alike
    y = EXAMPLE.LayerNorm.apply(*ours, 1e-5)
    x, weight, bias = theirs
    expected = torch.nn.functional.layer_norm(x, shape[-1:], weight, bias, 1e-5)
    assert y.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 4e-2
    torch.testing.assert_close(y.float(), expected, rtol=tolerance, atol=tolerance)
    dy = torch.linspace(-1, 1, y.numel()).view(y.shape).to(dtype)
    y.backward(dy)
    expected.backward(dy.float())
    for a, b in zip(ours, theirs, strict=True):
        scale = float(b.grad.abs().max().clamp(min=1))
        torch.testing.assert_close(a.grad.float(), b.grad, rtol=0, atol=10 * tolerance * scale)
