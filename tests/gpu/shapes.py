"""Jobs for the GPU tests: sorts, histograms, functions of elements, and tiles of any extents."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tests.gpu import recipes
from tests.gpu.programs import Job, Program

WARPS = (1, 2, 4, 8, 16)
SORTED = ("i8", "u8", "i16", "i32", "u32", "i64", "u64", "fp16", "bf16", "fp32", "fp64", "fp8e5")


def sorts() -> Iterator[Job]:
    warps = cycle(WARPS)
    shapes = ((1, 64), (8, 8), (2, 512), (128, 32), (3, 20), (1, 1000))
    for type, shape in product(SORTED, shapes):
        for call in ("tl.sort(a)", "tl.sort(a, descending=True)", "tl.bitonic_merge(tl.sort(a))"):
            params = call, ((type, shape),), (type, shape)
            yield Job(recipes.expression, params, {"num_warps": next(warps)})
    for type, shape, k in product(("i32", "fp32", "fp16"), ((4, 256), (16, 32), (3, 100)), (1, 8)):
        for falling in (True, False):
            call = f"tl.topk(a, {k}, descending={falling})"
            params = call, ((type, shape),), (type, (shape[0], k))
            yield Job(recipes.expression, params, {"num_warps": next(warps)})
    for length, bins, count in product((64, 1000, 4096), (1, 10, 256), WARPS):
        near = f"tl.histogram(a & 15, {bins})"
        call = f"{near} + tl.histogram(a, {bins}, mask=a < 3) * 5000"
        params = call, (("i32", (length,)),), ("i32", (bins,))
        yield Job(recipes.expression, params, {"num_warps": count})


@tw.jit
def steps_to_one(n):
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@tw.jit
def in_order(x0, x1, y0, y1):
    """Two neighbours, in order; and whether they were swapped."""
    if x0 > x1:
        return x1, x0, y1, y0
    return x0, x1, y0, y1


@tw.jit
def map_kernel(x_ptr, y_ptr, steps_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    place = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    x, y = tl.load(x_ptr + place), tl.load(y_ptr + place)
    tl.store(steps_ptr + place, tl.map_elementwise(steps_to_one, x))
    low, high = tl.map_elementwise(in_order, x, y, pack=2)
    tl.store(x_ptr + place, low)
    tl.store(y_ptr + place, high)


def mapped(rows: int, columns: int) -> Program:
    rng = recipes.rng_of(rows, columns)
    x = rng.integers(0, 30, (rows, columns)).astype(np.int32)
    y = rng.normal(size=x.shape).astype(np.float32)
    constants = {"ROWS": rows, "COLUMNS": columns}
    return Program(map_kernel, [x, y, np.zeros_like(x)], constants)


def functions_of_elements() -> Iterator[Job]:
    for shape, warps in product(((4, 64), (1, 8), (3, 10), (6, 3), (16, 64)), WARPS):
        yield Job(mapped, shape, {"num_warps": warps})


# The text, the shape of the operand, the shape of the result.
UNEVEN: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (
    ("tl.reshape(a, (5, 12))", (3, 20), (5, 12)),
    ("tl.ravel(a)", (3, 20), (60,)),
    ("tl.trans(a)", (40, 24), (24, 40)),
    ("tl.flip(a, 0)", (40, 24), (40, 24)),
    ("tl.cat(a, a, dim=1)", (3, 20), (3, 40)),
    ("tl.join(a, a)", (3, 20), (3, 20, 2)),
    ("tl.gather(a, tl.arange(0, 5)[None] + tl.arange(0, 3)[:, None], 1)", (3, 20), (3, 5)),
    ("tl.broadcast_to(a[:, None], (3, 7, 20))", (3, 20), (3, 7, 20)),
    ("tl.sum(a, 1)", (100, 24), (100,)),
    ("tl.sum(a, 0)", (100, 24), (24,)),
    ("tl.max(a, 0)", (100, 24), (24,)),
    ("tl.min(a, 1)", (5, 300), (5,)),
    ("tl.cumsum(a, 1)", (5, 300), (5, 300)),
    ("tl.cumsum(a, 0, reverse=True)", (48, 5), (48, 5)),
    ("tl.max(a, 1, return_indices=True)[0]", (48, 5), (48,)),
    ("tl.argmin(a, 0)", (48, 5), (5,)),
)


def uneven() -> Iterator[Job]:
    warps = cycle(WARPS)
    for (text, shape, result), type in product(UNEVEN, ("i32", "fp32", "fp16", "i64")):
        out = "i32" if "arg" in text else type
        params = text, ((type, shape),), (out, result), "integral"
        yield Job(recipes.expression, params, {"num_warps": next(warps)})
    for (m, n, k), count in product(((48, 40, 80), (20, 12, 16), (100, 96, 48)), WARPS):
        inputs = ("fp16", (m, k)), ("fp16", (k, n))
        params = "tl.dot(a, b)", inputs, ("fp32", (m, n)), "integral"
        yield Job(recipes.expression, params, {"num_warps": count})
