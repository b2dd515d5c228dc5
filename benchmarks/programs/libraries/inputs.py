"""Inputs of the calls of libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

Call: TypeAlias = Callable[[], Callable[[], Any]]
"""Creates inputs, and returns the function that is timed."""

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


class Calls(dict[str, Call]):
    """The calls of a file, by name."""

    def call(self, name: str) -> Callable[[Call], Call]:
        """A decorator that adds a function."""

        def add(function: Call) -> Call:
            self[name] = function
            return function

        return add


def randn(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Normally distributed numbers on the GPU."""
    return torch.randn(shape, device="cuda", dtype=FP32).to(dtype)


def rand(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Uniformly distributed numbers from 0 to 1 on the GPU."""
    return torch.rand(shape, device="cuda", dtype=FP32).to(dtype)


def unit(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Random vectors along the last axis, of length 1."""
    return torch.nn.functional.normalize(randn(*shape, dtype=FP32), dim=-1).to(dtype)


def decays(*shape: int, least: float = -0.1) -> torch.Tensor:
    """Logarithms of decays, in fp32, from `least` to 0."""
    return least * rand(*shape, dtype=FP32)


def integers(most: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Random integers from 0 to `most`, which is excluded."""
    return torch.randint(most, shape, device="cuda", dtype=torch.int64).to(dtype)


def empty_like(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor for results, of zeros: elements that a kernel leaves are compared, too."""
    return torch.zeros_like(x, dtype=dtype or x.dtype)


def first(result: Any) -> torch.Tensor:
    """The first tensor of a result."""
    return result if isinstance(result, torch.Tensor) else first(result[0])


def with_gradients(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor]
) -> Callable[[], list[torch.Tensor]]:
    """A function that computes the first result, and the gradients of the inputs that are of
    floating point, with respect to a random one of the result.

    Args:
        function: takes the inputs.
        inputs: tensors.
    """
    leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    wanted = [x for x in leaves if x.requires_grad]
    seed = list[torch.Tensor]()

    def run() -> list[torch.Tensor]:
        y = first(function(*leaves))
        if not seed:
            seed.append(torch.randn_like(y))
        return [y, *torch.autograd.grad(y, wanted, seed[0], allow_unused=True)]

    return run
