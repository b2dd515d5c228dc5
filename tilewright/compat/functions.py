"""Functions that libraries import from the language modules: compile-time ones, and the combine
functions of reductions.
"""

from __future__ import annotations

from typing import Any

from tilewright import language as tl
from tilewright.runtime.jit import constexpr_function, jit


@constexpr_function
def is_power_of_two(i: int) -> bool:
    """Whether a compile-time int is a power of two."""
    return i > 0 and i & (i - 1) == 0


@constexpr_function
def log2(i: int) -> int:
    """The logarithm to base 2 of a compile-time int, rounded down."""
    return i.bit_length() - 1


@jit
def sum_combine(a: Any, b: Any) -> Any:
    return a + b


@jit
def elementwise_max(a: Any, b: Any) -> Any:
    return tl.maximum(a, b)


@jit
def elementwise_min(a: Any, b: Any) -> Any:
    return tl.minimum(a, b)


@jit
def xor_combine(a: Any, b: Any) -> Any:
    return a ^ b


@jit
def or_combine(a: Any, b: Any) -> Any:
    return a | b
