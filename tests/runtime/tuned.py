"""Kernels to be tuned, and measurements that are made up, for the tests of tuning."""

from collections.abc import Callable, Sequence
from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.autotuner import Autotuner, Config

SIZE = 100


def add_one(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + 1, i < n)


def increment(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) + 1, i < n)


def count(total, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + i, i < n, other=0)))


def only_small(x, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 64, "too large")
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, i, i < n)


def wrong(x, n, BLOCK: tl.constexpr):
    tl.store(x, missing + BLOCK)  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


def grid(meta: dict[str, Any]) -> tuple[int]:
    return (tw.cdiv(meta["n"], meta["BLOCK"]),)


def blocks(*sizes: int, **options: Any) -> list[Config]:
    return [Config({"BLOCK": size}, **options) for size in sizes]


class Bench:
    """Measures by a list of times: runs the function once for each, as a real one would."""

    def __init__(self, *times: float) -> None:
        self.times = times
        self.calls = 0
        self.quantiles: Any = None

    def __call__(self, fn: Callable[[], Any], quantiles: Any) -> list[float]:
        fn()
        self.quantiles = quantiles
        time = self.times[self.calls % len(self.times)]
        self.calls += 1
        return [time, time, time]


def tuned(fn: Any, configs: Sequence[Config], key: Sequence[str] = ("n",), **how: Any) -> Autotuner:
    return tw.autotune(configs, list(key), **how)(tw.jit(fn))
