"""A case: one size of one workload, with its inputs, expected results and tolerances."""

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
"""Small sizes that run on a CPU in reasonable time; few sizes; all sizes."""


@dataclass(frozen=True)
class Setting:
    """The device and the scale of a run.

    Attributes:
        device: torch's name of the device.
        scale: one of `SCALES`.
    """

    device: str
    scale: str

    def pick(self, check: T, quick: T, full: T) -> T:
        """The value for the scale."""
        return {"check": check, "quick": quick, "full": full}[self.scale]

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Random normal numbers, generated on the device."""
        return torch.randn(shape, device=self.device).to(dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Random integers from `low` to below `high`, generated on the device."""
        return torch.randint(low, high, shape, device=self.device).to(dtype)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, device=self.device, dtype=dtype)


class WrongResult(Exception):
    """The results of a kernel are wrong."""


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@dataclass(frozen=True)
class Case:
    """One size of one workload. All contestants write the same outputs.

    Attributes:
        kernels: the file in `kernels/`, without suffix.
        launches: a function from the loaded kernels to launches by configuration. The fastest
            counts.
        outputs: the tensors that they write.
        expected: computes the outputs in higher precision.
        tolerance: the largest error, as defined by `worst_error`.
        bytes: the least number of bytes read and written.
        flops: operations, if the case is compute-bound; else 0.
        bars: targets.
        library: torch's implementations by name. The fastest counts.
        checked: selects the part of an output that `expected` returns.
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
        """Run once on poisoned outputs; returns the largest error.

        Raises:
            WrongResult: an output is wrong, or was not written everywhere.
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
    """Fill with values that differ from correct results: NaN, the least integer, or alternating
    bools."""
    if output.is_floating_point():
        output.fill_(math.nan)
    elif output.dtype != torch.bool:
        output.fill_(torch.iinfo(output.dtype).min)
    else:
        output.view(-1)[::2] = True


def worst_error(got: torch.Tensor, right: torch.Tensor) -> float:
    """The largest of ``|got - right| / (|right| + rms(right))``; infinite if there is a NaN.

    A single wrong element among millions is detected; elements that are small compared with the
    others are judged by an absolute error.
    """
    assert got.shape == right.shape, (got.shape, right.shape)
    exact = right.double()
    scale = exact.square().mean().sqrt()
    if scale == 0:
        scale += 1.0
    error = float(((got.double() - exact).abs() / (exact.abs() + scale)).max())
    return math.inf if math.isnan(error) else error
