"""Blocks that loop over programs, interpreted on the machine where all ends late."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.async_machine import AsyncMachine
from tests.gpu import products
from tests.gpu.programs import Program, interpreted
from tests.gpu.recipes import integral, rng_of
from tests.targets.nvidia.test_products import check, compiled, count, square
from tests.targets.nvidia.test_specialize_warps import MUTANTS
from tilewright.base import knobs
from tilewright.base.diagnostics import InterpreterError
from tilewright.ir.core import Module
from tilewright.ir.types import shape_of
from tilewright.ops.control import ProgramId
from tilewright.ops.gpu import AllocateRing, BlockCount, BlockId

TILE = 64, 64, 32


@pytest.fixture(autouse=True)
def exact_slots() -> Iterator[None]:
    """Rings have as many slots as the kernels say."""
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = "free_slots"
        yield


def looped(program: Program, stages: int = 3, warps: int = 4) -> Module:
    module, ctx = compiled(program, num_warps=warps, num_stages=stages)
    assert ctx.counts["persistent"] == 1, ctx.remarks
    assert ctx.counts["rings"] == 1
    assert not count(module, ProgramId)
    return module


def kept(program: Program, stages: int = 3) -> str:
    """The reason why blocks do not loop over programs, "" if none is reported."""
    module, ctx = compiled(program, num_warps=4, num_stages=stages)
    assert not ctx.counts["persistent"]
    assert not count(module, BlockId)
    return "".join(r.text for r in ctx.missed_remarks if r.by == "persist_programs")


ORDERS = "nn", "nt", "tn"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_matmul(stages: int, orders: str) -> None:
    """Twelve tiles, of 0, 1, S - 1, S, S + 1 steps, on fewer blocks, and on as many and more; with
    and without spare slots and copies in any order. Each number of blocks meets each order, and
    each number of stages with spare slots and without."""
    swapped = ORDERS.index(orders) % 2
    for steps in {0, 1, stages - 1, stages, stages + 1}:
        program = products.matmul("fp16", "fp16", orders, (192, 256, 32 * steps), TILE)
        module = looped(program, stages)
        blocks = (5, 17) if (steps + stages) % 2 else (12, 1)
        check(program, module, blocks=blocks[swapped])
        check(program, module, seed=steps, spare=True, blocks=blocks[1 - swapped])


def test_one_program() -> None:
    program = square(5)
    module = looped(program)
    for blocks in (None, 1, 3):
        check(program, module, blocks=blocks)


@pytest.mark.parametrize("tile", [(128, 256, 64), (256, 128, 64), (128, 128, 64)])
def test_eight_warps(tile: tuple[int, int, int]) -> None:
    program = products.matmul("bf16", "bf16", "nt", (304, 520, 144), tile)
    module = looped(program, warps=8)
    check(program, module, blocks=2)
    check(program, module, seed=1, blocks=1)


@tw.jit
def batched_kernel(
    a_ptr, b_ptr, c_ptr, counts_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """One tile for each program of a grid with three axes; the first program stores its extents."""
    batch = tl.program_id(2)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(
            a_ptr + batch * M * K + rows[:, None] * K + k,
            mask=(rows[:, None] < M) & (k < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + batch * K * N + k[:, None] * N + columns,
            mask=(k[:, None] < K) & (columns < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc)
    out = c_ptr + batch * M * N + rows[:, None] * N + columns
    tl.store(out, acc, mask=(rows[:, None] < M) & (columns < N))
    tl.store(counts_ptr, tl.num_programs(0))
    tl.store(counts_ptr + 1, tl.num_programs(1))
    tl.store(counts_ptr + 2, tl.num_programs(2))


def batched(m: int, n: int, k: int, batches: int) -> Program:
    rng = rng_of(m, n, k, batches)
    a, b = integral("fp16", (batches, m, k), rng), integral("fp16", (batches, k, n), rng)
    c, counts = np.zeros((batches, m, n), np.float32), np.zeros(3, np.int32)
    grid = tw.cdiv(m, 64), tw.cdiv(n, 64), batches
    constants = {"BM": 64, "BN": 64, "BK": 32}
    exact = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float32)
    expected = [a, b, exact, np.array(grid, np.int32)]
    return Program(batched_kernel, [a, b, c, counts, m, n, k], constants, grid, None, expected)


@pytest.mark.parametrize(
    "shape", [(128, 192, 64, 2), (80, 64, 32, 3), (64, 144, 0, 1), (64, 64, 96, 5)]
)
def test_grid_of_three_axes(shape: tuple[int, int, int, int]) -> None:
    program = batched(*shape)
    module = looped(program)
    blocks = [op.axes for op in module.walk() if isinstance(op, BlockId)]
    assert set(blocks) == {3}
    for most in (1, 2, 4, 40):
        check(program, module, blocks=most)
    check(program, module, seed=3, blocks=3)


@tw.jit
def rows_kernel(a_ptr, b_ptr, c_ptr, K, N: tl.constexpr, BK: tl.constexpr):
    """Programs along y repeat what those along x do."""
    m = tl.program_id(0) * 64 + tl.arange(0, 64)
    acc = tl.zeros((64, N), tl.float32)
    for start in range(0, K, BK):
        k, n = start + tl.arange(0, BK), tl.arange(0, N)
        acc = tl.dot(tl.load(a_ptr + m[:, None] * K + k), tl.load(b_ptr + k[:, None] * N + n), acc)
    tl.atomic_add(c_ptr + m[:, None] * N + tl.arange(0, N), acc, sem="relaxed")


def test_programs_along_axes_that_the_kernel_does_not_read() -> None:
    """Only those along x are looped over; each of the others is a block of its own."""
    rng = rng_of("rows")
    a, b = integral("fp16", (320, 64), rng), integral("fp16", (64, 64), rng)
    c = np.zeros((320, 64), np.float32)
    exact = 6 * (a.astype(np.float32) @ b.astype(np.float32))
    program = Program(
        rows_kernel, [a, b, c, 64], {"N": 64, "BK": 32}, (5, 3, 2), None, [a, b, exact]
    )
    module = looped(program)
    assert {op.axes for op in module.walk() if isinstance(op, BlockId | BlockCount)} == {1}
    for blocks in ((1, 3, 2), (2, 3, 2), (5, 3, 2)):
        with AsyncMachine(1) as machine:
            found = interpreted(program, module, blocks)
        machine.check_idle()
        np.testing.assert_array_equal(found[2], exact)


@cache
def _subject(steps: int) -> tuple[Program, Module]:
    """What is spoiled in copies; right itself."""
    program = products.matmul("fp16", "fp32", "nn", (192, 192, 32 * steps), TILE)
    module = looped(program)
    check(program, module, blocks=1)
    return program, module


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("steps", [2, 3])
def test_mutants_are_found(name: str, steps: int) -> None:
    """As in `test_specialize_warps`, with several programs of few steps in a block."""
    program, module = _subject(steps)
    module = module.clone()
    MUTANTS[name](module)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module, blocks=1)


@tw.jit
def triangle_kernel(
    a_ptr, b_ptr, c_ptr, counts_ptr, AXIS: tl.constexpr, RISING: tl.constexpr, BK: tl.constexpr
):
    """Products of as many steps as the program's index along an axis says."""
    index, count = tl.program_id(AXIS), tl.num_programs(AXIS)
    steps = index + 1 if RISING else count - 1 - index
    number = tl.program_id(0) + tl.num_programs(0) * (
        tl.program_id(1) + tl.num_programs(1) * tl.program_id(2)
    )
    m, n, acc = tl.arange(0, 64), tl.arange(0, 64), tl.zeros((64, 64), tl.float32)
    for start in tl.range(0, tl.multiple_of(steps * BK, BK), BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * 256 + k)
        acc = tl.dot(a, tl.load(b_ptr + k[:, None] * 64 + n), acc)
    tl.store(c_ptr + number * 4096 + m[:, None] * 64 + n, acc)
    tl.atomic_add(counts_ptr + number, 1, sem="relaxed")


