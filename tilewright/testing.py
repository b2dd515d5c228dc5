"""Utilities for testing and benchmarking kernels: timing, comparison, reports, device limits.

ms = tilewright.testing.do_bench(lambda: kernel[grid](x, y, n, BLOCK=128))
tilewright.testing.assert_close(y, expected, atol=1e-3)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.lazy_import import lazy_import
from tilewright.runtime.bench import do_bench, do_bench_cudagraph
from tilewright.runtime.measure import summarize as _summarize_statistics
from tilewright.tools.perf_report import Benchmark, Mark, perf_report
from tilewright.tools.roofline import (
    get_dram_gbps,
    get_max_simd_tflops,
    get_max_tensorcore_tflops,
)

if TYPE_CHECKING:
    import shutil
    import subprocess

else:
    subprocess = lazy_import("subprocess")
    shutil = lazy_import("shutil")

__all__ = [
    "Benchmark",
    "Mark",
    "_summarize_statistics",
    "allclose",
    "assert_close",
    "do_bench",
    "do_bench_cudagraph",
    "get_dram_gbps",
    "get_max_simd_tflops",
    "get_max_tensorcore_tflops",
    "nvsmi",
    "perf_report",
    "set_gpu_clock",
]


ATOL, RTOL = 1e-2, 0.0

Tolerance = float | Callable[[Any], float] | None


def assert_close(
    x: Any, y: Any, atol: Tolerance = None, rtol: Tolerance = None, err_msg: str = ""
) -> None:
    """Raise AssertionError unless two arrays are close: ``|x - y| <= atol + rtol * |y|``.

    NaN equals NaN. bf16 and other narrow types are compared as fp32.

    Args:
        x, y: torch tensors, arrays, lists or numbers.
        atol, rtol: tolerances, 0.01 and 0 by default, or functions of the type of `x`.
        err_msg: prefix of the error message.
    """
    atol = _tolerance(atol, ATOL, x)
    rtol = _tolerance(rtol, RTOL, x)
    a, b = _array(x), _array(y)
    if a.size > 1 or b.size > 1:
        np.testing.assert_allclose(a, b, atol=atol, rtol=rtol, equal_nan=True, err_msg=err_msg)
    elif not np.allclose(a, b, atol=atol, rtol=rtol):
        raise AssertionError(f"{err_msg} {x} is not close to {y} (atol={atol}, rtol={rtol})")


def allclose(x: Any, y: Any, atol: Tolerance = None, rtol: Tolerance = None) -> bool:
    """Whether `assert_close` passes."""
    try:
        assert_close(x, y, atol, rtol)
    except AssertionError:
        return False
    return True


def _tolerance(given: Tolerance, default: float, x: Any) -> float:
    if given is None:
        return default
    return given(getattr(x, "dtype", None)) if callable(given) else given


def _array(value: Any) -> np.ndarray[Any, Any]:
    """A value as an array of a type native to NumPy."""
    detach = getattr(value, "detach", None)
    if detach is not None:
        value = detach().cpu()
        narrow = value.is_floating_point() and value.element_size() < 4
        value = (value.float() if narrow else value).contiguous().numpy()
    array = np.asarray(value)
    return array if array.dtype.isbuiltin == 1 else array.astype(np.float32)


# -- NVIDIA's tools -------------------------------------------------------------------------------


def nvsmi(attrs: Sequence[str]) -> list[int]:
    """Query the first GPU with nvidia-smi: ``nvsmi(["clocks.max.sm"])``.

    Raises:
        RuntimeError: nvidia-smi is not installed or fails.
    """
    query = ",".join(attrs)
    output = _nvidia_smi("-i", "0", f"--query-gpu={query}", "--format=csv,noheader,nounits")
    return [int(float(number)) for number in output.split(",")]


@contextmanager
def set_gpu_clock(ref_sm_clock: int = 1350, ref_mem_clock: int = 1215) -> Generator[Any]:
    """Fix the clocks of the first GPU, in MHz, within the block. Requires the permission to do so.

    Yields the peak rates at these clocks: (fp16 tensor core throughput in TFLOP/s, memory bandwidth
    in GB/s).
    """
    try:
        _nvidia_smi("-i", "0", "-pm", "1")
        _nvidia_smi("-i", "0", f"--lock-gpu-clocks={ref_sm_clock},{ref_sm_clock}")
        _nvidia_smi("-i", "0", f"--lock-memory-clocks={ref_mem_clock},{ref_mem_clock}")
        clock = nvsmi(["clocks.current.sm"])[0]
        yield get_max_tensorcore_tflops("fp16", clock * 1e3, 0), get_dram_gbps(0)
    finally:
        for option in ("-pm", "-rgc", "-rmc"):
            _nvidia_smi("-i", "0", option, *(["0"] if option == "-pm" else []))


def _nvidia_smi(*options: str) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise RuntimeError("nvidia-smi is not installed: it comes with NVIDIA's driver")
    run = subprocess.run([program, *options], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"nvidia-smi {' '.join(options)} failed: {run.stdout}{run.stderr}")
    return run.stdout
