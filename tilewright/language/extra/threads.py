"""The number of threads per program, according to the launch options, on all targets."""

from __future__ import annotations

from typing import Any

from tilewright.language.values import builtin, constexpr

__all__ = ["num_threads", "num_warps"]

LANES_OF_CUDA = 32
"""Threads of a warp on targets without warps, where kernels that were written for CUDA run."""


@builtin
def num_warps(*, _semantic: Any = None) -> constexpr:
    """The launch option `num_warps`, at compile time."""
    return constexpr(_semantic.options.num_warps)


@builtin
def num_threads(*, _semantic: Any = None) -> constexpr:
    """The number of threads per program, those of `num_warps` warps of the target, at compile time.
    A target without warps, such as the CPU, counts 32 for each."""
    return constexpr(_semantic.options.num_warps * (_semantic.options.lanes or LANES_OF_CUDA))
