"""Peak arithmetic throughput and memory bandwidth of CUDA devices.

Sources: for SIMD instructions the CUDA C++ Programming Guide, table "Throughput of Native
Arithmetic Instructions"; for dense matrix products on tensor cores NVIDIA's architecture white
papers.
"""

from __future__ import annotations

from typing import Final

from tilewright.runtime.devices.cuda import Device
from tilewright.runtime.devices.cuda_models import MODELS, CudaModel

# Multiply-adds per clock and multiprocessor, by element type and compute capability.
_SIMD: Final[dict[str, dict[int, int]]] = {
    "fp32": {70: 64, 75: 64, 80: 64, 86: 128, 89: 128, 90: 128, 100: 128, 120: 128},
    "fp16": {70: 128, 75: 128, 80: 256, 86: 128, 89: 128, 90: 256, 100: 256, 120: 128},
    "bf16": {80: 128, 86: 128, 89: 128, 90: 256, 100: 256, 120: 128},
    "fp64": {70: 32, 75: 2, 80: 32, 86: 2, 89: 2, 90: 64, 100: 64, 120: 2},
}
_MATRIX: Final[dict[str, dict[int, int]]] = {
    "fp16": {70: 512, 75: 512, 80: 1024, 86: 512, 89: 512, 90: 2048, 100: 4096, 120: 512},
    "bf16": {80: 1024, 86: 512, 89: 512, 90: 2048, 100: 4096, 120: 512},
    "fp32": {80: 512, 86: 256, 89: 256, 90: 1024, 100: 2048, 120: 256},
    "i8": {75: 1024, 80: 2048, 86: 1024, 89: 1024, 90: 4096, 100: 8192, 120: 1024},
    "fp8e4nv": {89: 1024, 90: 4096, 100: 8192, 120: 1024},
    "fp8e5": {89: 1024, 90: 4096, 100: 8192, 120: 1024},
    "fp64": {80: 64, 90: 128, 100: 64},
}


def peak_gbps(gpu: Device) -> float:
    """Memory bandwidth in GB/s: two transfers (DDR) of the bus's width per clock."""
    found = gpu.properties
    return found.mem_clock_rate * found.mem_bus_width * 2 / 1e6 / 8


def peak_tflops(gpu: Device, element: str, matrix: bool, clock_rate: float | None) -> float:
    """Peak TFLOP/s (or TOP/s for integers); a multiply-add counts as two operations.

    Args:
        element: operand type in short form; for matrix products, fp32 means tf32.
        matrix: the rate of tensor cores rather than of SIMD instructions.
        clock_rate: kHz; None for the highest.

    Raises:
        ValueError: the device does not support the type.
    """
    found = gpu.properties
    per_clock = found.multiprocessor_count * _per_clock(found.name, gpu.arch, element, matrix)
    return 2 * per_clock * (clock_rate or found.sm_clock_rate) / 1e9


def _per_clock(name: str, arch: int, element: str, matrix: bool) -> int:
    """Multiply-adds per clock and multiprocessor: those of the closest older architecture in the
    table if `arch` has no entry."""
    table = (_MATRIX if matrix else _SIMD).get(element, {})
    known = [capability for capability in table if capability <= arch]
    if not known:
        units = "tensor cores" if matrix else "units"
        raise ValueError(f"{name} has no {units} for {element}")
    return table[max(known)]


def models_of(arch: int) -> list[CudaModel]:
    """The models of an architecture; the default for estimates comes first."""
    return [model for model in MODELS if model.arch == arch]


def model_tflops(model: CudaModel, element: str, matrix: bool) -> float:
    """`peak_tflops` of a model, from its specifications."""
    per_clock = _per_clock(model.name, model.arch, element, matrix)
    return 2 * model.multiprocessors * per_clock * model.clock_khz / 1e9
