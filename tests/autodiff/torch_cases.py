"""The gradients of a kernel against torch's of the same function in fp64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import tilewright as tw

torch = pytest.importorskip("torch")
Tensors = dict[str, Any]


class Case(NamedTuple):
    """A launch of a kernel, and the function of its tensors that the results are.

    Attributes:
        atomic: the inputs whose gradients are added up atomically.
        tables: the arrays of integers that the gradient's launch reads.
    """

    kernel: Any
    grid: tuple[int, ...]
    args: Tensors
    constexprs: dict[str, Any]
    function: Callable[[Tensors], Tensors]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    aux: tuple[str, ...] = ()
    atomic: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


def normal(*shape: int) -> Any:
    return torch.randn(*shape)


def assert_gradients_agree(make: Callable[[], Case]) -> None:
    """Launch a case and its gradient, and compare both with torch."""
    torch.manual_seed(0)
    case = make()
    kernel, grid, args, constexprs, function, inputs, outputs, aux, atomic, tables = case
    kernel[grid](**args, **constexprs)
    leaves = {name: args[name].double().requires_grad_() for name in inputs}
    expected = function({**args, **leaves})
    for name in outputs:
        difference = (args[name] - expected[name]).abs().max() / expected[name].abs().max()
        assert difference < 1e-5
    grads = {name: torch.randn_like(args[name]) for name in outputs}
    gradients = torch.autograd.grad(
        [expected[name] for name in outputs], list(leaves.values()),
        [grads[name].double() for name in outputs],
    )  # fmt: skip
    into = {name: torch.full_like(args[name], torch.nan) for name in inputs}
    backward = tw.grad(kernel, None, outputs, aux, deterministic=not atomic, tables=tables)
    backward[grid](**args, **constexprs, grads=grads, into=into)
    for name, gradient in zip(inputs, gradients, strict=True):
        error = (into[name] - gradient).abs().max() / gradient.abs().max()
        assert error < 2e-6, (name, error)
        assert ("added atomically" in decision(backward, name)) == (name in atomic)


def decision(backward: Any, name: str) -> str:
    """What `explain` says about an array."""
    lines = (line.strip() for line in backward.explain().splitlines())
    return next(line for line in lines if line.startswith(f"{name}:"))
