"""Pipelined loops do what the loops did where copies arrive as late as they may."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.async_machine import AsyncMachine, Race
from tests.gpu_machine import gpu_machine
from tilewright.base.diagnostics import InterpreterError
from tilewright.ir.core import Module, Op
from tilewright.ir.interpret import interpret
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PASSES, PassContext, Step, Verifier, run
from tilewright.ops.control import Barrier, For
from tilewright.ops.gpu import CopyAsync, Fetch, WaitCopies
from tilewright.passes import pipeline_loads
from tilewright.passes.verify_layouts import verify_layouts

MACHINE = gpu_machine(lanes=4, warps=1)
ROWS = 64  # of the matrices that are loaded, a row an iteration, and rows that must not be

# Two tiles of different shapes and types; the second through a pointer offset that the loop
# carries, which only the body moves on, and with a mask that depends on the iteration.
TEXT = """
layout !0 = "register[1] lane[2 4] warp[] -> dim0:8"
layout !1 = "offset[1 2 4] -> dim0:8"
layout !2 = "register[1 2 8] lane[4 16] warp[] -> dim0:32"
layout !3 = "offset[1 2 4 8 16] -> dim0:32"
func @rows(%a: ptr<fp32> {{divisibility=16}}, %b: ptr<fp16> {{divisibility=16}},
           %x: ptr<fp32>, %y: ptr<fp16>,
           %start: {type}, %stop: {type}, %step: {type}, %limit: {type}) {{
  %zero = arith.constant value=0, type=i32 : () -> i32
  %stride = arith.constant value=32, type=i32 : () -> i32
  %eight = arith.constant value=8, type={type} : () -> {type}
  %sum8 = arith.constant value=0.0, type=8xfp32 : () -> 8xfp32 !0
  %sum32 = arith.constant value=0.0, type=32xfp16 : () -> 32xfp16 !2
  %i8 = tile.arange start=0, end=8 : () -> 8xi32 !0
  %i32 = tile.arange start=0, end=32 : () -> 32xi32 !2
  %s, %t, %end = control.for %start, %stop, %step, [%sum8, %sum32, %zero],
    num_stages={stages}, unroll=0, hints=()
    : ({type}, {type}, {type}, 8xfp32 !0, 32xfp16 !2, i32) -> (8xfp32 !0, 32xfp16 !2, i32) {{
    (%i: {type}, %u: 8xfp32 !0, %v: 32xfp16 !2, %place: i32)
    %row = arith.mul %i, %eight : ({type}, {type}) -> {type}
    %pa = mem.addptr %a, {row} -> ptr<fp32>
    %sa = tile.splat %pa, shape=(8,) : ptr<fp32> -> 8xptr<fp32> !0
    %qa = mem.addptr %sa, %i8 : (8xptr<fp32> !0, 8xi32 !0) -> 8xptr<fp32> !0
    %la = mem.load %qa, _, _, cache="", evict="", volatile=False
      : 8xptr<fp32> !0 -> 8xfp32 !0
    %pb = mem.addptr %b, %place : (ptr<fp16>, i32) -> ptr<fp16>
    %sb = tile.splat %pb, shape=(32,) : ptr<fp16> -> 32xptr<fp16> !2
    %qb = mem.addptr %sb, %i32 : (32xptr<fp16> !2, 32xi32 !2) -> 32xptr<fp16> !2
    %below = arith.cmp %i, %limit, predicate="lt" : ({type}, {type}) -> i1
    %mask = tile.splat %below, shape=(32,) : i1 -> 32xi1 !2
    %lb = mem.load %qb, %mask, _, cache="", evict="", volatile=False
      : (32xptr<fp16> !2, 32xi1 !2) -> 32xfp16 !2
    %ba = gpu.share %la : 8xfp32 !0 -> shared<8xfp32> !1
    %bb = gpu.share %lb : 32xfp16 !2 -> shared<32xfp16> !3
    %fa = gpu.fetch %ba : shared<8xfp32> !1 -> 8xfp32 !0
    %fb = gpu.fetch %bb : shared<32xfp16> !3 -> 32xfp16 !2
    %nu = arith.add %u, %fa : (8xfp32 !0, 8xfp32 !0) -> 8xfp32 !0
    %nv = arith.add %v, %fb : (32xfp16 !2, 32xfp16 !2) -> 32xfp16 !2
    %next = arith.add %place, %stride : (i32, i32) -> i32
    control.yield [%nu, %nv, %next] : (8xfp32 !0, 32xfp16 !2, i32) -> ()
  }}
  %sx = tile.splat %x, shape=(8,) : ptr<fp32> -> 8xptr<fp32> !0
  %qx = mem.addptr %sx, %i8 : (8xptr<fp32> !0, 8xi32 !0) -> 8xptr<fp32> !0
  mem.store %qx, %s, _, cache="", evict="" : (8xptr<fp32> !0, 8xfp32 !0) -> ()
  %sy = tile.splat %y, shape=(32,) : ptr<fp16> -> 32xptr<fp16> !2
  %qy = mem.addptr %sy, %i32 : (32xptr<fp16> !2, 32xi32 !2) -> 32xptr<fp16> !2
  mem.store %qy, %t, _, cache="", evict="" : (32xptr<fp16> !2, 32xfp16 !2) -> ()
  control.return [] : () -> ()
}}
"""


def pipelined(module: Module, stages: int, *more: str) -> Module:
    """A copy in which all loads of a loop are copies ahead, after additional passes."""
    late, missed = with_missed(module, stages, *more)
    assert not missed
    return late


def with_missed(module: Module, stages: int, *more: str) -> tuple[Module, list[Any]]:
    """A copy after the pass and additional ones, and the remarks on what was missed."""
    module = module.clone()
    ctx = PassContext(options={"num_stages": stages}, machine=MACHINE)
    steps = [Step(PASSES[name]) for name in ("pipeline_loads", *more)]
    run(module, steps, ctx, [Verifier()])
    verify_layouts(module.entry, ctx)
    return module, ctx.missed_remarks


def arguments(start: int, stop: int, step: int, limit: int) -> list[Any]:
    rng = np.random.default_rng(abs(start + stop))
    a = rng.integers(-9, 9, (ROWS, 8)).astype(np.float32)
    b = rng.integers(-9, 9, (ROWS, 32)).astype(np.float16)
    x, y = np.zeros(8, np.float32), np.zeros(32, np.float16)
    return [a, b, x, y, start, stop, step, limit]


def outcome(module: Module, args: list[Any]) -> list[Any]:
    """What the kernel stores, on the machine on which all is late."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with AsyncMachine() as machine:
        interpret(module, 1, copies)
    machine.check_idle()
    return copies[2:4]


