"""Loops with loads ahead compute what they did before, and touch no memory that they did not.

The machine is that of `tests/async_machine.py`. The arrays end where the loop's last row does, so
that a load for an iteration that does not exist is out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.async_machine import AsyncMachine
from tests.gpu_machine import gpu_machine
from tilewright.base.diagnostics import InterpreterError
from tilewright.ir.core import Module, Op, Value
from tilewright.ir.interpret import interpret
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PASSES, PassContext, Step, Verifier, run
from tilewright.ops.control import For, If
from tilewright.ops.gpu import CopyAsync, Fetch, Share
from tilewright.ops.memory import Load
from tilewright.passes import prefetch_loads
from tilewright.passes.software_pipelining import LoopRewrite, LoopWrites
from tilewright.passes.verify_layouts import verify_layouts

ROWS = 24  # of both matrices, the last of which the longest loops read

# Two tiles: %v from the row of the index, in registers; %w, if shared, through shared memory, from
# an offset that the loop carries. Each step's sum depends on the one before it.
TEXT = """
layout !0 = "register[1] lane[2 4] warp[8] -> dim0:16"
layout !1 = "offset[1 2 4 8] -> dim0:16"
func @rows(%x: ptr<fp32> {{alias=0, divisibility=16}}, %y: ptr<fp32> {{{y}, divisibility=16}},
           %out: ptr<fp32> {{{out}}}, %start: {type}, %stop: {type}, %step: {type}) {{
  %zero = arith.constant value=0, type=i32 : () -> i32
  %width = arith.constant value=16, type={type} : () -> {type}
  %row = arith.constant value=16, type=i32 : () -> i32
  %none = arith.constant value=0.0, type=16xfp32 : () -> 16xfp32 !0
  %lane = tile.arange start=0, end=16 : () -> 16xi32 !0
  %outs = tile.splat %out, shape=(16,) : ptr<fp32> -> 16xptr<fp32> !0
  %to = mem.addptr %outs, %lane : (16xptr<fp32> !0, 16xi32 !0) -> 16xptr<fp32> !0
  %sum, %end = control.for %start, %stop, %step, [%none, %zero],
    num_stages=0, unroll=0, hints=()
    : ({type}, {type}, {type}, 16xfp32 !0, i32) -> (16xfp32 !0, i32) {{
    (%i: {type}, %acc: 16xfp32 !0, %place: i32)
    %offset = arith.mul %i, %width : ({type}, {type}) -> {type}
    %px = mem.addptr %x, {offset} : (ptr<fp32>, {offset_type}) -> ptr<fp32>
    %sx = tile.splat %px, shape=(16,) : ptr<fp32> -> 16xptr<fp32> !0
    %qx = mem.addptr %sx, %lane : (16xptr<fp32> !0, 16xi32 !0) -> 16xptr<fp32> !0
    %v = mem.load %qx, _, _, cache="", evict="", volatile=False : 16xptr<fp32> !0 -> 16xfp32 !0
    %py = mem.addptr %y, %place : (ptr<fp32>, i32) -> ptr<fp32>
    %sy = tile.splat %py, shape=(16,) : ptr<fp32> -> 16xptr<fp32> !0
    %qy = mem.addptr %sy, %lane : (16xptr<fp32> !0, 16xi32 !0) -> 16xptr<fp32> !0
    %l = mem.load %qy, _, _, cache="", evict="", volatile=False : 16xptr<fp32> !0 -> 16xfp32 !0
    {through}
    %n = arith.sub {left}, %acc : (16xfp32 !0, 16xfp32 !0) -> 16xfp32 !0
    %s = arith.add %n, %w : (16xfp32 !0, 16xfp32 !0) -> 16xfp32 !0
    {store}
    %next = arith.add %place, %row : (i32, i32) -> i32
    control.yield [%s, %next] : (16xfp32 !0, i32) -> ()
  }}
  mem.store %to, %sum, _, cache="", evict="" : (16xptr<fp32> !0, 16xfp32 !0) -> ()
  control.return [] : () -> ()
}}
"""
IN_REGISTERS = "%w = arith.neg %l : 16xfp32 !0 -> 16xfp32 !0"
SHARED = """%b = gpu.share %l : 16xfp32 !0 -> shared<16xfp32> !1
    %w = gpu.fetch %b : shared<16xfp32> !1 -> 16xfp32 !0"""
BOTH_SHARED = """%b = gpu.share %l : 16xfp32 !0 -> shared<16xfp32> !1
    %c = gpu.share %v : 16xfp32 !0 -> shared<16xfp32> !1
    %w = gpu.fetch %b : shared<16xfp32> !1 -> 16xfp32 !0
    %z = gpu.fetch %c : shared<16xfp32> !1 -> 16xfp32 !0"""
STORE = """mem.store %to, %s, _, cache="", evict="" : (16xptr<fp32> !0, 16xfp32 !0) -> ()"""


def rows_loop(
    type: str = "i32",
    through: str = IN_REGISTERS,
    *,
    store: str = "",
    classes: tuple[int, int] = (1, 2),
    by_place: bool = False,
    left: str = "%v",
) -> Module:
    """The kernel with an index of this type; `classes` are the alias classes of %y and %out.

    `by_place` has %x advance with the carried offset too, for any index.
    """
    y, out = (f"alias={c}" for c in classes)
    offset, offset_type = ("%place", "i32") if by_place else ("%offset", type)
    return parse_module(
        TEXT.format(
            type=type,
            through=through,
            store=store,
            y=y,
            out=out,
            offset=offset,
            offset_type=offset_type,
            left=left,
        )
    )


def rewritten(
    module: Module, stages: int = 2, *, passes: tuple[str, ...] = (), warps: int = 2
) -> tuple[Module, PassContext]:
    module = module.clone()
    # Two slots of one of the tiles fit into shared memory, but not of both.
    machine = gpu_machine(lanes=4, warps=warps, shared_bytes=3 * 64)
    ctx = PassContext(options={"num_stages": stages}, machine=machine)
    run(module, [Step(PASSES[name]) for name in (*passes, "prefetch_loads")], ctx, [Verifier()])
    return module, ctx


@pytest.mark.parametrize(("work", "prefetched"), [(6, 2), (7, 0)])
def test_iterations_that_hide_little(work: int, prefetched: int) -> None:
    """Three ops on two elements of a thread."""
    machine = gpu_machine(lanes=4, warps=2, prefetch_work=work)
    ctx = PassContext(options={"num_stages": 2}, machine=machine)
    run(rows_loop(), [Step(PASSES["prefetch_loads"])], ctx, [Verifier()])
    assert ctx.counts["prefetched"] == prefetched
    assert len(ctx.missed_remarks) == (not prefetched)


@pytest.mark.parametrize(("limit", "remaining"), [(16, []), (8, ["%v"]), (7, ["%v", "%l"])])
def test_tiles_beyond_the_limit_are_those_that_are_used_last(
    limit: int, remaining: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the tiles has two elements, 8 bytes, of a thread; %l is used by the op behind it."""
    monkeypatch.setattr("tilewright.passes.prefetch_loads.MAX_BYTES", limit)
    module = rows_loop()
    loads = [op for op in module.walk() if isinstance(op, Load)]
    names = dict(zip((load.loc for load in loads), ("%v", "%l"), strict=True))
    module, ctx = rewritten(module)
    assert ctx.counts["prefetched"] == 2 - len(remaining)
    assert [names[remark.loc] for remark in ctx.missed_remarks] == remaining[::-1]


