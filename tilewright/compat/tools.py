"""NVIDIA's tools as `knobs.nvidia.ptxas` gives them: with a path and a version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.targets.protocol import GPUTarget
from tilewright.targets.registry import target


@dataclass(frozen=True)
class NvidiaTool:
    """A program of the CUDA toolkit.

    Attributes:
        path: where it is.
        version: its release, such as "12.8".
    """

    path: str
    version: str


def tool(name: str) -> NvidiaTool:
    """A program by name: `ptxas`, `nvdisasm` or `cuobjdump`.

    Raises:
        RuntimeError: it is not installed.
    """
    compiler: Any = target(GPUTarget("cuda"))
    found = compiler.tool(name)
    if found is None:
        raise RuntimeError(f"Cannot find {name}: install a CUDA toolkit, or set its path")
    path, version = found
    return NvidiaTool(path, ".".join(version.split(".")[:2]))
