"""Compiles, checks and times a form under each compiler."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.forms.form import Form, Prepared
from benchmarks.gpu import dialect
from benchmarks.gpu.case import Setting, poison
from benchmarks.gpu.clock import CudaClock

KERNELS = Path(__file__).parent / "kernels"


@dataclass
class Outcome:
    """What was found of one form.

    Attributes:
        us: median microseconds by compiler.
        resources: registers, spills and shared memory by compiler.
        difference: of the results, as a part of their norm.
        failure: why there is no ratio, or why it does not count; "" if all is well.
    """

    name: str
    us: dict[str, float] = field(default_factory=dict[str, float])
    resources: dict[str, str] = field(default_factory=dict[str, str])
    difference: float = 0.0
    failure: str = ""

    @property
    def ratio(self) -> float:
        """Triton's time over tilewright's; NaN unless both were timed."""
        return self.us.get("triton", math.nan) / self.us.get("tilewright", math.nan)

    def __str__(self) -> str:
        times = " ".join(f"{name} {us:.1f}" for name, us in self.us.items())
        used = " ".join(f"{name[:4]} {text}" for name, text in self.resources.items())
        failure = f" FAILED: {self.failure}" if self.failure else ""
        return f"{self.ratio:.3f} {self.name}: {times} | {used}{failure}"


def only_compile(forms: Sequence[Form], setting: Setting, modules: Sequence[str]) -> None:
    """Launch each form once under each compiler; failures are reported by `measure`."""
    for form in forms:
        prepared = form.prepare(setting)
        for module in modules:
            try:
                _prepare(prepared)
                prepared.launch(dialect.load(form.file, module, KERNELS))
            except Exception:
                pass


def measure(
    form: Form, setting: Setting, modules: Sequence[str], clock: CudaClock | None
) -> Outcome:
    """Launch a form under each compiler, compare the results, and time them alternately."""
    outcome = Outcome(form.name)
    prepared = form.prepare(setting)
    results: list[list[torch.Tensor]] = []
    runs: dict[str, Any] = {}
    for module in modules:
        kernels = dialect.load(form.file, module, KERNELS)
        _prepare(prepared)
        try:
            launched = prepared.launch(kernels)
            results.append([output.double().clone() for output in prepared.outputs])
        except Exception as error:
            text = str(error).strip().splitlines() or [""]
            outcome.failure += f"{module}: {type(error).__name__}: {text[0][:120]} "
            continue
        outcome.resources[module] = _resources(launched)
        runs[module] = partial(prepared.launch, kernels)
    outcome.failure += _compare(prepared, results, outcome)
    if clock is not None and runs:
        for name, timing in clock.compare(runs, 0).items():
            outcome.us[name] = timing.us
    return outcome


def _prepare(prepared: Prepared) -> None:
    for output in prepared.outputs:
        if not prepared.reset:
            poison(output)
    if prepared.reset:
        prepared.reset()


def _compare(
    prepared: Prepared, results: Sequence[Sequence[torch.Tensor]], outcome: Outcome
) -> str:
    for tensor in (tensor for result in results for tensor in result):
        if bool(tensor.isnan().any()):
            return "NaN in a result, or not written everywhere"
    for mine, theirs in zip(results[0], results[-1], strict=True) if results else ():
        difference = float((mine - theirs).norm() / theirs.norm().clamp(min=1e-30))
        outcome.difference = max(outcome.difference, difference)
    if outcome.difference > prepared.tolerance:
        return f"results differ by {outcome.difference:.1e}"
    return ""


def _resources(launched: Any) -> str:
    metadata = getattr(launched, "metadata", None)
    if not hasattr(launched, "n_regs"):
        return ""
    return f"r{launched.n_regs}/{launched.n_spills} sh{getattr(metadata, 'shared', 0)}"
