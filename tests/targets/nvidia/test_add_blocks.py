"""Sums of products that are added to memory as blocks of a tensor, and those that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.gpu import products
from tests.gpu.programs import Program
from tests.targets.nvidia.test_products import check, count, lowered
from tilewright.layout.families import blocked, wgmma_accumulator
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.nvidia import AddBlock, WaitBlocks
from tilewright.targets.nvidia.add_blocks import rows_of_boxes

ROWS, COLUMNS, STEP = 64, 64, 32


@tw.jit
def sums_kernel(
    a_ptr, b_ptr, c_ptr, flag_ptr, rows, columns, steps,
    SEM: tl.constexpr, MASKED: tl.constexpr, USED: tl.constexpr, READS: tl.constexpr,
    RELEASES: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Products of tiles of rows with one matrix are added to tiles of c, all to each."""
    n, k = tl.arange(0, N), tl.arange(0, K)
    b = tl.load(b_ptr + k[:, None] * N + n)
    for step in range(steps):
        m = step * M + tl.arange(0, M)
        a = tl.load(a_ptr + m[:, None] * K + k)
        place = m[:, None] * N + n
        inside = (m < rows)[:, None] & (n < columns)
        acc = tl.dot(a, b)
        if READS:
            acc += tl.load(c_ptr + place)
        if MASKED:
            old = tl.atomic_add(c_ptr + place, acc, mask=inside, sem=SEM)
        else:
            old = tl.atomic_add(c_ptr + place, acc, sem=SEM)
        if USED:
            tl.store(c_ptr + place, old)
        if RELEASES:
            tl.atomic_add(flag_ptr, 1, sem="release")


def sums(
    steps: int, rows: int, columns: int, tile: tuple[int, int] = (ROWS, COLUMNS), **given: Any
) -> Program:
    (m, n), total = tile, tile[0] * steps
    a, b = products.matrix("fp16", total, STEP), products.matrix("fp16", STEP, n)
    c = np.ones((total, n), np.float32)
    exact, bound = products.product(a, b, "fp16")
    if given.get("MASKED"):
        exact[rows:], exact[:, columns:] = 0, 0
    constants = {
        "SEM": "relaxed", "MASKED": False, "USED": False, "READS": False, "RELEASES": False,
        "M": m, "N": n, "K": STEP,
    }  # fmt: skip
    flag = np.zeros(1, np.int32)
    args = [a, b, c, flag, rows, columns, steps]
    expected = [a, b, (1 + exact).astype(np.float32), flag]
    error = bound.max(initial=0) + 1e-6
    return Program(sums_kernel, args, constants | given, (1,), error, expected)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("steps", [0, 2, 3])
def test_sums_are_added_as_blocks(steps: int, masked: bool, stages: int) -> None:
    program = sums(steps, 32 * steps + 16, 48, MASKED=masked)
    module, counts = lowered(program, 4, stages, tensor_copies=True)
    assert counts["added blocks"] >= 1
    assert count(module, AddBlock) == count(module, WaitBlocks) == 1
    check(program, module)


def test_wait_is_needed() -> None:
    program = sums(3, 0, 0)
    module, _ = lowered(program, 4, 2, tensor_copies=True)
    next(op for op in module.walk() if isinstance(op, WaitBlocks)).erase()
    with pytest.raises(AssertionError, match="may still read their buffers"):
        check(program, module)


@pytest.mark.parametrize(
    "given",
    [{"SEM": "acq_rel"}, {"USED": True}, {"READS": True}, {"RELEASES": True}, {"tile": (16, 64)}],
    ids=str,
)
def test_others_are_not(given: dict[str, Any]) -> None:
    """Ordered ones, those with a result, those whose memory the kernel reads, those that another
    atomic operation may publish, and tiles of which no warp has whole boxes."""
    module, counts = lowered(sums(2, 0, 0, **given), 4, 2, tensor_copies=True)
    assert not counts["added blocks"]
    assert count(module, AtomicRMW) >= 1


def test_without_tensor_copies_none_are() -> None:
    module, _ = lowered(sums(2, 0, 0), 4, 2, tensor_copies=False)
    assert count(module, AddBlock) == 0


def test_boxes_of_layouts() -> None:
    assert rows_of_boxes(wgmma_accumulator((64, 128), 4, 128)) == 16
    assert rows_of_boxes(wgmma_accumulator((64, 128), 8, 64)) == 16
    assert rows_of_boxes(wgmma_accumulator((64, 32), 8, 16)) == 0  # 16 columns for each group
    # Lanes along 128 columns, so that they hold parts of several boxes.
    assert rows_of_boxes(blocked((64, 128), (1, 4), (1, 32), (4, 1), (1, 0))) == 0
