"""An operator with its arguments, called forward and backward; how it differs from torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.liger.make import Make
from benchmarks.liger.operators import Operator, Sizes

Tensor = torch.Tensor


class Call:
    """A function that is differentiated, with arguments for it.

    Attributes:
        leaves: those arguments that get a gradient.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.function = function
        self.args = args
        self.leaves = [x for x in args if isinstance(x, Tensor) and x.requires_grad]

    def forward(self, count: int | None = None) -> list[Tensor]:
        """The first so many results, all by default."""
        out = self.function(*self.args)
        return [x for x in (out if isinstance(out, tuple) else (out,)) if x is not None][:count]

    def backward(self, results: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        """The leaves' gradients of the weighted sum of results."""
        return list(torch.autograd.grad(results, self.leaves, weights))


def worst_error(
    operator: Operator, function: Callable[..., Any], sizes: Sizes, make: Callable[[bool], Make]
) -> float:
    """The largest difference of a result or a gradient from torch's in fp32, on the same numbers.

    Args:
        operator: what is called, and what torch says about it.
        function: the operator's ``apply``.
        sizes: of its inputs.
        make: makes the inputs: rounded, or (True) the rounded numbers in fp32.

    Returns:
        The difference as a part of the largest number of that result; infinite where one of the
        two is not finite and the other is.
    """
    exact = Call(operator.reference, operator.inputs(make(True), *sizes))
    expected = exact.forward()
    call = Call(function, operator.inputs(make(False), *sizes))
    results = call.forward(len(expected))
    found = [x.detach().clone() for x in results]  # as a backward may overwrite what it had
    state = torch.Generator(results[0].device).manual_seed(3)
    weights = [torch.randn(x.shape, generator=state, device=x.device).to(x.dtype) for x in results]
    same = [w.float().reshape(x.shape) for w, x in zip(weights, expected, strict=True)]
    expected = [*expected, *exact.backward(expected, same)]
    found += call.backward(results, weights)  # last, as it may overwrite its weights
    return max(_difference(a, b) for a, b in zip(found, expected, strict=True))


def _difference(found: Tensor, expected: Tensor) -> float:
    a, b = found.detach().float().reshape(expected.shape), expected.detach()
    finite = b.isfinite()
    if not torch.equal(a.isfinite(), finite):
        return float("inf")
    scale = max(torch.where(finite, b, 0).abs().max().item(), 1e-30)
    return torch.where(finite, a - b, 0).abs().max().item() / scale
