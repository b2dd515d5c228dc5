"""Names that programs import from `triton.backends.nvidia.compiler`."""

from __future__ import annotations

from typing import Any

from tilewright.base.diagnostics import PTXASError as PTXASError
from tilewright.compat.tools import NvidiaTool, tool
from tilewright.targets.protocol import GPUTarget as GPUTarget
from tilewright.targets.registry import BUILT_IN

_NvidiaTarget: Any = BUILT_IN["cuda"]()


class CUDABackend(_NvidiaTarget):
    """The compiler for a target such as ``GPUTarget("cuda", 90, 32)``."""

    def __init__(self, target: GPUTarget) -> None:
        super().__init__(target.arch)


CUDAOptions = type(_NvidiaTarget().parse_options({}))


def min_dot_size(target: GPUTarget) -> Any:
    """A function of two element types: the least M, N and K of a product of such matrices."""
    compiler = CUDABackend(target)
    return compiler.frontend_options(compiler.parse_options({})).min_dot_size


def get_ptxas(arch: int = 0) -> NvidiaTool:
    """The assembler: its `path` and `version`.

    Raises:
        RuntimeError: it is not installed.
    """
    return tool("ptxas")


def get_ptxas_version(arch: int = 0) -> str:
    """The version of the assembler, such as "12.8"."""
    return tool("ptxas").version


def ptx_get_version(cuda_version: str) -> int:
    """The newest PTX version that a version of CUDA has, times 10: 87 for "12.8"."""
    major, minor = map(int, cuda_version.split(".")[:2])
    if major == 11:
        return 70 + minor
    if major == 12:
        return 80 + minor if minor < 6 else 80 + minor - 1
    if major >= 13:
        return 90 + (major - 13) * 10 + minor
    raise RuntimeError(f"there is no PTX version for CUDA {cuda_version}; CUDA 11 or later has one")


def sm_arch_from_capability(capability: int) -> str:
    """The name of an architecture: "sm_90a" for 90."""
    return f"sm_{capability}{'a' if capability >= 90 else ''}"