@pytest.mark.parametrize("rising", [False, True])
@pytest.mark.parametrize(("axis", "grid"), [(0, (5, 3, 1)), (1, (2, 8, 1)), (2, (1, 2, 4))])
def test_programs_of_unequal_length(axis: int, grid: tuple[int, ...], rising: bool) -> None:
    rng = rng_of(axis, rising)
    a, b = integral("fp16", (64, 256), rng), integral("fp16", (256, 64), rng)
    c, counts = np.zeros((np.prod(grid), 64, 64), np.float32), np.zeros(np.prod(grid), np.int32)
    exact = np.zeros_like(c)
    for number in range(len(c)):
        index = int(np.unravel_index(number, grid, order="F")[axis])
        k = 32 * (index + 1 if rising else grid[axis] - 1 - index)
        exact[number] = a[:, :k].astype(np.float32) @ b[:k].astype(np.float32)
    constants = {"AXIS": axis, "RISING": rising, "BK": 32}
    expected = [a, b, exact, np.ones_like(counts)]
    program = Program(triangle_kernel, [a, b, c, counts], constants, grid, None, expected)
    module = looped(program)
    for blocks in (1, 3, 4, 7, 40):
        check(program, module, blocks=blocks)
    check(program, module, seed=1, blocks=2)


@tw.jit
def entangled_kernel(a_ptr, b_ptr, c_ptr, BK: tl.constexpr):
    """As many steps as the program's index says, by 2^60 paths of operands."""
    index = tl.program_id(0)
    steps = index + 1
    for step in tl.static_range(60):
        steps = tl.minimum(steps, steps * (step + 2))
    m, n, acc = tl.arange(0, 64), tl.arange(0, 64), tl.zeros((64, 64), tl.float32)
    for start in tl.range(0, tl.multiple_of(steps * BK, BK), BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * 256 + k)
        acc = tl.dot(a, tl.load(b_ptr + k[:, None] * 64 + n), acc)
    tl.store(c_ptr + index * 4096 + m[:, None] * 64 + n, acc)


