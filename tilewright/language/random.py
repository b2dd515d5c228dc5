"""Counter-based random numbers: equal seeds and offsets give equal numbers."""

from __future__ import annotations

from typing import Any

from tilewright.language import semantic
from tilewright.language.values import builtin, constexpr, tensor, tuple

__all__ = [
    "pair_uniform_to_normal", "philox", "philox_impl", "rand", "rand4x",
    "randint", "randint4x", "randn", "randn4x", "uint_to_uniform_float",
]  # fmt: skip

N_ROUNDS_DEFAULT = constexpr(10)


@builtin
def philox_impl(
    c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, n_rounds: Any = N_ROUNDS_DEFAULT, *,
    _semantic: Any = None,
) -> tuple:  # fmt: skip
    """`n_rounds` rounds of Philox on unsigned counters and keys of one width."""
    counters = [semantic.to_tensor(_semantic, c) for c in (c0, c1, c2, c3)]
    keys = [semantic.to_tensor(_semantic, k) for k in (k0, k1)]
    return semantic.random.philox_impl(_semantic, counters, keys, n_rounds)


@builtin
def philox(
    seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: Any = N_ROUNDS_DEFAULT, *,
    _semantic: Any = None,
) -> tuple:  # fmt: skip
    """Four random unsigned words for each element of the counters."""
    return semantic.random.philox(_semantic, seed, [c0, c1, c2, c3], n_rounds)


@builtin
def randint4x(
    seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT, *, _semantic: Any = None
) -> tuple:
    """Four tiles of random uint32 in the shape of `offset`; the cheapest entry point."""
    return semantic.random.randint4x(_semantic, seed, offset, n_rounds)


@builtin
def randint(
    seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT, *, _semantic: Any = None
) -> tensor:
    """Random uint32 in the shape of `offset`."""
    return semantic.random.randint4x(_semantic, seed, offset, n_rounds)[0]


@builtin
def uint_to_uniform_float(x: Any, *, _semantic: Any = None) -> tensor:
    """Uniform fp32 in [0, 1) from random integers of 32 or 64 bits."""
    return semantic.random.uint_to_uniform_float(_semantic, x)


@builtin
def rand(
    seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT, *, _semantic: Any = None
) -> tensor:
    """Uniform fp32 in [0, 1) in the shape of `offset`."""
    return semantic.random.rand(_semantic, seed, offset, n_rounds)


@builtin
def rand4x(
    seed: Any, offsets: Any, n_rounds: Any = N_ROUNDS_DEFAULT, *, _semantic: Any = None
) -> tuple:
    """Four tiles of uniform fp32 in [0, 1)."""
    return semantic.random.rand4x(_semantic, seed, offsets, n_rounds)


@builtin
def pair_uniform_to_normal(u1: Any, u2: Any, *, _semantic: Any = None) -> tuple:
    """Two standard normal values from two uniform ones."""
    return semantic.random.pair_uniform_to_normal(_semantic, u1, u2)


@builtin
def randn(
    seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT, *, _semantic: Any = None
) -> tensor:
    """Standard normal fp32 in the shape of `offset`."""
    return semantic.random.randn(_semantic, seed, offset, n_rounds)


@builtin
def randn4x(
    seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT, *, _semantic: Any = None
) -> tuple:
    """Four tiles of standard normal fp32."""
    return semantic.random.randn4x(_semantic, seed, offset, n_rounds)
