"""What a device can do at most: bytes and operations a second.

get_dram_gbps(), get_max_tensorcore_tflops("fp16")
"""

from __future__ import annotations

from typing import Any

from tilewright.runtime import driver
from tilewright.runtime.bench import default_device
from tilewright.runtime.tensors import CUDA, element_type


def get_dram_gbps(device: int | str | None = None) -> float:
    """Gigabytes a second that a device's memory moves at most; of a CPU, what copying reaches.

    Args:
        device: its number among the GPUs, or its name, such as ``"cpu"``; by default the one that
            `do_bench` would take.
    """
    found, index = _driver(device)
    return found.peak_gbps(index)


def get_max_simd_tflops(
    dtype: Any, clock_rate: float | None = None, device: int | str | None = None
) -> float:
    """Tera-operations a second outside of tensor cores; a multiply-add counts as two.

    Args:
        dtype: the element type, of any library.
        clock_rate: kHz; by default the highest of the device.
        device: as for `get_dram_gbps`.

    Raises:
        ValueError: the device has no such arithmetic.
    """
    found, index = _driver(device)
    return found.peak_tflops(index, element_type(dtype), False, clock_rate)


def get_max_tensorcore_tflops(
    dtype: Any, clock_rate: float | None = None, device: int | str | None = None
) -> float:
    """Tera-operations a second of dense products on tensor cores, for operands of a type; fp32
    stands for tf32. Of a CPU, whose vector units compute products, as `get_max_simd_tflops`."""
    found, index = _driver(device)
    return found.peak_tflops(index, element_type(dtype), True, clock_rate)


def _driver(device: int | str | None) -> tuple[Any, int]:
    name = f"{CUDA}:{device}" if isinstance(device, int) else device or default_device()
    kind, _, index = name.partition(":")
    return driver.driver_of(kind), int(index or 0)
