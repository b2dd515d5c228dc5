"""Histogram equalisation of a grey image. Needs only NumPy: python examples/equalize.py

Each pixel's tone is replaced by the fraction of pixels that are not brighter (the cumulative
distribution), which increases the contrast of images that use few tones. There are three kernels,
as each needs the complete result of the one before:

- Each program computes the histogram of a part of the image with `tl.histogram`, and adds it to the
  global histogram: 256 atomic additions per part instead of one per pixel.
- One program computes a table of 256 new tones from the cumulative sum of the histogram.
- Programs look each pixel up in the table.
"""

from __future__ import annotations

import numpy as np
from report import QUICK, check, compare_speed

import tilewright as tw
import tilewright.language as tl

SHARE, BLOCK = 65536, 4096


@tw.jit
def count_kernel(image_ptr, count_ptr, n, SHARE: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * SHARE
    counts = tl.zeros((256,), tl.int32)
    for start in range(0, SHARE, BLOCK):
        index = first + start + tl.arange(0, BLOCK)
        tone = tl.load(image_ptr + index, mask=index < n)
        # Without the mask, elements after the end would be counted as well.
        counts += tl.histogram(tone.to(tl.int32), 256, mask=index < n)
    tl.atomic_add(count_ptr + tl.arange(0, 256), counts, sem="relaxed")


@tw.jit
def table_kernel(count_ptr, table_ptr, n):
    tone = tl.arange(0, 256)
    count = tl.load(count_ptr + tone)
    not_brighter = tl.cumsum(count, axis=0)
    # The darkest tone that occurs becomes 0, the brightest 255.
    darkest = tl.min(tl.where(count > 0, not_brighter, n), axis=0)
    span = tl.maximum(n - darkest, 1).to(tl.int64)  # an image of a single tone becomes 0
    rank = tl.maximum(not_brighter - darkest, 0).to(tl.int64)
    tl.store(table_ptr + tone, (rank * 255 + span // 2) // span)


@tw.jit
def look_up_kernel(image_ptr, table_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    tone = tl.load(image_ptr + index, mask=inside, other=0)
    tl.store(out_ptr + index, tl.load(table_ptr + tone.to(tl.int32)), mask=inside)


__tilewright_signatures__ = {
    "count_kernel": (
        "image_ptr=*u8:16, count_ptr=*i32:16, n=i32",
        {"SHARE": SHARE, "BLOCK": BLOCK},
    ),
    "table_kernel": ("count_ptr=*i32:16, table_ptr=*u8:16, n=i32", {}),
    "look_up_kernel": (
        "image_ptr=*u8:16, table_ptr=*u8:16, out_ptr=*u8:16, n=i32",
        {"BLOCK": BLOCK},
    ),
}


def equalize(image: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Equalise `image` into `out`; both are contiguous uint8 arrays."""
    n = image.size
    counts, table = np.zeros(256, np.int32), np.empty(256, np.uint8)
    count_kernel[(tw.cdiv(n, SHARE),)](image, counts, n, SHARE=SHARE, BLOCK=BLOCK)
    table_kernel[(1,)](counts, table, n)
    look_up_kernel[(tw.cdiv(n, BLOCK),)](image, table, out, n, BLOCK=BLOCK)
    return out


def numpy_equalize(image: np.ndarray) -> np.ndarray:
    counts = np.bincount(image.ravel(), minlength=256)
    not_brighter = np.cumsum(counts)
    darkest = not_brighter[counts > 0][0]
    span = max(image.size - darkest, 1)
    rank = np.maximum(not_brighter - darkest, 0)
    return ((rank * 255 + span // 2) // span).astype(np.uint8)[image]


def main() -> None:
    shape = (123, 457) if QUICK else (2160, 3841)
    rng = np.random.default_rng(0)
    image = np.clip(rng.normal(90, 12, shape), 0, 255).astype(np.uint8)  # dark, of low contrast
    out = np.empty_like(image)
    expected = numpy_equalize(image)
    check(f"equalised image of {shape[0]}x{shape[1]}", equalize(image, out), expected, 0)
    print(f"tones: {image.min()} to {image.max()} become {out.min()} to {out.max()}")
    flat = np.full((3, 5), 200, np.uint8)
    check("a single tone", equalize(flat, np.empty_like(flat)), numpy_equalize(flat), 0)
    rivals = {"tilewright": lambda: equalize(image, out), "NumPy": lambda: numpy_equalize(image)}
    compare_speed(rivals)


if __name__ == "__main__":
    main()
