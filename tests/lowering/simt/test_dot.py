"""Products without matrix instructions, on the emulated GPU, of every type."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.covering import covering
from tests.frontend.kernels import build, kernel_from
from tests.ir_values import floats_in
from tests.lowering.simt.harness import assert_same
from tests.lowering.simt.tiles import Threads
from tilewright.frontend.defaults import FP8_TYPES
from tilewright.ir.types import scalar_type
from tilewright.lowering.simt.dot import LONG_ITERATION, steps_per_iteration

# Types of the operands and of the sums.
KINDS = [
    "i8 i8 int32", "fp16 fp16 float32", "fp16 fp16 float16", "bf16 bf16 float32",
    "fp32 fp32 float32", "fp64 fp64 float64",
    *(f"{a} {b} float32" for a, b in product(FP8_TYPES, repeat=2)),
    "fp8e5 fp8e5 float16", "fp8e4b8 fp8e4nv float16",
]  # fmt: skip
SHAPES = [(16, 16, 32), (8, 4, 16), (1, 2, 8), (32, 1, 4)]
THREADS = [Threads(1, 4), Threads(4, 8), Threads(2, 32)]

KERNEL = """
def kernel(x, y, z, out, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
           PRECISION: tl.constexpr):
    b = tl.arange(0, B)[:, None, None]
    m, n = tl.arange(0, M)[None, :, None], tl.arange(0, N)[None, None, :]
    rows, columns = tl.arange(0, K)[None, :, None], tl.arange(0, K)[None, None, :]
    lhs = tl.load(x + (b * M + m) * K + columns)
    rhs = tl.load(y + (b * K + rows) * N + n)
    at = (b * M + m) * N + n
    acc = tl.load(z + at)
    if B == 1:
        lhs, rhs = lhs.reshape(M, K), rhs.reshape(K, N)
        at, acc = at.reshape(M, N), acc.reshape(M, N)
    tl.store(out + at, tl.dot(lhs, rhs, acc, input_precision=PRECISION, out_dtype=acc.dtype))
"""


ACROSS = """
def kernel(x, y, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    lhs = tl.load(x + k[None, :] * M + m[:, None])
    rhs = tl.load(y + n[None, :] * K + k[:, None])
    product = tl.dot(lhs, rhs, input_precision="ieee", out_dtype=tl.TOTAL)
    tl.store(out + m[:, None] * N + n[None, :], product)
"""


def whole(short: str, count: int, seed: int) -> Any:
    """Numbers whose sums of products are exact in any order, and which every type holds."""
    element = scalar_type(short)
    numbers = np.random.default_rng(seed).integers(-3, 4, count)
    if element.is_int():
        return numbers.astype(element.numpy)
    return floats_in(numbers / (2 if short == "fp8e4b15" else 1), element)


def check(
    kind: str,
    batch: int,
    shape: tuple[int, int, int],
    precision: str | None,
    threads: Sequence[Threads] = THREADS,
) -> None:
    left, right, total = kind.split()
    short = {"int32": "i32", "float16": "fp16", "float32": "fp32", "float64": "fp64"}[total]
    m, n, k = shape
    constants = {"B": batch, "M": m, "N": n, "K": k, "PRECISION": precision}
    signature = {"x": f"*{left}", "y": f"*{right}", "z": f"*{short}", "out": f"*{short}"}
    module = build(kernel_from(KERNEL), signature, constants)
    args = [whole(left, batch * m * k, 1), whole(right, batch * k * n, 2),
            whole(short, batch * m * n, 3), whole(short, batch * m * n, 4)]  # fmt: skip
    for warps, lanes in threads:
        assert_same(module, (1, 1, 1), args, warps=warps, lanes=lanes)


@pytest.mark.parametrize(("kind", "threads", "batch"), covering(KINDS[:6], THREADS, [1, 4]))
def test_product(kind: str, threads: Threads, batch: int) -> None:
    check(kind, batch, SHAPES[0], None, [threads])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS[6:])
def test_product_of_fp8(kind: str) -> None:
    """Operands are converted one by one and then multiplied as others are: each pair of formats
    runs once, each format on all numbers of threads, with and without a batch."""
    left, right, _ = kind.split()
    turn = FP8_TYPES.index(left) + FP8_TYPES.index(right)
    check(kind, (1, 4)[turn % 2], SHAPES[0], None, [THREADS[turn % len(THREADS)]])


@pytest.mark.parametrize(("kind", "shape", "threads"), covering(KINDS[:6], SHAPES[1:], THREADS))
def test_small_product(kind: str, shape: tuple[int, int, int], threads: Threads) -> None:
    check(kind, 1, shape, None, [threads])


@pytest.mark.parametrize("precision", ["tf32", "tf32x3", "bf16x3", "bf16x6"])
def test_requested_precision_is_a_minimum(precision: str) -> None:
    check("fp32 fp32 float32", 2, SHAPES[0], precision)


@pytest.mark.parametrize(
    ("k", "work", "steps"),
    [(16, 80, 16), (64, 80, 16), (48, 80, 16), (48, 33, 24), (4, 1, 4), (16, LONG_ITERATION, 4)],
)
def test_an_iteration_has_as_many_steps_as_its_code_may_be_long(
    k: int, work: int, steps: int
) -> None:
    assert steps_per_iteration(k, 4, work) == steps


@pytest.mark.parametrize("kind", ["i8", "fp16", "fp32", "fp64"])
@pytest.mark.parametrize("shape", [(16, 16, 32), (8, 32, 4), (64, 4, 16)])
def test_operands_whose_rows_lie_across_memory(kind: str, shape: tuple[int, int, int]) -> None:
    """Their rows are swizzled."""
    m, n, k = shape
    total, name = {"i8": ("i32", "int32"), "fp64": ("fp64", "float64")}.get(
        kind, ("fp32", "float32")
    )
    text = ACROSS.replace("TOTAL", name)
    signature = {"x": f"*{kind}", "y": f"*{kind}", "out": f"*{total}"}
    module = build(kernel_from(text), signature, {"M": m, "N": n, "K": k})
    args = [whole(kind, m * k, 1), whole(kind, k * n, 2), whole(total, m * n, 3)]
    for warps, lanes in [(1, 4), (4, 8), (2, 32)]:
        assert_same(module, (1, 1, 1), args, warps=warps, lanes=lanes)
