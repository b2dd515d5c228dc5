"""Sums that start anew at marked elements. Needs only NumPy: python examples/segmented_scan.py

Such running sums go over sequences of different lengths that lie one behind the other, without a
loop over the sequences: words packed into a batch, events of many users. A flag marks where one
begins.

`tl.associative_scan` takes a function that combines two neighbouring parts. A part is described by
two numbers: does a sequence begin in it, and what is the sum since the last beginning? The function
below combines these descriptions; that it is associative is all that a scan asks for.

A scan runs within a program, and an array is longer than a tile. So three kernels run: one finds
the description of each share of the array, one scans the descriptions, and one scans the shares,
each from what came before it. All that goes to memory in between is two numbers a share.
"""

from __future__ import annotations

import math

import numpy as np
from report import QUICK, check, compare_speed

import tilewright as tw
import tilewright.language as tl

SHARE = 4096
SHARES = 1024  # descriptions that are scanned at a time


@tw.jit
def combine(left_begins, left_sum, right_begins, right_sum):
    return left_begins | right_begins, right_sum + tl.where(right_begins, 0.0, left_sum)


@tw.jit
def describe_kernel(x_ptr, begins_ptr, any_ptr, sum_ptr, n, SHARE: tl.constexpr):
    place = tl.arange(0, SHARE)
    index = tl.program_id(0) * SHARE + place
    x = tl.load(x_ptr + index, mask=index < n, other=0.0)
    begins = tl.load(begins_ptr + index, mask=index < n, other=False)
    last = tl.max(tl.where(begins, place, -1), axis=0)
    tl.store(any_ptr + tl.program_id(0), last >= 0)
    tl.store(sum_ptr + tl.program_id(0), tl.sum(tl.where(place >= last, x, 0.0), axis=0))


@tw.jit
def carry_kernel(any_ptr, sum_ptr, carry_ptr, shares, SHARES: tl.constexpr):
    carry = 0.0
    for start in range(0, shares, SHARES):
        share = start + tl.arange(0, SHARES)
        begins = tl.load(any_ptr + share, mask=share < shares, other=False)
        total = tl.load(sum_ptr + share, mask=share < shares, other=0.0)
        begins, total = tl.associative_scan((begins, total), 0, combine)
        total += tl.where(begins, 0.0, carry)
        # Of each share, what the next one starts from.
        tl.store(carry_ptr + share + 1, total, mask=share + 1 < shares)
        carry = total[-1]


@tw.jit
def scan_kernel(x_ptr, begins_ptr, carry_ptr, out_ptr, n, SHARE: tl.constexpr):
    index = tl.program_id(0) * SHARE + tl.arange(0, SHARE)
    x = tl.load(x_ptr + index, mask=index < n, other=0.0)
    begins = tl.load(begins_ptr + index, mask=index < n, other=False)
    begins, total = tl.associative_scan((begins, x), 0, combine)
    carry = tl.load(carry_ptr + tl.program_id(0))
    tl.store(out_ptr + index, total + tl.where(begins, 0.0, carry), mask=index < n)


__tilewright_signatures__ = {
    "describe_kernel": (
        "x_ptr=*fp32:16, begins_ptr=*i1:16, any_ptr=*i1:16, sum_ptr=*fp32:16, n=i32",
        {"SHARE": SHARE},
    ),
    "carry_kernel": (
        "any_ptr=*i1:16, sum_ptr=*fp32:16, carry_ptr=*fp32:16, shares=i32",
        {"SHARES": SHARES},
    ),
    "scan_kernel": (
        "x_ptr=*fp32:16, begins_ptr=*i1:16, carry_ptr=*fp32:16, out_ptr=*fp32:16, n=i32",
        {"SHARE": SHARE},
    ),
}


def segmented_sums(x: np.ndarray, begins: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Into `out` the sums of `x`, fp32, up to each element, since the last where `begins`, bool."""
    n, shares = x.size, tw.cdiv(x.size, SHARE)
    has, total = np.empty(shares, np.bool_), np.empty(shares, np.float32)
    carry = np.zeros(shares, np.float32)
    describe_kernel[(shares,)](x, begins, has, total, n, SHARE=SHARE)
    carry_kernel[(1,)](has, total, carry, shares, SHARES=SHARES)
    scan_kernel[(shares,)](x, begins, carry, out, n, SHARE=SHARE)
    return out


def numpy_segmented_sums(x: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The running sum of all, less what it was where the sequence began; in fp64, for that."""
    total = np.cumsum(x, dtype=np.float64)
    starts = np.flatnonzero(begins)
    before = np.concatenate(([0.0], (total - x)[starts]))
    lengths = np.diff(np.concatenate(([0], starts, [x.size])))
    return (total - np.repeat(before, lengths)).astype(np.float32)


def main() -> None:
    n = 10_007 if QUICK else 5_000_011
    rng = np.random.default_rng(0)
    x = rng.standard_normal(n, dtype=np.float32)
    out = np.empty_like(x)
    for length in (50, 100_000):
        begins = rng.random(n) < 1 / length
        expected = numpy_segmented_sums(x, begins)
        what = f"sums of {n} elements in sequences of about {length}"
        # A sum passes through log2(SHARE * SHARES) additions or so, each rounded by 2**-24 of it
        # at most: how many exactly depends on the width of the processor's vectors.
        bound = 2.0**-24 * float(np.abs(expected).max()) * math.log2(SHARE * SHARES)
        check(what, segmented_sums(x, begins, out), expected, bound)
    begins = rng.random(n) < 1 / 50
    compare_speed({
        "tilewright": lambda: segmented_sums(x, begins, out),
        "NumPy": lambda: numpy_segmented_sums(x, begins),
    })  # fmt: skip


if __name__ == "__main__":
    main()
