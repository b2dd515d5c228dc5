"""Warps with roles, interpreted by a machine on which tensor copies and products end late.

Each op of the protocol is removed or changed once: the machine must find that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.gpu import products
from tests.gpu.programs import Program, interpreted
from tests.targets.nvidia.test_products import check, count, lowered, square, used
from tilewright.base import knobs
from tilewright.base.diagnostics import InterpreterError
from tilewright.ir.core import Module, Op
from tilewright.ir.types import I1, I32, shape_of
from tilewright.lowering.simt.shared_memory import allocated_bytes
from tilewright.ops.arith import Constant, Xor
from tilewright.ops.control import For, If
from tilewright.ops.gpu import Allocate, AllocateRing, HasSpare
from tilewright.ops.nvidia import LoadBlock, Wgmma, WgmmaWait
from tilewright.ops.roles import Arrive, ExpectBytes, InitBarriers, Roles, WaitBarrier
from tilewright.targets.nvidia.features import processor

SHARED_BYTES = processor(90).shared_limit


@pytest.mark.parametrize("stages", [2, 3, 4, 5])
@pytest.mark.parametrize("orders", ["nn", "nt", "tn", "tt"])
def test_matmul(orders: str, stages: int) -> None:
    for steps in range(stages + 3):
        program = square(steps, orders)
        module, counts = lowered(program, 4, stages, tensor_copies=True)
        assert counts["rings"] == counts["overlapped"] == 1
        assert not counts["pipelined"]
        check(program, module)
        check(program, module, seed=steps)


@pytest.fixture
def no_free_slots() -> Iterator[None]:
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = "free_slots"
        yield


@pytest.fixture
def no_copy_costs() -> Iterator[None]:
    """Operands whose narrow rows are adjacent in memory are copied, too."""
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = "copy_costs"
        yield


@pytest.mark.parametrize(
    ("tile", "warps", "stages", "slots"),
    [
        ((64, 64, 32), 4, 2, 3),  # with registers for six programs
        ((64, 64, 32), 4, 5, 5),
        ((128, 128, 64), 4, 2, 3),  # for two
        ((64, 128, 64), 4, 3, 4),  # for four, but with memory for two, as results take some
        ((128, 256, 64), 8, 2, 4),  # for one
        ((128, 128, 32), 4, 2, 6),
        ((64, 64, 128), 4, 4, 6),  # for six, but with memory for one of four slots, and results
    ],
)
def test_slots_that_cost_no_program(
    tile: tuple[int, int, int], warps: int, stages: int, slots: int
) -> None:
    program = products.matmul("fp16", "fp16", "nn", (tile[0], tile[1], 9 * tile[2]), tile)
    module, _ = lowered(program, warps, stages, tensor_copies=True)
    rings = [op for op in module.walk() if isinstance(op, Allocate | AllocateRing)]
    found = {shape_of(ring.type)[0] - getattr(ring, "spare", 0) for ring in rings[:2]}
    assert found == {slots}
    check(program, module)


@tw.jit
def mirrored_kernel(a_ptr, b_ptr, c_ptr, d_ptr, programs, K, BK: tl.constexpr):
    """A product and its transpose, unless the program returns first."""
    if tl.program_id(0) >= programs:
        return
    m, n = tl.arange(0, 128), tl.arange(0, 128)
    acc = tl.zeros((128, 128), tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + inner)
        acc = tl.dot(a, tl.load(b_ptr + inner[:, None] * 128 + n), acc)
    tl.store(c_ptr + m[:, None] * 128 + n, acc)
    tl.store(d_ptr + m[:, None] * 128 + n, acc.T)


def test_rings_leave_memory_for_what_follows_in_the_same_branch() -> None:
    """The ring is live until the end of the control flow around its loop, so that scratch of the
    ops there is elsewhere. A program that returns early initialises no barriers."""
    k = 64 * 3
    a, b = products.matrix("fp16", 128, k), products.matrix("fp16", k, 128)
    exact, bound = products.product(a, b, "fp16")
    c = exact.astype(np.float32)
    outputs = [np.zeros_like(c), np.zeros_like(c)]
    expected = [a, b, c, np.ascontiguousarray(c.T)]
    program = Program(
        mirrored_kernel, [a, b, *outputs, 1, k], {"BK": 64}, (2,), bound.max(), expected
    )
    module, counts = lowered(program, 4, 4, tensor_copies=True)
    assert counts["rings"] == 1
    assert allocated_bytes(module.entry) <= SHARED_BYTES
    (begin,) = (op for op in module.walk() if isinstance(op, InitBarriers))
    assert isinstance(begin.parent_op(), If)
    check(program, module)


@tw.jit
def two_sums_kernel(
    a_ptr, b_ptr, few_ptr, c_ptr, d_ptr, K, BK: tl.constexpr, COLUMNS: tl.constexpr
):
    """The rows of `a` times two matrices: 64 columns, and 16 of the columns of the other."""
    m, n, few = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, 16)
    c, d = tl.zeros((64, 64), tl.float32), tl.zeros((64, 16), tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + inner)
        c = tl.dot(a, tl.load(b_ptr + inner[:, None] * 64 + n), c)
        d = tl.dot(a, tl.load(few_ptr + inner[:, None] * COLUMNS + few), d)
    tl.store(c_ptr + m[:, None] * 64 + n, c)
    tl.store(d_ptr + m[:, None] * 16 + few, d)


def two_sums(steps: int, columns: int) -> Program:
    k = 32 * steps
    a, b, few = (products.matrix("fp16", *s) for s in ((64, k), (k, 64), (k, columns)))
    exact, bound = products.product(a, b, "fp16")
    small, _ = products.product(a, np.ascontiguousarray(few[:, :16]), "fp16")
    outputs = [np.zeros((64, 64), np.float32), np.zeros((64, 16), np.float32)]
    expected = [a, b, few, exact.astype(np.float32), small.astype(np.float32)]
    args = [a, b, few, *outputs, k]
    return Program(
        two_sums_kernel, args, {"BK": 32, "COLUMNS": columns}, (1,), bound.max(), expected
    )


@pytest.mark.parametrize("spare", [True, False])
@pytest.mark.parametrize("steps", [1, 2, 3, 7, 9])
def test_operands_of_several_sums_are_released_together(steps: int, spare: bool) -> None:
    """All products are in flight until those of the next iteration have started, so that there is
    one pair of barriers for each slot, and more slots than requested."""
    program = two_sums(steps, 64)
    module, counts = lowered(program, 4, 3, tensor_copies=True)
    assert counts["rings"] == counts["overlapped"] == 1
    (barriers,) = (op for op in module.walk() if isinstance(op, InitBarriers))
    (slots,) = {slots for slots, _ in _rings(module)}
    assert slots == 8
    assert len(barriers.arrivals) == 2 * slots
    check(program, module, spare=spare)
    check(program, module, seed=steps, spare=spare)


@pytest.mark.parametrize("columns", [16, 32])
def test_adjacent_narrow_rows_are_not_requested_one_by_one(columns: int) -> None:
    """The 32 rows of `few` are 8 or 16 lines of memory. Threads request these, and in the test
    above as many lines as there are rows."""
    program = two_sums(3, columns)
    module, counts = lowered(program, 4, 3, tensor_copies=True)
    assert (counts["rings"], counts["pipelined"]) == (0, 1)
    check(program, module)


def _rings(module: Module) -> list[tuple[int, int]]:
    """The slots of each ring, and how many of them are spare."""
    rings = [op for op in module.walk() if isinstance(op, AllocateRing)]
    return [(shape_of(ring.type)[0], ring.spare) for ring in rings]


@pytest.mark.parametrize("spare", [True, False])
@pytest.mark.parametrize("stages", [2, 4, 7])
@pytest.mark.usefixtures("no_free_slots")
def test_spare_slots(stages: int, spare: bool) -> None:
    """A launch of few programs has up to eight slots, others as many as the kernel asks for."""
    for steps in (0, 1, stages - 1, stages, stages + 1, 7, 8, 9, 17):
        program = square(steps)
        module, _ = lowered(program, 4, stages, tensor_copies=True)
        assert _rings(module) == [(8, 8 - stages)] * 2
        check(program, module, spare=spare)
        check(program, module, seed=steps, spare=spare)


@pytest.mark.parametrize("spare", [True, False])
@pytest.mark.usefixtures("no_free_slots")
def test_spare_slots_of_a_loop_in_a_loop(spare: bool) -> None:
    program = tiles(192, 128, 160)
    module, _ = lowered(program, 4, 3, tensor_copies=True)
    assert _rings(module) == [(8, 5)] * 2
    check(program, module, spare=spare)
    check(program, module, seed=1, spare=spare)


@pytest.mark.usefixtures("no_free_slots")
def test_rings_without_spare_slots() -> None:
    """With eight slots, or as many as fit, there are none; nor where operands of attention are
    released one after the other, nor if they are disabled."""
    for stages in (8, 9):
        assert not _rings(lowered(square(3), 4, stages, tensor_copies=True)[0])
    wide = products.matmul("fp16", "fp16", "nn", (128, 256, 256), (128, 256, 64))
    assert not _rings(lowered(wide, 8, 4, tensor_copies=True)[0])
    assert _rings(lowered(wide, 8, 3, tensor_copies=True)[0]) == [(4, 1)] * 2
    attention = products.attention(64, 128, 128, (128, 32), False, heads=1)
    assert not _rings(lowered(attention, 4, 3, tensor_copies=True)[0])
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = "free_slots,spare_slots"
        assert not _rings(lowered(square(3), 4, 3, tensor_copies=True)[0])


def test_the_machine_finds_slots_that_a_launch_does_not_provide() -> None:
    program = square(7)
    module, _ = lowered(program, 4, 3, tensor_copies=True)
    (asked,) = (op for op in module.walk() if isinstance(op, HasSpare))
    assert asked.parent is not None
    always = Constant(True, I1)
    asked.parent.insert_before(always, asked)
    asked.results[0].replace_with(always.results[0])
    check(program, module, spare=True)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module)


def test_plain_interpreter_executes_roles() -> None:
    program = square(5)
    module, _ = lowered(program, 4, 3, tensor_copies=True)
    assert count(module, Roles) == 1
    interpreted(program, module)


@pytest.mark.parametrize("type", ["bf16", "fp8e5", "fp32"])
@pytest.mark.parametrize("warps", [4, 8])
def test_matmul_of_other_types(type: str, warps: int) -> None:
    program = products.matmul(type, "fp32", "nt", (128, 64, 160), (128, 64, 32))
    module, counts = lowered(program, warps, 3, tensor_copies=True)
    assert counts["rings"] == 1
    check(program, module)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("warps", "stages"), [(4, 2), (4, 3), (8, 4)])
def test_attention(causal: bool, warps: int, stages: int) -> None:
    """Keys and values become free at different times; two loops share a ring."""
    program = products.attention(64, 128, 128, (128, 32), causal, heads=1)
    module, counts = lowered(program, warps, stages, tensor_copies=True)
    assert counts["rings"] == 1
    assert count(module, LoadBlock) == (4 if causal else 2)
    check(program, module)
    check(program, module, seed=warps)


@tw.jit
def tiles_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """One program for all tiles; rows and columns beyond the matrices are replaced by the first."""
    columns = tl.cdiv(N, BN)
    for tile in range(tl.cdiv(M, BM) * columns):
        row, column = tile // columns, tile % columns
        m, n = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
        a_rows, b_columns = tl.where(m < M, m, 0), tl.where(n < N, n, 0)
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(K, BK)):
            k = step * BK + tl.arange(0, BK)
            a = tl.load(a_ptr + a_rows[:, None] * K + k, mask=k < K, other=0.0)
            b = tl.load(b_ptr + k[:, None] * N + b_columns, mask=k[:, None] < K, other=0.0)
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + m[:, None] * N + n, acc, mask=(m[:, None] < M) & (n < N))


def tiles(m: int, n: int, k: int) -> Program:
    a, b = products.matrix("fp16", m, k), products.matrix("fp16", k, n)
    exact = a.astype(np.float32) @ b.astype(np.float32)
    args = [a, b, np.zeros((m, n), np.float32), m, n, k]
    constants = {"BM": 64, "BN": 64, "BK": 32}
    return Program(tiles_kernel, args, constants, (1,), 1e-3, [a, b, exact])


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("shape", [(64, 64, 64), (80, 144, 96), (192, 64, 160), (64, 128, 48)])
def test_loop_in_a_loop(stages: int, shape: tuple[int, int, int]) -> None:
    """The copying warp continues with the next tile while the others store."""
    program = tiles(*shape)
    module, counts = lowered(program, 4, stages, tensor_copies=True)
    assert counts["rings"] == 1
    check(program, module)
    check(program, module, seed=stages)


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("steps", [2, 5])
@pytest.mark.usefixtures("no_copy_costs")
def test_descriptors(stages: int, steps: int) -> None:
    program = products.persistent(3, steps, 64, 64, programs=1, transposed=True)
    module, counts = lowered(program, 4, stages, tensor_copies=True)
    assert counts["rings"] == 1
    check(program, module)


def test_product_that_is_used_immediately() -> None:
    program = used(6, 1.0, 0.5)
    module, counts = lowered(program, 4, 3, tensor_copies=True)
    assert (counts["rings"], counts["overlapped"]) == (1, 0)
    check(program, module)


# -- the machine finds what is wrong --------------------------------------------------------------


def _others(module: Module, cls: type[Op]) -> Iterator[Op]:
    yield from [op for op in module.walk() if isinstance(op, cls)]


def _without(cls: type[Op], which: int) -> Callable[[Module], None]:
    def spoil(module: Module) -> None:
        list(_others(module, cls))[which].erase()

    return spoil


def _other_parity(which: int) -> Callable[[Module], None]:
    def spoil(module: Module) -> None:
        op = list(_others(module, WaitBarrier))[which]
        assert isinstance(op, WaitBarrier)
        one = Constant(1, I32)
        other = Xor(op.parity, one.results[0])
        assert op.parent is not None
        for made in (one, other):
            op.parent.insert_before(made, op)
        op.set_operand(2, other.results[0])

    return spoil


def _fewer_products(module: Module) -> None:
    for op in _others(module, WgmmaWait):
        assert isinstance(op, WgmmaWait)
        op.pending += 1


def _early_arrival(module: Module) -> None:
    """Arrive in front of the wait for the product that reads the slot."""
    arrival = next(_others(module, Arrive))
    wait = arrival.prev
    while not isinstance(wait, WgmmaWait):
        assert wait is not None
        wait = wait.prev
    assert arrival.parent is not None
    wait.remove()
    arrival.parent.insert_after(wait, arrival)


def _other_bytes(by: int) -> Callable[[Module], None]:
    def spoil(module: Module) -> None:
        op = next(_others(module, ExpectBytes))
        assert isinstance(op, ExpectBytes)
        op.bytes += by

    return spoil


def _other_arrivals(by: int) -> Callable[[Module], None]:
    def spoil(module: Module) -> None:
        op = next(_others(module, InitBarriers))
        assert isinstance(op, InitBarriers)
        op.arrivals = tuple(n + by if n > 1 else n for n in op.arrivals)

    return spoil


MUTANTS = {
    "no wait for full slots": _without(WaitBarrier, 0),
    "no wait for empty slots": _without(WaitBarrier, 1),
    "no expected bytes": _without(ExpectBytes, 0),
    "no copy": _without(LoadBlock, 0),
    "no other copy": _without(LoadBlock, 1),
    "no arrival": _without(Arrive, 0),
    "full of the other parity": _other_parity(0),
    "empty of the other parity": _other_parity(1),
    "arrival before the product is complete": _early_arrival,
    "products are waited for too late": _fewer_products,
    "fewer bytes": _other_bytes(-64),
    "more bytes": _other_bytes(64),
    "fewer arrivals": _other_arrivals(-1),
    "more arrivals": _other_arrivals(1),
}


@cache
def _subject(overlapped: bool, spare: bool, steps: int) -> tuple[Program, Module]:
    """What is spoiled in copies; right itself."""
    program = square(steps) if overlapped else used(steps, 1.0, 0.5)
    module, counts = lowered(program, 4, 3, tensor_copies=True)
    assert counts["overlapped"] == overlapped
    check(program, module, spare=spare)
    return program, module


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("overlapped", [True, False])
@pytest.mark.parametrize(("spare", "steps"), [(False, 7), (True, 12)])
def test_mutants_are_found(name: str, overlapped: bool, spare: bool, steps: int) -> None:
    program, module = _subject(overlapped, spare, steps)
    module = module.clone()
    MUTANTS[name](module)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module, spare=spare)


def _without_fence(module: Module) -> None:
    for op in _others(module, Arrive):
        assert isinstance(op, Arrive)
        op.loads = False


def _arrival_before_the_product(module: Module) -> None:
    """Arrive in front of the op that uses what was loaded: the last one, as its arrival says that
    earlier loads are complete, too."""
    *_, arrival = (op for op in _others(module, Arrive) if isinstance(op, Arrive) and op.loads)
    user, body = arrival.prev, arrival.parent
    assert isinstance(user, Wgmma)
    assert body is not None
    arrival.remove()
    body.insert_before(arrival, user)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("spoil", [_without_fence, _arrival_before_the_product])
@pytest.mark.parametrize(("type", "orders"), [("fp32", "nn"), ("fp32", "tn"), ("i8", "nn")])
def test_mutants_of_loaded_operands_are_found(
    spoil: Callable[[Module], None], type: str, orders: str
) -> None:
    """An operand that threads load from its slot is released once its product has started.

    Of int8 with both operands across K, the other one is transposed into a buffer, whose fence is
    behind all loads.
    """
    out = "i32" if type == "i8" else "fp32"
    program = products.matmul(type, out, orders, (128, 64, 32 * 7), (128, 64, 32))
    module, counts = lowered(program, 4, 3, tensor_copies=True)
    assert counts["rings"] == 1
    check(program, module)
    spoil(module)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module)


@tw.jit
def two_products_kernel(a_ptr, b_ptr, c_ptr, d_ptr, K, N: tl.constexpr, BK: tl.constexpr):
    """The rows of `a` times `b`, and their first 32 once more, by another instruction."""
    m, n, few = tl.arange(0, 64), tl.arange(0, N), tl.arange(0, 32)
    c, d = tl.zeros((64, N), tl.float32), tl.zeros((32, N), tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        b = tl.load(b_ptr + inner[:, None] * N + n)
        c = tl.dot(tl.load(a_ptr + m[:, None] * K + inner), b, c)
        d = tl.dot(tl.load(a_ptr + few[:, None] * K + inner), b, d)
    tl.store(c_ptr + m[:, None] * N + n, c)
    tl.store(d_ptr + few[:, None] * N + n, d)


def test_operands_that_are_loaded_for_other_instructions_are_not_copied_by_another_warp() -> None:
    a, b = products.matrix("fp16", 64, 96), products.matrix("fp16", 96, 64)
    exact, bound = products.product(a, b, "fp16")
    outputs = [np.zeros((64, 64), np.float32), np.zeros((32, 64), np.float32)]
    expected = [a, b, exact.astype(np.float32), exact[:32].astype(np.float32)]
    error = bound.max()
    program = Program(
        two_products_kernel, [a, b, *outputs, 96], {"N": 64, "BK": 32}, (1,), error, expected
    )
    module, counts = lowered(program, 4, 3, tensor_copies=True)
    assert (counts["wgmma"], counts["mma"]) == (1, 1)
    assert (counts["rings"], counts["pipelined"]) == (0, 1)
    check(program, module)


@tw.jit
def waiting_kernel(a_ptr, b_ptr, c_ptr, flag_ptr, K, SEM: tl.constexpr, BK: tl.constexpr):
    """A product of what another program writes before it sets a flag."""
    while tl.atomic_cas(flag_ptr, 1, 1, sem=SEM) != 1:
        pass
    m, n = tl.arange(0, 64), tl.arange(0, 64)
    c = tl.zeros((64, 64), tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + inner)
        c = tl.dot(a, tl.load(b_ptr + inner[:, None] * 64 + n), c)
    tl.store(c_ptr + m[:, None] * 64 + n, c)


@pytest.mark.parametrize("sem", ["relaxed", "acquire", "acq_rel"])
def test_operands_that_other_programs_write_are_not_copied_before_the_flag_is_set(sem: str) -> None:
    a, b = products.matrix("fp16", 64, 192), products.matrix("fp16", 192, 64)
    exact, bound = products.product(a, b, "fp16")
    flag, output = np.ones(1, np.int32), np.zeros((64, 64), np.float32)
    program = Program(
        waiting_kernel,
        [a, b, output, flag, 192],
        {"SEM": sem, "BK": 32},
        (1,),
        bound.max(),
        [a, b, exact.astype(np.float32), flag],
    )
    module, counts = lowered(program, 4, 3, tensor_copies=True)
    assert counts["wgmma"] == 1
    assert bool(counts["rings"]) == (sem == "relaxed")
    check(program, module)


@tw.jit
def weighted_from_the_end_kernel(a_ptr, b_ptr, w_ptr, c_ptr, K, BK: tl.constexpr):
    """The right half of the columns of `a` times `b`, from the last block of rows to the first;
    each block but the first is weighted by a number that a branch loads."""
    m, n = tl.arange(0, 64), tl.arange(0, 64)
    c, weight = tl.zeros((64, 64), tl.float32), 1.0
    for block in range(tl.cdiv(K, BK) - 1, -1, -1):
        k = block * BK + tl.arange(0, BK)
        inside = k < K
        a = tl.load(a_ptr + k[None, :] * 128 + (64 + m)[:, None], mask=inside[None, :], other=0)
        b = tl.load(b_ptr + k[:, None] * 64 + n, mask=inside[:, None], other=0)
        c += tl.dot(a, b) * weight
        weight += (tl.load(w_ptr + block) if block % 2 > 0 else 0.0) - tl.load(w_ptr)
    tl.store(c_ptr + m[:, None] * 64 + n, c)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_blocks_from_the_end_with_a_number_that_a_branch_loads(steps: int) -> None:
    """The copying warp computes what only the others use no more than them; its coordinates are
    not negative."""
    k = 32 * steps
    a, b = products.matrix("fp16", k, 128), products.matrix("fp16", k, 64)
    w, weight = np.arange(1, steps + 1, dtype=np.float32) / 4, np.float32(1)
    c = np.zeros((64, 64), np.float32)
    for i in reversed(range(steps)):
        rows = slice(32 * i, 32 * i + 32)
        c += a[rows, 64:].T.astype(np.float32) @ b[rows].astype(np.float32) * weight
        weight += w[i] * (i % 2) - w[0]
    args, expected = [a, b, w, np.zeros_like(c), k], [a, b, w, c]
    program = Program(weighted_from_the_end_kernel, args, {"BK": 32}, (1,), 1e-2, expected)
    module, counts = lowered(program, 4, 3, tensor_copies=True)
    assert counts["rings"] == 1
    check(program, module)
    check(program, module, seed=steps)


@tw.jit
def products_around_a_loop_kernel(
    q_ptr, a_ptr, b_ptr, c_ptr, d_ptr, K, BEFORE: tl.constexpr, AFTER: tl.constexpr
):
    """Sums of products of `q` with blocks of rows: of `a`, all up to one of `b`, and of `c`."""
    m = tl.arange(0, 64)
    total = tl.zeros((64, 64), tl.float32)
    q = tl.load(q_ptr + m[:, None] * 64 + m)
    for k in range(0, K, 64):
        rows = (k + m)[:, None] * 64 + m
        if BEFORE:
            total = tl.dot(q, tl.load(a_ptr + rows), total)
        inner = tl.zeros((64, 64), tl.float32)
        for j in range(0, k + 64, 64):
            inner = tl.dot(q, tl.load(b_ptr + (j + m)[:, None] * 64 + m), inner)
        total += inner
        if AFTER:
            total = tl.dot(q, tl.load(c_ptr + rows), total)
    tl.store(d_ptr + m[:, None] * 64 + m, total)


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True), (True, True)])
def test_products_around_a_loop_of_products(before: bool, after: bool, steps: int) -> None:
    """What they read is copied before the loop in their loop runs, or not by the copying warp."""
    q, a, b, c = (products.matrix("fp16", 64 * n, 64) for n in (1, steps, steps, steps))
    d = np.zeros((64, 64), np.float32)
    for k in range(0, 64 * steps, 64):
        for part, rows in ((before, a[k : k + 64]), (after, c[k : k + 64])):
            d += part * products.product(q, rows, "fp16")[0].astype(np.float32)
        for j in range(0, k + 64, 64):
            d += products.product(q, b[j : j + 64], "fp16")[0].astype(np.float32)
    args, expected = [q, a, b, c, np.zeros_like(d), 64 * steps], [q, a, b, c, d]
    constants = {"BEFORE": before, "AFTER": after}
    kernel = products_around_a_loop_kernel
    program = Program(kernel, args, constants, (1,), 0.01 * np.abs(d).max(), expected)
    module, counts = lowered(program, 4, 2, tensor_copies=True)
    assert counts["rings"] == 1
    check(program, module)
    check(program, module, seed=steps)


# -- rotated loops --------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [128, 256, 384, 640])
def test_rotated_attention(causal: bool, keys: int) -> None:
    """One product runs on into the next iteration, for any number of iterations."""
    program = products.attention(128, keys, keys, (128, 128), causal, heads=1)
    module, counts = lowered(program, 8, 2, tensor_copies=True)
    assert counts["rotated"] == (2 if causal else 1)
    check(program, module)
    check(program, module, seed=keys)


def test_wait_for_a_slot_passes_a_release_with_its_product_only() -> None:
    """Where the second product needs the softmax of the first, its slot is waited for after it."""
    program = products.attention(64, 256, 256, (64, 64), False, heads=1)
    module, counts = lowered(program, 4, 3, tensor_copies=True)
    assert (counts["rings"], counts["rotated"]) == (1, 0)
    loops = [op for op in module.walk() if isinstance(op, For)]
    (loop,) = (loop for loop in loops if any(isinstance(op, Wgmma) for op in loop.body))
    steps = [op for op in loop.body if isinstance(op, WaitBarrier | Wgmma | WgmmaWait | Arrive)]
    assert [type(op) for op in steps] == 2 * [WaitBarrier, Wgmma, WgmmaWait, Arrive]
    check(program, module)
