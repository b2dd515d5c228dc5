"""A kernel that selects between its elements and zeros, for the tests of each target.

Instructions for minima and maxima order -0.0 below 0.0, and so select another zero than it does,
except in the second of its three parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl

PARTS = 3


@tw.jit
def selected_zeros(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.where(x < 0.0, x, 0.0))
    tl.store(out_ptr + BLOCK + i, tl.where(x > 0.0, x, 0.0))
    tl.store(out_ptr + 2 * BLOCK + i, tl.where(x > -0.0, x, -0.0))


def signature(type: str) -> dict[str, str]:
    return {"x_ptr": f"*{type}", "out_ptr": f"*{type}"}


def special_values(dtype: np.dtype[Any], size: int) -> np.ndarray:
    return np.resize(np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf], dtype), size)


def expected(x: np.ndarray) -> np.ndarray:
    """The parts, one after the other."""
    zero = x.dtype.type(0)
    return np.concatenate(
        [np.where(x < 0, x, zero), np.where(x > 0, x, zero), np.where(x > 0, x, -zero)]
    )
