"""Launches of kernels as steps of a torch program, with derived gradients."""

from __future__ import annotations

import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from benchmarks.liger.derived import differentiated


@tw.jit
def _scaled(x_ptr, y_ptr, s_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x * x * tl.load(s_ptr), mask=at < n)


@tw.jit
def _doubled(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


@tw.jit
def _squared(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, x * x, mask=at < n)


_tuned = tw.autotune([tw.Config({"BLOCK": 4})], key=["n"])(_scaled)


def test_gradients_flow_through_launches_and_torch() -> None:
    """An input that is the result as well, by another name, counts as it was before."""
    x, s = (torch.randn(n, requires_grad=True) for n in (9, 1))
    log: dict[str, str] = {}
    with differentiated(log):
        y = torch.empty(9)
        _scaled[(3,)](x, y, s, 9, BLOCK=4)
        z = y.sin()
        _tuned[(3,)](z, z, s, 9)
        _doubled[(3,)](z, 9, BLOCK=4)
        found = torch.autograd.grad((z * z).sum(), (x, s))
    expected = torch.autograd.grad((2 * (x * x * s).sin() ** 2 * s).square().sum(), (x, s))
    torch.testing.assert_close(found, expected)
    assert log == {"_scaled": "derived", "_doubled": "derived"}


def test_a_kernel_without_a_gradient_is_reported() -> None:
    x = torch.randn(9, requires_grad=True)
    log: dict[str, str] = {}
    with differentiated(log):
        y = x * 1
        _squared[(3,)](y, 9, BLOCK=4)
        with pytest.raises(tw.CompilationError):
            y.sum().backward()
    assert log["_squared"].startswith("CompilationError: x_ptr is loaded here and stored at line")
