"""Compile-time functions that libraries import from the language modules."""

from __future__ import annotations

from tilewright.runtime.jit import constexpr_function


@constexpr_function
def is_power_of_two(i: int) -> bool:
    """Whether a compile-time int is a power of two."""
    return i > 0 and i & (i - 1) == 0


@constexpr_function
def log2(i: int) -> int:
    """The logarithm to base 2 of a compile-time int, rounded down."""
    return i.bit_length() - 1
