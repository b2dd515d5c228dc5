"""Peak rates of a device: memory bandwidth and arithmetic.

get_dram_gbps(), get_max_tensorcore_tflops("fp16")
"""

from __future__ import annotations

from typing import Any

from tilewright.runtime import driver
from tilewright.runtime.bench import default_device
from tilewright.runtime.tensors import CUDA, element_type


def get_dram_gbps(device: int | str | None = None) -> float:
    """Peak memory bandwidth of a device in GB/s; for a CPU, the measured bandwidth of copying.

    Args:
        device: the index of a GPU, or a name such as ``"cpu"``; by default the device of
            `do_bench`.
    """
    found, index = _driver(device)
    return found.peak_gbps(index)


def get_max_simd_tflops(
    dtype: Any, clock_rate: float | None = None, device: int | str | None = None
) -> float:
    """Peak TFLOP/s without tensor cores; an fma counts as two operations.

    Args:
        dtype: the element type: of tilewright, torch or NumPy.
        clock_rate: in kHz; by default the device's maximum.
        device: as for `get_dram_gbps`.

    Raises:
        ValueError: the device has no arithmetic for the type.
    """
    found, index = _driver(device)
    return found.peak_tflops(index, element_type(dtype), False, clock_rate)


def get_max_tensorcore_tflops(
    dtype: Any, clock_rate: float | None = None, device: int | str | None = None
) -> float:
    """Peak TFLOP/s of dense matrix products on tensor cores for operands of a type; fp32 means
    tf32. For a CPU, the same as `get_max_simd_tflops`."""
    found, index = _driver(device)
    return found.peak_tflops(index, element_type(dtype), True, clock_rate)


def _driver(device: int | str | None) -> tuple[Any, int]:
    name = f"{CUDA}:{device}" if isinstance(device, int) else device or default_device()
    kind, _, index = name.partition(":")
    return driver.driver_of(kind), int(index or 0)
