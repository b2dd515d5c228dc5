"""The counter-based random number generator Philox-4x32 (and 4x64), with the reference bits.

J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011: the round function is in
figure 2, the multipliers and the Weyl increments of the key in section 4.2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.ir.types import FP32, I32, I64, U32, U64, int_type, shape_of
from tilewright.language.semantic import arith, convert
from tilewright.language.semantic.context import Semantic, static_assert
from tilewright.language.semantic.convert import cast, compile_time_int, constant, to_tensor
from tilewright.language.values import tensor, tuple
from tilewright.ops.math import Cos, Log, Sin, Sqrt

TWO_PI = 6.283185307179586
# The largest factors whose product with 2^31 - 1, or 2^63 - 1, rounds to less than 1 in fp32.
SCALE32 = 4.6566127342e-10
SCALE64 = 1.0842020432385337e-19
SMALLEST_UNIFORM = 1.0e-7  # keeps the logarithm of Box-Muller finite


class _Constants(NamedTuple):
    multiply_a: int
    multiply_b: int
    increment_a: int
    increment_b: int


CONSTANTS = {
    32: _Constants(0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85),
    64: _Constants(0xD2E7470EE14C6C93, 0xCA5A826395121157, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
}

Words = list[tensor]


def philox_impl(s: Semantic, counters: Words, keys: Words, rounds: Any) -> tuple:
    """The four words after `rounds` rounds. Counters and keys are unsigned, of one width."""
    element = counters[0].dtype
    for word in (*counters, *keys):
        if not word.dtype.is_int():
            raise ValueError(f"philox takes integers, not {word.dtype}")
    if element.primitive_bitwidth not in CONSTANTS:
        raise ValueError(f"philox takes counters of 32 or 64 bits, not {element}")
    c = CONSTANTS[element.primitive_bitwidth]
    c0, c1, c2, c3 = counters
    k0, k1 = keys
    for _ in range(compile_time_int(rounds, "n_rounds")):
        a, b = c0, c2
        c0 = arith.bit_xor(s, arith.bit_xor(s, arith.umulhi(s, c.multiply_b, b), c1), k0)
        c2 = arith.bit_xor(s, arith.bit_xor(s, arith.umulhi(s, c.multiply_a, a), c3), k1)
        c1 = arith.mul(s, c.multiply_b, b, sanitize=False)
        c3 = arith.mul(s, c.multiply_a, a, sanitize=False)
        k0 = arith.add(s, k0, c.increment_a, sanitize=False)
        k1 = arith.add(s, k1, c.increment_b, sanitize=False)
    return tuple([c0, c1, c2, c3])


def _word(s: Semantic, x: tensor) -> tensor:
    """The bits of a counter, which in Triton may be a float of 32 bits."""
    if x.dtype.primitive_bitwidth not in CONSTANTS or not (x.dtype.is_int() or x.dtype is FP32):
        raise ValueError(f"philox takes counters of 32 or 64 bits, not {x.dtype}")
    return convert.bitcast(s, x, int_type(x.dtype.primitive_bitwidth, False))


def philox(s: Semantic, seed: Any, counters: list[Any], rounds: Any) -> tuple:
    """Four random words for each element of the counters."""
    words = [_word(s, to_tensor(s, c)) for c in counters]
    seed = to_tensor(s, seed)
    static_assert(seed.dtype.is_int(), "seed must be an integer")
    seed = cast(s, seed, U64)
    if words[0].dtype.primitive_bitwidth == 32:
        low = cast(s, seed, U32)
        high = cast(s, arith.shr(s, seed, 32), U32)
        return philox_impl(s, words, [low, high], rounds)
    zero = constant(s, 0, U64, shape_of(seed.type))
    return philox_impl(s, words, [seed, zero], rounds)


def randint4x(s: Semantic, seed: Any, offset: Any, rounds: Any) -> tuple:
    """Four uint32 tiles; the counter is the zero-extended offset."""
    offset = to_tensor(s, offset)
    element = offset.dtype
    whole = element.is_int() or element.primitive_bitwidth <= 32
    static_assert(whole, "offset must be an integer, or a float of at most 32 bits")
    c0 = cast(s, offset, U32)
    zero = constant(s, 0, U32, shape_of(offset.type))
    c1 = zero
    if element.primitive_bitwidth > 32:
        c1 = cast(s, arith.shr(s, convert.bitcast(s, offset, U64), 32), U32)
    return philox(s, seed, [c0, c1, zero, zero], rounds)


def uint_to_uniform_float(s: Semantic, x: Any) -> tensor:
    """A uniform fp32 in [0, 1) from the bits of an integer of 32 or 64 bits."""
    value = to_tensor(s, x)
    wide = value.dtype.primitive_bitwidth == 64
    signed = convert.bitcast(s, value, I64 if wide else I32)
    negative = arith.lt(s, signed, 0)
    folded = arith.where(s, negative, arith.sub(s, arith.neg(s, signed), 1, sanitize=False), signed)
    scale = SCALE64 if wide else SCALE32
    return arith.mul(s, cast(s, folded, FP32), scale)


def pair_uniform_to_normal(s: Semantic, u1: Any, u2: Any) -> tuple:
    """Two standard normal values from two uniform ones (Box and Muller, 1958)."""
    first = arith.maximum(s, SMALLEST_UNIFORM, u1)
    angle = arith.mul(s, u2, TWO_PI)
    radius = arith.unary_math(s, Sqrt, arith.mul(s, -2.0, arith.unary_math(s, Log, first)))
    cosine = arith.mul(s, radius, arith.unary_math(s, Cos, angle))
    return tuple([cosine, arith.mul(s, radius, arith.unary_math(s, Sin, angle))])


def rand4x(s: Semantic, seed: Any, offset: Any, rounds: Any) -> tuple:
    words = randint4x(s, seed, offset, rounds)
    return tuple([uint_to_uniform_float(s, w) for w in words])


def rand(s: Semantic, seed: Any, offset: Any, rounds: Any) -> tensor:
    return uint_to_uniform_float(s, randint4x(s, seed, offset, rounds)[0])


def randn(s: Semantic, seed: Any, offset: Any, rounds: Any) -> tensor:
    words = randint4x(s, seed, offset, rounds)
    u1, u2 = uint_to_uniform_float(s, words[0]), uint_to_uniform_float(s, words[1])
    return pair_uniform_to_normal(s, u1, u2)[0]


def randn4x(s: Semantic, seed: Any, offset: Any, rounds: Any) -> tuple:
    u = rand4x(s, seed, offset, rounds)
    first = pair_uniform_to_normal(s, u[0], u[1])
    second = pair_uniform_to_normal(s, u[2], u[3])
    return tuple([*first, *second])
