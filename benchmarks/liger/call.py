"""Forward and backward calls of an operator, and their error against torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.liger.make import Make
from benchmarks.liger.operators import Operator, Sizes

Tensor = torch.Tensor


class Call:
    """A differentiable function with its arguments.

    Attributes:
        leaves: the arguments that require gradients.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.function = function
        self.args = args
        self.leaves = [x for x in args if isinstance(x, Tensor) and x.requires_grad]

    def forward(self, count: int | None = None) -> list[Tensor]:
        """The first `count` results, all by default."""
        out = self.function(*self.args)
        return [x for x in (out if isinstance(out, tuple) else (out,)) if x is not None][:count]

    def backward(self, results: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        """The gradients of the weighted sum of the results with respect to the leaves."""
        return list(torch.autograd.grad(results, self.leaves, weights))


def worst_error(
    operator: Operator, function: Callable[..., Any], sizes: Sizes, make: Callable[[bool], Make]
) -> float:
    """The largest error of a result or a gradient against torch in fp32, for the same inputs.

    Args:
        operator: the operator, with its reference in torch.
        function: the operator's ``apply``.
        sizes: sizes of its inputs.
        make: creates the inputs: in the operator's type, or (True) the same numbers in fp32.

    Returns:
        The largest absolute difference over the largest absolute value of that result; infinite if
        only one of the two is finite.
    """
    exact = Call(operator.reference, operator.inputs(make(True), *sizes))
    expected = exact.forward()
    call = Call(function, operator.inputs(make(False), *sizes))
    results = call.forward(len(expected))
    found = [x.detach().clone() for x in results]  # the backward pass may overwrite them
    state = torch.Generator(results[0].device).manual_seed(3)
    weights = [torch.randn(x.shape, generator=state, device=x.device).to(x.dtype) for x in results]
    same = [w.float().reshape(x.shape) for w, x in zip(weights, expected, strict=True)]
    expected = [*expected, *exact.backward(expected, same)]
    found += call.backward(results, weights)  # last, as it may overwrite the weights
    return max(_difference(a, b) for a, b in zip(found, expected, strict=True))


def _difference(found: Tensor, expected: Tensor) -> float:
    a, b = found.detach().float().reshape(expected.shape), expected.detach()
    finite = b.isfinite()
    if not torch.equal(a.isfinite(), finite):
        return float("inf")
    scale = max(torch.where(finite, b, 0).abs().max().item(), 1e-30)
    return torch.where(finite, a - b, 0).abs().max().item() / scale
