"""Arguments of the suite's programs: the same in every run."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tilewright.conformance.values import floats_in, random_array
from tilewright.ir.types import BY_SHORT, SCALARS, Tile

Array = np.ndarray[Any, Any]

INTEGERS = tuple(t.short for t in SCALARS if t.is_int() and not t.is_bool())
SIGNED = tuple(t.short for t in SCALARS if t.is_int_signed() and not t.is_bool())
FLOATS = ("fp16", "bf16", "fp32", "fp64")
FP8 = tuple(t.short for t in SCALARS if t.is_fp8())
EVERY = tuple(t.short for t in SCALARS)


def rng_of(*seeds: object) -> np.random.Generator:
    """A generator that depends on the values only, in every process."""
    return np.random.default_rng(zlib.crc32(repr(seeds).encode()))


def specials(type: str, count: int, seed: object = 0) -> Array:
    """A third special values (NaN, infinities, zeros of both signs, extremes), the rest random."""
    return random_array(Tile((count,), BY_SHORT[type]), rng_of(type, count, seed))


def positive(type: str, count: int, seed: object = 0) -> Array:
    """Positive floats of moderate size, with 0, 1, an infinity and NaN among them."""
    values = np.exp(rng_of(type, count, seed).normal(0, 1, count))
    values[: min(4, count)] = [0, 1, np.inf, np.nan][:count]
    return floats_in(values, BY_SHORT[type])


def integral(type: str, shape: tuple[int, ...], seed: object = 0, bound: int = 3) -> Array:
    """Small whole numbers, of which sums and products are exact in any order."""
    element, rng = BY_SHORT[type], rng_of(type, shape, seed)
    if element.is_bool():
        return np.asarray(rng.random(shape) < 0.5)
    low = -bound if element.is_int_signed() or element.is_floating() else 0
    values = rng.integers(low, bound + 1, shape)
    if element.is_floating():
        return floats_in(values.astype(np.float32), element)
    return values.astype(element.numpy)


def zeros(type: str, *shape: int) -> Array:
    """An array of zeros."""
    return np.zeros(shape, BY_SHORT[type].numpy)
