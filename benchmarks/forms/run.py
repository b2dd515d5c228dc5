"""Compiles, checks and times a form under each compiler."""

from __future__ import annotations

import math
import resource
from collections.abc import Mapping, Sequence
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
        compile: seconds of processor time of the first launch, assembler included, by compiler.
        resources: registers, spills and shared memory by compiler.
        difference: of the results, as a part of their norm.
        failure: why there is no ratio, or why it does not count; "" if all is well.
    """

    name: str
    us: dict[str, float] = field(default_factory=dict[str, float])
    compile: dict[str, float] = field(default_factory=dict[str, float])
    resources: dict[str, str] = field(default_factory=dict[str, str])
    difference: float = 0.0
    failure: str = ""

    @property
    def ratio(self) -> float:
        """Triton's time over tilewright's; NaN unless both were timed."""
        return _ratio(self.us)

    @property
    def compile_ratio(self) -> float:
        """Triton's compile time over tilewright's; NaN unless both were taken."""
        return _ratio(self.compile)

    def __str__(self) -> str:
        times = " ".join(f"{name} {us:.1f}" for name, us in self.us.items())
        used = " ".join(f"{name[:4]} {text}" for name, text in self.resources.items())
        compile = "/".join(f"{1e3 * seconds:.0f}" for seconds in self.compile.values())
        failure = f" FAILED: {self.failure}" if self.failure else ""
        return f"{self.ratio:.3f} {self.name}: {times} | {used} compile {compile} ms{failure}"


def _ratio(values: Mapping[str, float]) -> float:
    return values.get("triton", math.nan) / values.get("tilewright", math.nan)


def only_compile(
    forms: Sequence[Form], setting: Setting, modules: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Launch each form once under each compiler; failures are reported by `measure`.

    Returns:
        by form and compiler: the seconds of processor time, of this process and of those that it
        started. What the first launch of a process imports counts for the first form.
    """
    found: dict[str, dict[str, float]] = {}
    for form in forms:
        prepared = form.prepare(setting)
        taken = found.setdefault(form.name, {})
        for module in modules:
            try:
                _prepare(prepared)
                kernels = dialect.load(form.file, module, KERNELS)
                start = _processor_time()
                prepared.launch(kernels)
                taken[module] = _processor_time() - start
            except Exception:
                pass
    return found


def _processor_time() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


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
