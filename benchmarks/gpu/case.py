"""A case: one size of one kind of work, with what is needed to check and to time it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from benchmarks.gpu.results import Bars

Run = Callable[[], Any]
T = TypeVar("T")

SCALES = ("check", "quick", "full")
"""How much is done: small sizes that a CPU is fast enough for, a first look, everything."""


@dataclass(frozen=True)
class Setting:
    """Where and how much.

    Attributes:
        device: torch's name of the device.
        scale: one of `SCALES`.
    """

    device: str
    scale: str

    def pick(self, check: T, quick: T, full: T) -> T:
        """What belongs to the scale."""
        return {"check": check, "quick": quick, "full": full}[self.scale]

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Random normal numbers, made on the device."""
        return torch.randn(shape, device=self.device).to(dtype)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, device=self.device, dtype=dtype)


class WrongResult(Exception):
    """A kernel has not given what it should."""


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@dataclass(frozen=True)
class Case:
    """One size of one kind of work. All contestants write the same outputs.

    Attributes:
        kernels: the file of `kernels/`, without its ending.
        launches: from the kernels as loaded for a module, the ways to launch them by their
            configuration. The fastest counts.
        outputs: what they write.
        expected: the right outputs, from arithmetic of higher precision.
        tolerance: the largest error as `worst_error` counts it.
        bytes: the least that must be read and written.
        flops: operations, where these are the limit and not the bytes; else 0.
        bars: what is aimed at.
        library: torch's ways to do the same, by name. The fastest counts.
        checked: the part of an output that `expected` has.
    """

    kernels: str
    launches: Callable[[Any], Mapping[str, Run]]
    outputs: Sequence[torch.Tensor]
    expected: Callable[[], Sequence[torch.Tensor]]
    tolerance: float
    bytes: int
    flops: int = 0
    bars: Bars = field(default_factory=Bars)
    library: Mapping[str, Run] = field(default_factory=dict[str, Run])
    checked: Callable[[torch.Tensor], torch.Tensor] = _as_it_is

    def run_checked(self, run: Run, expected: Sequence[torch.Tensor]) -> float:
        """Run once on poisoned outputs; gives the largest error.

        Raises:
            WrongResult: an output was left unwritten, or is wrong.
        """
        for output in self.outputs:
            poison(output)
        run()
        worst = 0.0
        for number, (output, right) in enumerate(zip(self.outputs, expected, strict=True)):
            if output.is_floating_point() and bool(output.float().isnan().any()):
                raise WrongResult(f"output {number} has NaN, or was not written everywhere")
            worst = max(worst, worst_error(self.checked(output), right))
        if worst > self.tolerance:
            raise WrongResult(f"error {worst:.3g}, where {self.tolerance:.3g} is allowed")
        return worst


def poison(output: torch.Tensor) -> None:
    """Fill with what no kernel of these writes: NaN, or the least integer, or every other True."""
    if output.is_floating_point():
        output.fill_(math.nan)
    elif output.dtype != torch.bool:
        output.fill_(torch.iinfo(output.dtype).min)
    else:
        output.view(-1)[::2] = True


def worst_error(got: torch.Tensor, right: torch.Tensor) -> float:
    """The largest of ``|got - right| / (|right| + rms(right))``; infinite if there is a NaN.

    A single wrong element of millions shows, and one that is small among large ones is not held to
    its own size.
    """
    assert got.shape == right.shape, (got.shape, right.shape)
    exact = right.double()
    scale = exact.square().mean().sqrt()
    if scale == 0:
        scale += 1.0
    error = float(((got.double() - exact).abs() / (exact.abs() + scale)).max())
    return math.inf if math.isnan(error) else error
