"""Specifications of NVIDIA GPU models, for estimates on machines without the GPU.

Source: NVIDIA's data sheets (number of multiprocessors, boost clock, memory bandwidth).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class CudaModel(NamedTuple):
    """A GPU model.

    Attributes:
        name: product name.
        arch: compute capability as one number: 90.
        multiprocessors: number of multiprocessors.
        clock_khz: boost clock, in kHz.
        gbps: memory bandwidth, in GB/s.
    """

    name: str
    arch: int
    multiprocessors: int
    clock_khz: int
    gbps: float


MODELS: Final = (
    CudaModel("NVIDIA T4", 75, 40, 1_590_000, 320),
    CudaModel("NVIDIA A100 80GB SXM", 80, 108, 1_410_000, 2039),
    CudaModel("NVIDIA A10", 86, 72, 1_695_000, 600),
    CudaModel("NVIDIA L40S", 89, 142, 2_520_000, 864),
    CudaModel("NVIDIA L4", 89, 58, 2_040_000, 300),
    CudaModel("NVIDIA GeForce RTX 4090", 89, 128, 2_520_000, 1008),
    CudaModel("NVIDIA H200", 90, 132, 1_830_000, 4800),
    CudaModel("NVIDIA H100 SXM", 90, 132, 1_830_000, 3352),
    CudaModel("NVIDIA B200", 100, 148, 1_850_000, 8000),
    CudaModel("NVIDIA GeForce RTX 5090", 120, 170, 2_407_000, 1792),
)
"""The first model of each architecture is the default for estimates."""