# The same where threads need what they load: the first tile is computed with before it is shared,
# lanes of the second that are masked off hold 7.
OWN = (
    TEXT.replace(
        "%ba = gpu.share %la",
        "%na = arith.neg %la : 8xfp32 !0 -> 8xfp32 !0\n    %ba = gpu.share %na",
    )
    .replace("%lb = mem.load %qb, %mask, _,", "%lb = mem.load %qb, %mask, %seven,")
    .replace(": (32xptr<fp16> !2, 32xi1 !2) ->", ": (32xptr<fp16> !2, 32xi1 !2, 32xfp16 !2) ->")
    .replace(
        "  %i8 = tile",
        "  %seven = arith.constant value=7.0, type=32xfp16 : () -> 32xfp16 !2\n  %i8 = tile",
    )
)


# The same where the offset of the next iteration is an entry of a table.
TABLE = TEXT.replace("%limit: {type}) {{", "%limit: {type}, %table: ptr<i32>) {{").replace(
    "%next = arith.add %place, %stride : (i32, i32) -> i32",
    "%entry = mem.addptr %table, %i : (ptr<i32>, {type}) -> ptr<i32>\n"
    '    %line = mem.load %entry, _, _, cache="", evict="", volatile=False : ptr<i32> -> i32\n'
    "    %next = arith.mul %line, %stride : (i32, i32) -> i32",
)

# The same where each element of a tile has an entry, as the rows of a tile have pages.
PAGES = TEXT.replace("%limit: {type}) {{", "%limit: {type}, %table: ptr<i32>) {{").replace(
    "%qa = mem.addptr %sa, %i8 :",
    "%pt = mem.addptr %table, %row : (ptr<i32>, {type}) -> ptr<i32>\n"
    "    %st = tile.splat %pt, shape=(8,) : ptr<i32> -> 8xptr<i32> !0\n"
    "    %qt = mem.addptr %st, %i8 : (8xptr<i32> !0, 8xi32 !0) -> 8xptr<i32> !0\n"
    '    %pages = mem.load %qt, _, _, cache="", evict="", volatile=False '
    ": 8xptr<i32> !0 -> 8xi32 !0\n"
    "    %qa = mem.addptr %sa, %pages :",
)


def rows_loop(
    type: str = "i32", stages: int = 0, text: str = TEXT, *, carried: bool = False
) -> Module:
    """The kernel with an index of this type and a number of stages of its own.

    Args:
        carried: whether the offset into %a is the one that the loop carries.
    """
    row = "%place : (ptr<fp32>, i32)" if carried else f"%row : (ptr<fp32>, {type})"
    return parse_module(text.format(type=type, stages=stages, row=row))


def copies_of(module: Module) -> list[Op]:
    return [op for op in module.walk() if isinstance(op, CopyAsync)]


