"""The number of threads per program, according to the launch options, on all targets."""

from __future__ import annotations

from typing import Any

from tilewright.language.values import builtin, constexpr

__all__ = ["num_threads", "num_warps"]

WARP_SIZE = 32


@builtin
def num_warps(*, _semantic: Any = None) -> constexpr:
    """The launch option `num_warps`, at compile time."""
    return constexpr(_semantic.options.num_warps)


@builtin
def num_threads(*, _semantic: Any = None) -> constexpr:
    """The number of threads per program, 32 for each of `num_warps`, at compile time."""
    return constexpr(_semantic.options.num_warps * WARP_SIZE)
