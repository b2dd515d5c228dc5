"""Output of the examples: the error of a result against a reference, and execution times."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

QUICK = "--quick" in sys.argv[1:]
"""Whether to use small inputs and few repetitions: ``python examples/….py --quick``."""


def require_torch(purpose: str) -> Any:
    """The module torch; if it is not installed, exits with a message."""
    return _require("torch", "torch", purpose)


def require_jax(purpose: str) -> Any:
    """The module jax; if it is not installed, exits with a message."""
    return _require("jax", "JAX", purpose)


def _require(module: str, name: str, purpose: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        sys.exit(f"This example needs {name}, for {purpose}: pip install {module}")


def check(what: str, result: Any, reference: Any, tolerance: float) -> None:
    """Print the largest error of `result`; exit if it exceeds the tolerance.

    Args:
        result, reference: arrays, or anything that NumPy converts to arrays.
        tolerance: the largest error, absolute where the reference is below 1, else relative.
    """
    got, expected = np.asarray(result, np.float64), np.asarray(reference, np.float64)
    if got.shape != expected.shape:
        sys.exit(f"{what}: shape {got.shape} instead of {expected.shape}")
    # Infinities and NaNs must be equal.
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        error = np.abs(got - expected) / np.maximum(1.0, np.abs(expected))
    error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
    worst = float(error.max(initial=0.0))
    verdict = "ok" if worst <= tolerance else "WRONG"
    print(f"{what}: max error {worst:.1e} (allowed {tolerance:.0e})  {verdict}")
    if worst > tolerance:
        sys.exit(1)


def compare_speed(
    rivals: dict[str, Callable[[], Any]], turns: int = 10, wait: Callable[[], Any] | None = None
) -> None:
    """Time functions alternately; print each median, and its ratio to that of the first function.

    A turn is 20 ms of calls. The first half is a warm-up: it may compile, it wakes threads, and the
    previous function's threads stop spinning.

    Args:
        wait: waits for the device after each call; by default, calls do so themselves.
    """
    samples: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(1 if QUICK else turns):
        for name, run in rivals.items():
            _calls(run, wait, seconds=0.01)
            samples[name] += _calls(run, wait, seconds=0.01)
    times = {name: median(found) for name, found in samples.items()}
    ours = next(iter(times.values()))
    for name, seconds in times.items():
        print(f"  {name:<12}{seconds * 1e3:9.3f} ms  {seconds / ours:6.2f}x")


def _calls(run: Callable[[], Any], wait: Callable[[], Any] | None, seconds: float) -> list[float]:
    """Durations in seconds of as many calls as fit in the time, at least one."""
    found: list[float] = []
    end = perf_counter() + seconds
    while not found or perf_counter() < end:
        start = perf_counter()
        run()
        if wait is not None:
            wait()
        found.append(perf_counter() - start)
    return found
