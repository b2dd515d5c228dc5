"""Names that programs import from `triton.backends.nvidia.driver`."""

from __future__ import annotations

import os

from tilewright.base import knobs
from tilewright.compat.drivers import GPUDriver as GPUDriver
from tilewright.compat.missing import missing_names
from tilewright.runtime.drivers.cuda import CudaDriver as CudaDriver
from tilewright.runtime.drivers.cuda import CudaUtils as CudaUtils
from tilewright.targets.protocol import GPUTarget as GPUTarget

FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
    "/usr/local/cuda/compat",
)  # fmt: skip
"""Where systems keep the library of the GPU's driver."""

_C_TYPES = {
    "i1": "int8_t", "u1": "uint8_t", "fp16": "double", "bf16": "double", "fp32": "double",
    "f32": "double", "fp64": "double",
}  # fmt: skip


def libcuda_dirs() -> list[str]:
    """The folders that have ``libcuda.so.1``: that of the setting `nvidia.libcuda_path`, else those
    of the system.

    Raises:
        AssertionError: there is none.
    """
    chosen = knobs.nvidia.libcuda_path
    if chosen:
        return [chosen]
    result = [folder for folder in FOLDERS if os.path.exists(f"{folder}/libcuda.so.1")]
    assert result, "libcuda.so.1 was not found. Set TRITON_LIBCUDA_PATH to its folder."
    return result


def ty_to_cpp(ty: str) -> str:
    """The C type in which an argument is passed, by its type in a signature."""
    if ty.startswith("*"):
        return "CUdeviceptr"
    if ty.startswith("tensordesc"):
        return "CUtensorMap"
    if ty in _C_TYPES:
        return _C_TYPES[ty]
    return f"{'u' if ty[0] == 'u' else ''}int{int(ty[1:])}_t"


__getattr__ = missing_names(
    __name__,
    "triton.backends.nvidia.driver",
    "CudaLauncher make_launcher",
    "launchers are made in memory; `kernel[grid](…)` and `compiled.run` launch",
)