def test_lengths_whose_operands_are_shared() -> None:
    a, b, c = (np.zeros(shape, type) for shape, type in (
        ((64, 256), np.float16), ((256, 64), np.float16), ((4, 64, 64), np.float32),
    ))  # fmt: skip
    looped(Program(entangled_kernel, [a, b, c], {"BK": 32}, (4, 1, 1), None, [a, b, c]))


# -- what stays as it is --------------------------------------------------------------------------


def test_disabled() -> None:
    knobs.compilation.disabled_passes = "persist_programs"
    assert not kept(square(5))


def test_memory_for_results_that_costs_a_slot() -> None:
    large = 128, 128, 64
    program = products.matmul("fp16", "fp16", "nn", large, large)
    assert "memory of a slot" in kept(program, stages=7)


def test_memory_for_results_that_costs_a_free_slot() -> None:
    """Six programs of 64x64x32 fit with four slots each, and with three beside that memory."""
    knobs.compilation.disabled_passes = ""
    module = looped(products.matmul("fp16", "fp16", "nn", (64, 64, 160), TILE), stages=3)
    rings = [op for op in module.walk() if isinstance(op, AllocateRing)]
    assert {shape_of(ring.type)[0] - ring.spare for ring in rings} == {3}


def test_persistent_kernel() -> None:
    """A loop of the kernel's own is enough."""
    assert not kept(products.persistent(5, 3, 64, 64))


@tw.jit
def waiting_kernel(a_ptr, b_ptr, c_ptr, flags_ptr, K, N: tl.constexpr, HOW: tl.constexpr):
    """Programs that look at what others do, in several ways, and a product."""
    if HOW == "spin":
        while tl.atomic_or(flags_ptr, 0) != 0:
            pass
    index = tl.program_id(0)
    if HOW == "result":
        index = tl.atomic_add(flags_ptr, 1)
    if HOW == "volatile":
        index += tl.load(flags_ptr, volatile=True)
    if HOW == "print":
        print("program", index)
    if HOW == "block":
        index += tl.inline_asm_elementwise(
            "mov.u32 $0, %ctaid.x;", "=r,r", [index], dtype=tl.int32, is_pure=True, pack=1
        )
    m, n, stop = index * 64 + tl.arange(0, 64), tl.arange(0, N), K
    if HOW == "loaded bound":
        stop = tl.minimum(K, tl.load(flags_ptr + index))
    if HOW == "bound of two indices":
        stop = tl.minimum(K, 32 * (index + tl.program_id(1)))
    if HOW == "bound that rises and falls":
        stop = 32 * (index % 2)
    acc = tl.zeros((64, N), tl.float32)
    for start in tl.range(0, stop, 32):
        k = start + tl.arange(0, 32)
        acc = tl.dot(tl.load(a_ptr + m[:, None] * K + k), tl.load(b_ptr + k[:, None] * N + n), acc)
    tl.store(c_ptr + m[:, None] * N + n, acc)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("spin", "control.while"),
        ("result", "atomic.rmw"),
        ("volatile", "mem.load"),
        ("print", "debug.print"),
        ("block", "asm"),
        ("loaded bound", "iterations"),
        ("bound of two indices", "iterations"),
        ("bound that rises and falls", "iterations"),
    ],
)
def test_programs_that_may_wait_for_others(how: str, reason: str) -> None:
    a, b = np.zeros((256, 64), np.float16), np.zeros((64, 64), np.float16)
    c, flags = np.zeros((256, 64), np.float32), np.zeros(1, np.int32)
    program = Program(waiting_kernel, [a, b, c, flags, 64], {"N": 64, "HOW": how}, (4,))
    assert reason in kept(program)


def test_results_in_the_memory_of_operands() -> None:
    """One program may overwrite what it has read, but copies for the next one might read that."""
    a, b = np.zeros((256, 64), np.float16), np.zeros((64, 64), np.float16)
    program = Program(rows_in_place_kernel, [a, b, 64], {"N": 64}, (4,))
    assert "may read results" in kept(program)


@tw.jit
def rows_in_place_kernel(a_ptr, b_ptr, K, N: tl.constexpr):
    m, n = tl.program_id(0) * 64 + tl.arange(0, 64), tl.arange(0, N)
    acc = tl.zeros((64, N), tl.float32)
    for start in range(0, K, 32):
        k = start + tl.arange(0, 32)
        acc = tl.dot(tl.load(a_ptr + m[:, None] * K + k), tl.load(b_ptr + k[:, None] * N + n), acc)
    tl.store(a_ptr + m[:, None] * K + n, acc.to(tl.float16))
