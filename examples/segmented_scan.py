"""Segmented prefix sums: they restart at flags. Needs only NumPy: python examples/segmented_scan.py

Sequences of different lengths are stored one after the other (tokens packed into a batch, events of
many users); a flag marks the first element of each. One scan computes all prefix sums, without a
loop over the sequences.

`tl.associative_scan` takes an associative function that combines two adjacent parts. A part is
summarised by a flag and a number: whether a sequence begins in it, and the sum since the last
beginning.

A scan runs within one program, and the array is longer than a tile. Hence three kernels: one
summarises each block of the array, one scans the summaries, and one scans the blocks, each with the
carry of the preceding blocks. Only the summaries and carries go through memory in between.
"""

from __future__ import annotations

import math

import numpy as np
from report import QUICK, check, compare_speed

import tilewright as tw
import tilewright.language as tl

SHARE = 4096
SHARES = 1024  # summaries that are scanned at a time


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
        # The inclusive scan of a block is the carry into the next one.
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
    """Store the segmented prefix sums of `x` (fp32) to `out`; `begins` (bool) has the flags."""
    n, shares = x.size, tw.cdiv(x.size, SHARE)
    has, total = np.empty(shares, np.bool_), np.empty(shares, np.float32)
    carry = np.zeros(shares, np.float32)
    describe_kernel[(shares,)](x, begins, has, total, n, SHARE=SHARE)
    carry_kernel[(1,)](has, total, carry, shares, SHARES=SHARES)
    scan_kernel[(shares,)](x, begins, carry, out, n, SHARE=SHARE)
    return out


def numpy_segmented_sums(x: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Global prefix sums minus those before each sequence; in fp64 against cancellation."""
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
        # Each sum goes through at most SHARE + SHARES additions, fewer the wider the processor's
        # vectors are, each with a relative error of at most 2**-24. The errors are independent, so
        # they grow with the square root of the number of additions.
        bound = 2.0**-24 * float(np.abs(expected).max()) * math.sqrt(SHARE + SHARES)
        check(what, segmented_sums(x, begins, out), expected, bound)
    begins = rng.random(n) < 1 / 50
    compare_speed({
        "tilewright": lambda: segmented_sums(x, begins, out),
        "NumPy": lambda: numpy_segmented_sums(x, begins),
    })  # fmt: skip


if __name__ == "__main__":
    main()