INDIRECT = """
layout !0 = "register[1] lane[2 4] warp[8] -> dim0:16"
func @gather(%x: ptr<fp32> {alias=0}, %out: ptr<fp32> {alias=1}, %k: ptr<i32> {alias=2}, %n: i32) {
  %zero = arith.constant value=0, type=i32 : () -> i32
  %one = arith.constant value=1, type=i32 : () -> i32
  %none = arith.constant value=0.0, type=16xfp32 : () -> 16xfp32 !0
  %lane = tile.arange start=0, end=16 : () -> 16xi32 !0
  %sum = control.for %zero, %n, %one, [%none], num_stages=0, unroll=0, hints=()
    : (i32, i32, i32, 16xfp32 !0) -> 16xfp32 !0 {
    (%i: i32, %acc: 16xfp32 !0)
    %p = mem.addptr %k, %i : (ptr<i32>, i32) -> ptr<i32>
    %row = mem.load %p, _, _, cache="", evict="", volatile=False : ptr<i32> -> i32
    %base = mem.addptr %x, %row : (ptr<fp32>, i32) -> ptr<fp32>
    %bases = tile.splat %base, shape=(16,) : ptr<fp32> -> 16xptr<fp32> !0
    %at = mem.addptr %bases, %lane : (16xptr<fp32> !0, 16xi32 !0) -> 16xptr<fp32> !0
    %v = mem.load %at, _, _, cache="", evict="", volatile=False : 16xptr<fp32> !0 -> 16xfp32 !0
    %s = arith.add %acc, %v : (16xfp32 !0, 16xfp32 !0) -> 16xfp32 !0
    control.yield [%s] : 16xfp32 !0 -> ()
  }
  %outs = tile.splat %out, shape=(16,) : ptr<fp32> -> 16xptr<fp32> !0
  %to = mem.addptr %outs, %lane : (16xptr<fp32> !0, 16xi32 !0) -> 16xptr<fp32> !0
  mem.store %to, %sum, _, cache="", evict="" : (16xptr<fp32> !0, 16xfp32 !0) -> ()
  control.return [] : () -> ()
}
"""


