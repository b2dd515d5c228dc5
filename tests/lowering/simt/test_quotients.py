"""One division serves a run of consecutive dividends, whatever the signs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.lowering.simt.harness import assert_same

TYPES = {"i32": np.int32, "u32": np.uint32, "i64": np.int64, "i16": np.int16}
KERNEL = """
    def kernel(starts, divisors, quotients, rests, count):
        e = starts.dtype.element_ty
        for i in range(count):
            n = tl.multiple_of(tl.load(starts + i), 8)
            x = n + tl.arange(0, 32).to(e)
            {divisor}
            to = i * 32 + tl.arange(0, 32)
            tl.store(quotients + to, x // d)
            tl.store(rests + to, x % d)
"""
DIVISORS = {
    "scalar": "d = tl.multiple_of(tl.load(divisors + i), 4)",
    "differs": "d = tl.where(tl.arange(0, 32) < 6, 4, 8).to(e)",
    "constant": "d = tl.full((), 24, e)",
    "power of two": "d = tl.full((), 8, e)",
    "known": "d = tl.maximum(tl.multiple_of(tl.load(divisors + i), 4), 4)",
}


def operands(dtype: type[np.integer]) -> tuple[np.ndarray, np.ndarray]:
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    starts = [0, 8, 40, 96, high - 31, *([-8, -16, -24, -64, -96, low] if low else [high // 2 + 1])]
    divisors = [4, 8, 24, 40, 0, *([-4, -24, low] if low else [high // 2 + 1])]
    pairs = np.array([*product(starts, divisors)], object)
    return pairs[:, 0].astype(dtype), pairs[:, 1].astype(dtype)


@pytest.mark.parametrize("divisor", DIVISORS)
@pytest.mark.parametrize("short", TYPES)
def test_quotients_and_remainders_of_runs(short: str, divisor: str) -> None:
    starts, divisors = operands(TYPES[short])
    kernel = kernel_from(KERNEL.format(divisor=DIVISORS[divisor]))
    pointers = dict.fromkeys(("starts", "divisors", "quotients", "rests"), f"*{short}")
    module = build(kernel, {**pointers, "count": "i32"})
    for pointer in module.entry.arg_attrs[:4]:
        pointer["divisibility"] = 16
    made = [np.zeros(32 * len(starts), TYPES[short]) for _ in range(2)]
    args = [starts, divisors, *made, np.int32(len(starts))]
    assert_same(module, (1, 1, 1), args, warps=1, lanes=4)