def check(module: Module, late: Module, args: list[Any]) -> None:
    for ours, expected in zip(outcome(late, args), outcome(module, args), strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("type", ["i32", "i64"])
@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_any_trip_count(type: str, stages: int) -> None:
    """None, one, fewer than are ahead, and more; the mask ends before the loop does, or after."""
    module = rows_loop(type)
    late = pipelined(module, stages)
    assert len(copies_of(late)) == 2 * stages  # of a prologue of stages - 1 iterations, and of one
    for trips in (*range(stages + 2), 11):
        for limit in (0, trips // 2, trips, trips + 9):
            check(module, late, arguments(0, trips, 1, limit))


@pytest.mark.parametrize("trips", [2, 3, 4, 5])
@pytest.mark.parametrize("text", [TEXT, OWN])
def test_as_few_iterations_as_stages(text: str, trips: int) -> None:
    """Of four stages: all copies are before the loop, and none is in it; of more, as ever."""
    numbers = {"start": 3, "stop": 3 + 2 * trips, "step": 2}
    constants = "".join(
        f"  %{name} = arith.constant value={number}, type=i32 : () -> i32\n"
        for name, number in numbers.items()
    )
    text = text.replace("%start: {type}, %stop: {type}, %step: {type}, ", "")
    text = text.replace("  %zero =", f"{constants}  %zero =", 1)
    module = parse_module(text.format(type="i32", stages=4, row="%row : (ptr<fp32>, i32)"))
    late, _ = with_missed(module, 4)
    before = trips <= 4
    assert len(copies_of(late)) == 2 * (trips if before else 4)
    (loop,) = (op for op in late.walk() if isinstance(op, For))
    assert any(isinstance(op, CopyAsync) for op in loop.body) != before
    for limit in (0, trips, 99):
        args = arguments(0, 0, 0, limit)
        check(module, late, [*args[:4], limit])


@pytest.mark.parametrize(("start", "stop", "step"), [(3, 20, 4), (5, 5, 1), (9, 2, 3), (0, 7, 7)])
def test_any_range(start: int, stop: int, step: int) -> None:
    module = rows_loop()
    check(module, pipelined(module, 4), arguments(start, stop, step, 12))


@pytest.mark.parametrize(
    ("type", "start", "stop"),
    [
        ("i32", 2**31 - 3, 2**31 - 1),
        ("u32", 2**32 - 4, 2**32 - 1),
        ("i64", 2**63 - 3, 2**63 - 1),
        ("u64", 2**63 - 3, 2**63 + 2),
        ("u64", 2**64 - 6, 2**64 - 1),
    ],
)
def test_bounds_at_the_end_of_their_type(type: str, start: int, stop: int) -> None:
    """The index of the iteration after the last is beyond the type; nothing is copied for it."""
    module = rows_loop(type, carried=True)
    for step in (1, 2):
        check(module, pipelined(module, 4), arguments(start, stop, step, stop))


def test_loop_s_own_number_of_stages() -> None:
    module = rows_loop(stages=3)
    assert len(copies_of(pipelined(module, 1))) == 6
    assert not copies_of(pipelined(rows_loop(stages=1), 4))
    check(module, pipelined(module, 1), arguments(0, 6, 1, 4))


@pytest.mark.parametrize("name", ["cse", "licm", "dce"])
def test_later_passes_keep_the_order(name: str) -> None:
    """Ops that start and await copies count as writes, so that nothing moves past them."""
    module = rows_loop()
    for trips in (1, 2, 7):
        check(module, pipelined(module, 3, name), arguments(0, trips, 1, 5))


def test_inner_loop_of_a_nest() -> None:
    """Each run of the inner loop has a prologue of its own, and leaves nothing under way."""
    inner = TEXT[TEXT.index("  %s, %t, %end") : TEXT.index("  %sx")]
    outer = f"""  %one = arith.constant value=1, type=i32 : () -> i32
  %three = arith.constant value=3, type=i32 : () -> i32
  %s, %t = control.for %zero, %three, %one, [%sum8, %sum32],
    num_stages=1, unroll=0, hints=()
    : (i32, i32, i32, 8xfp32 !0, 32xfp16 !2) -> (8xfp32 !0, 32xfp16 !2) {{{{
    (%j: i32, %s0: 8xfp32 !0, %t0: 32xfp16 !2)
{inner.replace("%s, %t, %end", "%s1, %t1, %end").replace("[%sum8, %sum32,", "[%s0, %t0,")}
    control.yield [%s1, %t1] : (8xfp32 !0, 32xfp16 !2) -> ()
  }}}}
"""
    module = rows_loop(text=TEXT.replace(inner, outer))
    late = pipelined(module, 3)
    loops = [op for op in late.walk() if isinstance(op, For)]
    assert [len(list(loop.body.terminator.operands)) for loop in loops] == [2, 7]
    for trips in (0, 1, 2, 5):
        check(module, late, arguments(0, trips, 1, 3))


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_tiles_that_threads_compute_with(stages: int) -> None:
    """Each thread copies what it holds, and fetches it in the layout of the load."""
    module = rows_loop(text=OWN)
    late, missed = with_missed(module, stages)
    assert len(copies_of(late)) == 2 * stages
    assert sum(isinstance(op, Fetch) and op.own for op in late.walk()) == 2
    assert [remark.text for remark in missed] == [
        "the operand is computed, not loaded, in the loop"
    ]
    for trips in (*range(stages + 2), 11):
        for limit in (0, trips // 2, trips + 9):
            check(module, late, arguments(0, trips, 1, limit))


def test_tiles_that_threads_compute_with_need_a_wait() -> None:
    late, _ = with_missed(rows_loop(text=OWN), 3)
    for op in list(late.walk()):
        if isinstance(op, WaitCopies):
            op.pending += 1
    with pytest.raises(InterpreterError) as found:
        outcome(late, arguments(0, 9, 1, 9))
    assert isinstance(found.value.__cause__, Race)


def test_tiles_of_which_two_slots_do_not_fit_are_not_copied() -> None:
    """Operands are copied ahead even so."""
    text = TEXT.replace("%nv = arith.add %v, %fb", "%nv = arith.add %v, %lb")
    for size, copies in ((2 * (32 + 64), 2 * 2), (2 * (32 + 64) - 1, 2)):
        module = rows_loop(text=text)
        ctx = PassContext(
            options={"num_stages": 2}, machine=gpu_machine(lanes=4, warps=1, shared_bytes=size)
        )
        run(module, [Step(PASSES["pipeline_loads"])], ctx, [Verifier()])
        assert len(copies_of(module)) == copies


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_addresses_from_a_table(stages: int) -> None:
    """The table has an entry for each iteration, and none is loaded for one beyond the last."""
    module = rows_loop(text=TABLE)
    late = pipelined(module, stages)
    assert len(copies_of(late)) == 2 * stages
    for trips in (*range(stages + 2), 11):
        table = np.random.default_rng(trips).permutation(ROWS)[:trips].astype(np.int32)
        for limit in (0, trips // 2, trips + 9):
            check(module, late, [*arguments(0, trips, 1, limit), table])


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("more", [(), ("prefetch_loads",)])
def test_addresses_from_a_tile_of_a_table(stages: int, more: tuple[str, ...]) -> None:
    """Its entries are loaded ahead as well, also an iteration earlier than the copies start."""
    module = rows_loop(text=PAGES)
    late, _ = with_missed(module, stages, *more)
    assert len(copies_of(late)) == 2 * stages
    for trips in (*range(stages + 2), 11):
        table = np.random.default_rng(trips).permutation(8 * trips).astype(np.int32)
        table -= 8 * (np.arange(8 * trips, dtype=np.int32) // 8)  # from the row of the iteration
        for limit in (0, trips // 2, trips + 9):
            check(module, late, [*arguments(0, trips, 1, limit), table])


def test_table_that_the_loop_writes() -> None:
    """Its entries are not known ahead."""
    text = TABLE.replace(
        "    control.yield [%nu",
        '    mem.store %table, %next, _, cache="", evict="" : (ptr<i32>, i32) -> ()\n'
        "    control.yield [%nu",
    )
    late, missed = with_missed(rows_loop(text=text), 3)
    assert not copies_of(late)
    assert missed


# -- the machine finds what is wrong --------------------------------------------------------------


def _spoilt(stages: int, spoil: str) -> Module:
    module = pipelined(rows_loop(), stages)
    (loop,) = (op for op in module.entry.body if isinstance(op, For))
    for op in loop.body:
        if isinstance(op, Barrier) and spoil == "no barrier":
            op.erase()
        elif isinstance(op, WaitCopies) and spoil == "wait for one group fewer":
            op.pending += 1
    return module


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("spoil", ["no barrier", "wait for one group fewer"])
def test_race_is_found(stages: int, spoil: str) -> None:
    with pytest.raises(InterpreterError) as found:
        outcome(_spoilt(stages, spoil), arguments(0, 9, 1, 9))
    assert isinstance(found.value.__cause__, Race)


def test_loops_without_shared_tiles_are_not_analysed(monkeypatch: pytest.MonkeyPatch) -> None:
    def analysed(*_: object) -> None:
        raise AssertionError("no loop shares a tile")

    monkeypatch.setattr(pipeline_loads, "axis_info", analysed)
    text = re.sub(r".* = gpu.share .*\n|.* = gpu.fetch .*\n", "", TEXT)
    module = rows_loop(text=text.replace("%fa", "%la").replace("%fb", "%lb"))
    assert not copies_of(pipelined(module, 3))