@pytest.mark.parametrize(("unrolled", "prefetched"), [(1, 1), (2, 0)])
def test_addresses_that_depend_on_a_loaded_number(unrolled: int, prefetched: int) -> None:
    """One addition on two elements of a thread: where such loops are unrolled, they are left."""
    machine = gpu_machine(lanes=4, warps=2, unrolled_work=unrolled)
    ctx = PassContext(options={"num_stages": 2}, machine=machine)
    run(parse_module(INDIRECT), [Step(PASSES["prefetch_loads"])], ctx, [Verifier()])
    assert ctx.counts["prefetched"] == prefetched
    assert len(ctx.missed_remarks) == (not prefetched)


@pytest.mark.parametrize(
    ("unrolled", "store", "enough", "prefetched"),
    [(5, "", 17, 2), (6, "", 17, 0), (6, STORE, 17, 2), (6, STORE, 16, 0)],
)
def test_unrolled_loops_are_not_prefetched(
    unrolled: int, store: str, enough: int, prefetched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six elements of a thread: three sums of two. No load passes a store, unrolled or not, but 16
    bytes that are loaded in an iteration may be enough."""
    monkeypatch.setattr(prefetch_loads, "ENOUGH_BYTES", enough)
    machine = gpu_machine(lanes=4, warps=2, unrolled_work=unrolled)
    ctx = PassContext(options={"num_stages": 2}, machine=machine)
    module = rows_loop(store=store, classes=(1, 2))
    run(module, [Step(PASSES["prefetch_loads"])], ctx, [Verifier()])
    assert ctx.counts["prefetched"] == prefetched


SINGLE = """
layout !0 = "register[] lane[0 0] warp[0] -> dim0:1"
func @greatest(%x: ptr<i32> {alias=0}, %out: ptr<i32> {alias=1}, %stop: i32) {
  %zero = arith.constant value=0, type=i32 : () -> i32
  %one = arith.constant value=1, type=i32 : () -> i32
  %max = control.for %zero, %stop, %one, [%zero], num_stages=0, unroll=0, hints=()
    : (i32, i32, i32, i32) -> i32 {
    (%i: i32, %acc: i32)
    %p = mem.addptr %x, %i : (ptr<i32>, i32) -> ptr<i32>
    %q = tile.splat %p, shape=(1,) : ptr<i32> -> 1xptr<i32> !0
    %l = mem.load %q, _, _, cache="", evict="", volatile=False : 1xptr<i32> !0 -> 1xi32 !0
    %s = tile.reshape %l, shape=() : 1xi32 !0 -> i32
    %m = arith.max %acc, %s, propagate_nan=False : (i32, i32) -> i32
    control.yield [%m] : i32 -> ()
  }
  mem.store %out, %max, _, cache="", evict="" : (ptr<i32>, i32) -> ()
  control.return [] : () -> ()
}
"""


@pytest.mark.parametrize(("work", "prefetched"), [(1, 1), (2, 0)])
def test_work_on_scalars(work: int, prefetched: int) -> None:
    """A tile of one element becomes a scalar, which one register holds."""
    machine = gpu_machine(lanes=4, warps=2, prefetch_work=work)
    ctx = PassContext(options={"num_stages": 2}, machine=machine)
    run(parse_module(SINGLE), [Step(PASSES["prefetch_loads"])], ctx, [Verifier()])
    assert ctx.counts["prefetched"] == prefetched


def test_work_of_products_is_not_limited() -> None:
    """Nor is that of what goes through shared memory."""
    machine = gpu_machine(lanes=4, warps=2, prefetch_work=1000)
    ctx = PassContext(options={"num_stages": 2}, machine=machine)
    run(rows_loop(through=SHARED), [Step(PASSES["prefetch_loads"])], ctx, [Verifier()])
    assert ctx.counts["prefetched"] == 2


def ahead(module: Module, stages: int = 2, *passes: str) -> Module:
    """A copy in which both loads are ahead, or the one that no copy has become."""
    late, ctx = rewritten(module, stages, passes=passes)
    verify_layouts(late.entry, ctx)
    assert not ctx.missed_remarks
    assert ctx.counts["prefetched"] == (1 if passes else 2)
    return late


def outcome(module: Module, start: int, stop: int, step: int, rows: int = ROWS) -> np.ndarray:
    """What the kernel stores, on the machine on which all is late."""
    rng = np.random.default_rng(stop)
    x, y = (rng.integers(-9, 9, (rows, 16)).astype(np.float32) for _ in range(2))
    out = np.full(16, 99, np.float32)
    with AsyncMachine() as machine:
        interpret(module, 1, [x, y, out, start, stop, step])
    machine.check_idle()
    return out


def check(module: Module, late: Module, start: int, stop: int, step: int, rows: int = ROWS) -> None:
    expected = outcome(module, start, stop, step, rows)
    np.testing.assert_array_equal(outcome(late, start, stop, step, rows), expected)


@pytest.mark.parametrize("type", ["i32", "i64"])
def test_any_trip_count(type: str) -> None:
    """None, the one that is loaded before the loop, one more, and many, to the arrays' last row."""
    module = rows_loop(type)
    late = ahead(module)
    for trips in range(5):
        check(module, late, 0, trips, 1, rows=max(trips, 1))
    check(module, late, 0, ROWS, 1)


@pytest.mark.parametrize(("start", "stop", "step"), [(3, 20, 4), (3, 24, 5), (9, 2, 3), (5, 5, 1)])
def test_any_range(start: int, stop: int, step: int) -> None:
    module = rows_loop()
    check(module, ahead(module), start, stop, step)


def test_bounds_at_the_end_of_their_type() -> None:
    """The index after the last is beyond int32, and must not wrap to one that exists."""
    last = 2**31 - 1
    module = rows_loop(by_place=True)
    check(module, ahead(module), last - 3, last, 2, rows=2)


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_with_pipelined_copies(stages: int) -> None:
    """The other load is a copy for an iteration further ahead; each has its own bound."""
    module = rows_loop(through=SHARED)
    late = ahead(module, stages, "pipeline_loads")
    assert sum(isinstance(op, CopyAsync) for op in late.walk()) == stages
    for trips in range(stages + 2):
        check(module, late, 0, trips, 1, rows=max(trips, 1))


def test_loads_for_the_next_iteration_come_first() -> None:
    """All computations of the iteration come after them, so they hide their latency."""
    late = ahead(rows_loop())
    (loop,) = (op for op in late.entry.body if isinstance(op, For))
    ops = list(loop.body)
    loads = [i for i, op in enumerate(ops) if isinstance(op, Load)]
    uses = [i for i, op in enumerate(ops) if any(v in loop.body.args[3:5] for v in op.operands)]
    assert len(loads) == len(uses) == 2
    assert max(loads) < min(uses)


@pytest.mark.parametrize("type", ["i32", "i64"])
def test_tiles_for_shared_memory_are_loaded_after_it_has_the_present_one(type: str) -> None:
    """Under a branch without a mask; in the last iteration the tile remains what it is."""
    module = rows_loop(type, SHARED)
    late = ahead(module)
    for trips in range(5):
        check(module, late, 0, trips, 1, rows=max(trips, 1))
    check(module, late, 3, ROWS, 2)
    (loop,) = (op for op in late.entry.body if isinstance(op, For))
    (branch,) = (op for op in loop.body if isinstance(op, If))
    (fetch,) = (op for op in loop.body if isinstance(op, Fetch))
    ops = list(loop.body)
    assert ops.index(branch) == ops.index(fetch) + 1
    (load,) = (op for op in branch.then if isinstance(op, Load))
    assert load.mask is None


def test_tiles_are_loaded_before_others_are_fetched() -> None:
    """Branches of loads are not between fetches and products, which LLVM interleaves."""
    late = ahead(rows_loop(through=BOTH_SHARED, left="%z"))
    (loop,) = (op for op in late.entry.body if isinstance(op, For))
    kinds = [type(op) for op in loop.body if isinstance(op, Share | Fetch | If)]
    assert kinds == [Share, Share, Fetch, If, Fetch]


def test_programs_of_one_warp_prefetch_nothing() -> None:
    late, ctx = rewritten(rows_loop(), warps=1)
    assert not ctx.counts["prefetched"]
    assert [r.text for r in ctx.missed_remarks] == [
        "programs of one warp hide each other's latency"
    ]
    assert [type(op) for op in late.walk()] == [type(op) for op in rows_loop().walk()]


# -- the tests find what is wrong -----------------------------------------------------------------


def _never_masked(self: LoopRewrite, load: Load, mapping: dict[Value, Value], inside: Value) -> Any:
    return load.mask


def _one_iteration_too_late(self: LoopRewrite, index: Value, iterations: int) -> Value:
    return _inside(self, index, iterations - 1)


def _one_iteration_too_early(self: LoopRewrite, index: Value, iterations: int) -> Value:
    return _inside(self, index, iterations + 1)


_inside = LoopRewrite.exists_after


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("mask", _never_masked),
        ("exists_after", _one_iteration_too_late),
        ("exists_after", _one_iteration_too_early),
    ],
)
def test_wrong_bound_is_found(name: str, mutant: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(LoopRewrite, name, mutant)
    module = rows_loop()
    with pytest.raises((InterpreterError, AssertionError), match=r"out of bounds|not equal"):
        check(module, ahead(module), 0, 3, 1, rows=3)


def test_stale_tile_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop writes what it loads; were it loaded ahead, it would be what was there before."""
    module = rows_loop(store=STORE, classes=(1, 1))
    late, ctx = rewritten(module)
    assert "prefetched" not in ctx.counts
    assert [r.text for r in ctx.missed_remarks] == [
        "the loop may write the same memory",
        "each iteration waits for its other loads anyway",
    ]
    check_aliased(module, late)
    monkeypatch.setattr(LoopWrites, "leave", lambda *args: True)
    with pytest.raises(AssertionError, match="not equal"):
        check_aliased(module, ahead(module))


def check_aliased(module: Module, late: Module) -> None:
    """Run both with %out a row of %y that a later iteration reads."""
    results: list[np.ndarray] = []
    for kernel in (module, late):
        x, y = np.ones((4, 16), np.float32), np.ones((4, 16), np.float32)
        interpret(kernel, 1, [x, y, y[1], 0, 4, 1])
        results.append(y)
    np.testing.assert_array_equal(results[1], results[0])


def test_offset_that_is_not_advanced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The carried values of the next iteration are what the body makes of them."""
    compute = LoopRewrite.compute

    def unchanged(self: LoopRewrite, index: Value, values: list[Value], *rest: Any) -> Any:
        return compute(self, index, values, *rest)[0], list(values)

    monkeypatch.setattr(LoopRewrite, "compute", unchanged)
    module = rows_loop()
    with pytest.raises(AssertionError, match="not equal"):
        check(module, ahead(module), 0, 3, 1)


def test_prefetching_ops_have_locations() -> None:
    """Remarks and line tables need them."""
    late = ahead(rows_loop())
    without: list[Op] = [op for op in late.walk() if op.loc is None and not op.terminator]
    assert not without
