"""Quotients by the steps that LLVM emits, at the ends of the range."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.amd_emulator.floats import div_fixup, div_fmas, div_scale, fma


@pytest.mark.parametrize("type", [np.float32, np.float64])
@np.errstate(all="ignore")
def test_quotients_at_the_ends_of_the_range(type: Any) -> None:
    info = np.finfo(type)
    ends = [info.max, info.tiny, info.smallest_subnormal, 1.0, 3.0, np.inf, 0.0]
    c, b = (np.array(row, type) for row in zip(*product(ends, ends), strict=True))
    one = np.ones_like(b)
    below, _ = div_scale(b, b, c)
    above, flag = div_scale(c, b, c)
    inverse = 1 / below
    inverse = fma(fma(-below, inverse, one), inverse, inverse)
    quotient = above * inverse
    rest = fma(-below, quotient, above)
    found = div_fixup(div_fmas(rest, inverse, quotient, flag), b, c)
    np.testing.assert_allclose(found, c / b, rtol=2 * info.eps, atol=2 * info.smallest_subnormal)


@pytest.mark.parametrize("type", [np.float32, np.float64])
@np.errstate(all="ignore")
def test_subnormal_quotients_are_rounded_once(type: Any) -> None:
    rng, info = np.random.default_rng(0), np.finfo(type)
    signs = rng.choice([-1.0, 1.0], 2000)
    c = (rng.uniform(1, 2, 2000) * signs).astype(type)
    b = rng.uniform(1, 2, 2000).astype(type)
    # The numerator is normal, and the quotient subnormal or next to it.
    half = 2.0 ** (info.minexp // 2)
    c, b = c * type(half), b / type(half) * (2.0 ** rng.integers(-2, info.nmant, 2000)).astype(type)
    below, _ = div_scale(b, b, c)
    above, flag = div_scale(c, b, c)
    inverse = 1 / below
    inverse = fma(fma(-below, inverse, np.ones_like(b)), inverse, inverse)
    quotient = above * inverse
    quotient = fma(fma(-below, quotient, above), inverse, quotient)
    rest = fma(-below, quotient, above)
    found = div_fixup(div_fmas(rest, inverse, quotient, flag), b, c)
    assert np.sum(np.abs(found) < info.tiny) > 1000
    np.testing.assert_array_equal(found, c / b)
