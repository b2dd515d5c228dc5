"""What a conversion to fp8 must give, found among the values that the type has.

Not by arithmetic on bits, as all that is tested does it: the finite values of the type stand in a
sorted list, and a number's neighbours in it, compared in fp64 (where everything here is exact),
decide.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.exact import FORMATS, Format
from tilewright.ir import types as ir
from tilewright.ir.types import DType

FP8 = [t for t in ir.SCALARS if t.is_fp8()]
WIDER = [ir.FP16, ir.BF16, ir.FP32, ir.FP64]


def values(f: Format) -> np.ndarray:
    """The value of each pattern, as fp64."""
    return np.array([f.decode(p) for p in range(1 << f.bits)])


def _magnitudes(f: Format) -> np.ndarray:
    """The finite values from 0 up; the place of a value is its pattern."""
    return np.array([f.decode(p) for p in range(f.largest + 1)])


def narrowed(numbers: np.ndarray, to: DType, rounding: str) -> np.ndarray:
    """The patterns that numbers of any float type become, saturated; every NaN as one."""
    f = FORMATS[to.short]
    with np.errstate(invalid="ignore"):
        wide = numbers.astype(np.float64)
    magnitude = np.abs(wide)
    if f.through:  # truncated first
        steps = _magnitudes(FORMATS[f.through])
        magnitude = steps[np.searchsorted(steps, magnitude, "right") - 1]
    known = _magnitudes(f)
    below = np.minimum(np.searchsorted(known, magnitude, "right") - 1, len(known) - 1)
    above = np.minimum(below + 1, len(known) - 1)
    middle = (known[below] + known[above]) / 2
    up = (magnitude > middle) | ((magnitude == middle) & (below % 2 == 1))
    found = np.where(up & (rounding == "rtne"), above, below)
    negative = np.signbit(wide) & ~(f.fnuz & (found == 0))
    found = found | np.where(negative, f.sign_bit, 0)
    return np.where(np.isnan(wide), f.nan, found).astype(np.uint8)


def canonical(patterns: np.ndarray, to: DType) -> np.ndarray:
    """The patterns, every NaN as one."""
    f = FORMATS[to.short]
    return np.array([f.canonical(p) for p in range(256)], np.uint8)[patterns]


def inputs(source: DType, to: DType) -> Any:
    """All numbers of 16 bits or fewer. Of wider types: the values of `to`, what lies half way
    between them and right beside both, all powers of two, extremes, NaN, infinities, and random
    patterns."""
    bits = source.primitive_bitwidth
    if bits <= 16:
        return np.arange(1 << bits).astype(f"u{bits // 8}").view(source.numpy)
    known = _magnitudes(FORMATS[to.short])
    if to == ir.FP8E4B15:  # where truncating to fp16 decides
        halves = _magnitudes(FORMATS["fp16"])
        known = np.concatenate([known, halves[halves <= 2][::13]])
    points = np.concatenate([known, (known[1:] + known[:-1]) / 2])
    exponents = np.arange(-1074 if bits == 64 else -149, 1023 if bits == 64 else 127)
    points = np.concatenate([points, 2.0**exponents]).astype(source.numpy)
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 256, 4096 * bits // 8, dtype=np.uint8).view(source.numpy)
    near = rng.standard_normal(4096) * 2.0 ** rng.integers(-20, 18, 4096)
    special = [np.inf, np.nan, 0.0, np.finfo(source.numpy).max, np.finfo(source.numpy).tiny]
    with np.errstate(all="ignore"):
        beside = [np.nextafter(points, t).astype(source.numpy) for t in (np.inf, -np.inf)]
        both = np.concatenate([points, *beside, near.astype(source.numpy), special])
        return np.concatenate([both, -both, raw]).astype(source.numpy)
