"""Sums of products that are added to memory as blocks of a tensor, and those that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.gpu import products
from tests.gpu.programs import HOPPER, Program, source_of
from tests.targets.nvidia.test_products import check, count, lowered
from tilewright.compiler.driver import compile
from tilewright.ir.types import shape_of
from tilewright.layout.banks import wavefronts
from tilewright.layout.families import blocked, shared_hopper, wgmma_accumulator
from tilewright.layout.linear import OFFSET, REGISTER, WARP
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.nvidia import AddBlock, WaitBlocks
from tilewright.targets.nvidia.add_blocks import (
    NEXT_COLUMNS,
    NEXT_ROW,
    NEXT_ROWS,
    box_of,
    box_starts,
    rows_of_boxes,
    staging_layout,
)

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


@pytest.mark.parametrize(
    ("shape", "warps", "width", "second"),
    [
        ((64, 128), 8, 64, NEXT_COLUMNS),
        ((64, 64), 4, 64, NEXT_COLUMNS),
        ((64, 64), 8, 32, NEXT_ROWS),
        ((128, 32), 8, 32, NEXT_ROWS),
    ],
)
def test_alternating_rows_have_no_bank_conflicts(
    shape: tuple[int, int], warps: int, width: int, second: tuple[int, int]
) -> None:
    """Accumulators are stored in pairs of 32 bits, which take two wavefronts at least."""
    tile = wgmma_accumulator(shape, warps, width)
    assert wavefronts(tile, staging_layout(shape, NEXT_ROW), 32, 2) == 4
    assert wavefronts(tile, staging_layout(shape, second), 32, 2) == 2


def test_adjacent_rows_have_the_layout_of_the_hardware() -> None:
    assert staging_layout((64, 128), NEXT_ROW) == shared_hopper((64, 128), 32, 128)


@pytest.mark.parametrize(
    ("program", "warps", "second"),
    [
        (products.attention_gradients(128, 256, (64, 128), False), 8, NEXT_COLUMNS),
        (products.attention_gradients(64, 256, (64, 128), False), 8, NEXT_ROWS),
        (products.attention_gradients(64, 256, (128, 128), True), 8, NEXT_COLUMNS),
        (sums(2, 0, 0), 4, NEXT_COLUMNS),
        (sums(2, 0, 0, (64, 32)), 4, NEXT_ROWS),
        (sums(2, 96, 48, MASKED=True), 4, NEXT_ROW),
    ],
)
def test_boxes_read_what_was_stored(program: Program, warps: int, second: tuple[int, int]) -> None:
    """The elements of all boxes, in the order in which the hardware reads shared memory, are those
    that are stored there, each once; and the map takes them to their places in the tensor."""
    module, _ = lowered(program, warps, 2, tensor_copies=True)
    op = next(op for op in module.walk() if isinstance(op, AddBlock))
    value, buffer = op.value.layout, op.buffer.layout
    assert value is not None
    assert buffer is not None
    box = box_of(value, buffer)
    assert box.alternating == second
    kernel = compile(source_of(program)[0], HOPPER, {"num_warps": warps, "num_stages": 2})
    tensor = next(m for m in kernel.metadata.tensor_maps if m["added"])
    row = shape_of(op.value.type)[1]
    strides = [1, {NEXT_ROWS: 8 * row, NEXT_COLUMNS: 32}.get(second, 0), row]
    strides = [stride for stride in strides if stride]
    assert [terms[0][0] for terms in tensor["strides"][: len(strides)]] == strides
    stored, found = buffer.invert(), set[int]()
    for warp in range(value.in_size(WARP)):
        for register in box_starts(value, box):
            corner = value.apply({REGISTER: register, WARP: warp})
            start = stored.apply(corner)[OFFSET]
            first = corner["dim0"] * row + corner["dim1"]
            shape = tensor["box"][: len(strides)]
            for number, place in enumerate(np.ndindex(*reversed(shape))):
                address = 4 * (start + number)
                address ^= (address >> 7 & 7) << 4  # the swizzle of rows of 128 bytes
                at = first + sum(i * s for i, s in zip(reversed(place), strides, strict=True))
                coordinates = {"dim0": at // row, "dim1": at % row}
                assert stored.apply(coordinates)[OFFSET] == address // 4
                found.add(at)
    assert len(found) == stored.in_size("dim0") * stored.in_size("dim1")


@tw.jit
def two_sums_kernel(
    a_ptr, b_ptr, c_ptr, d_ptr, steps, rows, columns,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """A product is added to a whole tile of one matrix, and to a part of one of another."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    b = tl.load(b_ptr + k[:, None] * N + n)
    inside = (m < rows)[:, None] & (n < columns)
    for step in range(steps):
        acc = tl.dot(tl.load(a_ptr + (step * M + m[:, None]) * K + k), b)
        tl.atomic_add(c_ptr + m[:, None] * N + n, acc, sem="relaxed")
        tl.atomic_add(d_ptr + m[:, None] * N + n, acc, mask=inside, sem="relaxed")


def test_bounded_additions_have_a_separate_buffer() -> None:
    (m, n), steps = (ROWS, COLUMNS), 2
    a, b = products.matrix("fp16", m * steps, STEP), products.matrix("fp16", STEP, n)
    exact, bound = products.product(a, b, "fp16")
    exact = exact.reshape(steps, m, n).sum(0).astype(np.float32)
    part = np.zeros_like(exact)
    part[:48, :40] = exact[:48, :40]
    zeros = np.zeros_like(exact)
    program = Program(
        two_sums_kernel, [a, b, zeros, zeros.copy(), steps, 48, 40],
        {"M": m, "N": n, "K": STEP}, (1,), 2 * bound.max() + 1e-6, [a, b, exact, part],
    )  # fmt: skip
    module, counts = lowered(program, 4, 2, tensor_copies=True)
    assert counts["added blocks"] == 2
    buffers = {op.buffer: op.buffer.layout for op in module.walk() if isinstance(op, AddBlock)}
    assert len(buffers) == len(set(buffers.values())) == 2
    check(program, module)
