"""Peak rates of this machine: memory bandwidth, which is measured, and FLOP/s, an estimate.

The estimate is cores × highest clock × lanes of a vector × 2 FMA units × 2 operations. Two FMA
units per core hold for most x86 server processors since Haswell.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from tilewright.runtime.devices.cpu import thread_count

_VECTOR_BYTES: Final = {"avx512f": 64, "avx2": 32}
_SMALLEST_VECTOR: Final = 16
_FMA_UNITS: Final = 2
_COPY_BYTES: Final = 64 << 20
_COPIES: Final = 5


def peak_gbps() -> float:
    """Memory bandwidth in GB/s, reads plus writes: the best of five copies on all threads."""
    return _copy_gbps(thread_count())


@cache
def _copy_gbps(threads: int) -> float:
    pairs = [
        (np.ones(_COPY_BYTES, np.uint8), np.ones(_COPY_BYTES, np.uint8)) for _ in range(threads)
    ]
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_COPIES):
            begin = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), pairs))
            best = min(best, time.perf_counter() - begin)
    return 2 * _COPY_BYTES * threads / best / 1e9


def peak_tflops(element: str, clock_rate: float | None) -> float:
    """Peak TFLOP/s; a fused multiply-add counts as two operations.

    Args:
        element: element type in short form. Types narrower than fp32 are computed as fp32.
        clock_rate: kHz; None for the highest.
    """
    size = 8 if element == "fp64" else 4
    flags = _cpu_info("flags").split()
    widths = (width for flag, width in _VECTOR_BYTES.items() if flag in flags)
    lanes = next(widths, _SMALLEST_VECTOR) // size
    cores = min(_cores(), thread_count())
    return 2 * _FMA_UNITS * cores * lanes * (clock_rate or _highest_khz()) / 1e9


def _cpu_info(field: str) -> str:
    """A field of the first processor in Linux's /proc/cpuinfo; "" on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((x.partition(":")[2].strip() for x in lines if x.startswith(field)), "")


def _highest_khz() -> float:
    try:
        return float(Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").read_text())
    except (OSError, ValueError):
        return float(_cpu_info("cpu MHz") or 2000) * 1e3


def _cores() -> int:
    """The number of physical cores: hardware threads of one core count once."""
    siblings = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list")
    try:
        return len({path.read_text() for path in siblings}) or os.cpu_count() or 1
    except OSError:
        return os.cpu_count() or 1
