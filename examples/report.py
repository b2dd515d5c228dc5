"""What the examples print: how far a result is from a reference, and how fast it was made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

QUICK = "--quick" in sys.argv[1:]
"""Whether to take small inputs and few repeats: ``python examples/….py --quick``."""


def require_torch(purpose: str) -> Any:
    """The module torch; where it is missing, the script ends with a line that says so."""
    try:
        import torch
    except ImportError:
        sys.exit(f"This example needs torch, for {purpose}: pip install torch")
    return torch


def check(what: str, result: Any, reference: Any, tolerance: float) -> None:
    """Print the largest error of `result`; end the script if it is beyond the tolerance.

    Args:
        result, reference: arrays, or what NumPy makes arrays of.
        tolerance: the largest error, absolute where the reference is below 1, else relative.
    """
    got, expected = np.asarray(result, np.float64), np.asarray(reference, np.float64)
    if got.shape != expected.shape:
        sys.exit(f"{what}: shape {got.shape} instead of {expected.shape}")
    # An infinity must be met exactly, and a NaN by a NaN.
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        error = np.abs(got - expected) / np.maximum(1.0, np.abs(expected))
    error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
    worst = float(error.max(initial=0.0))
    verdict = "ok" if worst <= tolerance else "WRONG"
    print(f"{what}: max error {worst:.1e} (allowed {tolerance:.0e})  {verdict}")
    if worst > tolerance:
        sys.exit(1)


def compare_speed(rivals: dict[str, Callable[[], Any]], turns: int = 10) -> None:
    """Time functions in turn, and print each median and how many times the first one's it is.

    A turn is 20 ms of calls. Those in its first half are not counted: they may compile, they wake
    threads up, and meanwhile threads of the last turn come to rest.
    """
    samples: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(1 if QUICK else turns):
        for name, run in rivals.items():
            _calls(run, seconds=0.01)
            samples[name] += _calls(run, seconds=0.01)
    times = {name: median(found) for name, found in samples.items()}
    ours = next(iter(times.values()))
    for name, seconds in times.items():
        print(f"  {name:<12}{seconds * 1e3:9.3f} ms  {seconds / ours:6.2f}x")


def _calls(run: Callable[[], Any], seconds: float) -> list[float]:
    """Seconds of each call; as many calls as fit in the time, and at least one."""
    found: list[float] = []
    end = perf_counter() + seconds
    while not found or perf_counter() < end:
        start = perf_counter()
        run()
        found.append(perf_counter() - start)
    return found
