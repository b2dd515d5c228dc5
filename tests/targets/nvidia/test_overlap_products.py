"""Products in flight over a loop's end, and products scheduled within it, where all ends late.

The machine is that of `tests/async_machine.py`: it finds each missing wait, barrier or count after
`overlap_products` and `schedule_products`. The mutants at the end show that it does.
`test_products.py` runs whole kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.async_machine import AsyncMachine, Race
from tests.gpu_machine import gpu_machine
from tilewright.base.diagnostics import InterpreterError, IRError
from tilewright.ir.core import Module, Op
from tilewright.ir.interpret import interpret
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PASSES, PassContext, Step, Verifier, run
from tilewright.ops.control import Barrier
from tilewright.ops.nvidia import WgmmaWait
from tilewright.targets.nvidia import overlap_products, schedule_products

MACHINE = gpu_machine(lanes=32, warps=4)
PRODUCT = 'precision="ieee", max_imprecise=0'
SUM = "(shared<64x16xfp16>{}, shared<16x8xfp16>{}, 64x8xfp32) -> 64x8xfp32"

# out = sum over i of a[i] @ b[i], rows of two arrays of matrices; {second} may add another product.
TEXT = """
layout !0 = "register[0,1 0,2 0,4] lane[0,8 1,0 2,0 4,0 8,0] warp[16,0 32,0] -> dim0:64 dim1:16"
layout !1 = "offset[0,1 0,2 0,4 0,8 1,0 2,0 4,0 8,0 16,0 32,0] -> dim0:64 dim1:16"
layout !2 = "register[0,1] lane[0,2 0,4 1,0 2,0 4,0] warp[8,0 0,0] -> dim0:16 dim1:8"
layout !3 = "offset[0,1 0,2 0,4 1,0 2,0 4,0 8,0] -> dim0:16 dim1:8"
func @rows(%a: ptr<fp16> {{divisibility=16}}, %b: ptr<fp16> {{divisibility=16}},
           %out: ptr<fp32>, %steps: i32) {{
  %zero = arith.constant value=0, type=i32 : () -> i32
  %one = arith.constant value=1, type=i32 : () -> i32
  %a_size = arith.constant value=1024, type=i32 : () -> i32
  %b_size = arith.constant value=128, type=i32 : () -> i32
  %none = arith.constant value=0.0, type=64x8xfp32 : () -> 64x8xfp32
  %half = arith.constant value=0.5, type=64x8xfp32 : () -> 64x8xfp32
  %na = tile.arange start=0, end=1024 : () -> 1024xi32
  %ma = tile.reshape %na, shape=(64, 16,) : 1024xi32 -> 64x16xi32 !0
  %nb = tile.arange start=0, end=128 : () -> 128xi32
  %mb = tile.reshape %nb, shape=(16, 8,) : 128xi32 -> 16x8xi32 !2
  %sum = control.for %zero, %steps, %one, [%none], num_stages=0, unroll=0, hints=()
    : (i32, i32, i32, 64x8xfp32) -> 64x8xfp32 {{
    (%i: i32, %acc: 64x8xfp32)
    %oa = arith.mul %i, %a_size : (i32, i32) -> i32
    %pa = mem.addptr %a, %oa : (ptr<fp16>, i32) -> ptr<fp16>
    %sa = tile.splat %pa, shape=(64, 16,) : ptr<fp16> -> 64x16xptr<fp16> !0
    %qa = mem.addptr %sa, %ma : (64x16xptr<fp16> !0, 64x16xi32 !0) -> 64x16xptr<fp16> !0
    %la = mem.load %qa, _, _, cache="", evict="", volatile=False
      : 64x16xptr<fp16> !0 -> 64x16xfp16 !0
    %ob = arith.mul %i, %b_size : (i32, i32) -> i32
    %pb = mem.addptr %b, %ob : (ptr<fp16>, i32) -> ptr<fp16>
    %sb = tile.splat %pb, shape=(16, 8,) : ptr<fp16> -> 16x8xptr<fp16> !2
    %qb = mem.addptr %sb, %mb : (16x8xptr<fp16> !2, 16x8xi32 !2) -> 16x8xptr<fp16> !2
    %lb = mem.load %qb, _, _, cache="", evict="", volatile=False
      : 16x8xptr<fp16> !2 -> 16x8xfp16 !2
    %ba = gpu.share %la : 64x16xfp16 !0 -> shared<64x16xfp16> !1
    %bb = gpu.share %lb : 16x8xfp16 !2 -> shared<16x8xfp16> !3
{products}
  }}
  %n_out = tile.arange start=0, end=512 : () -> 512xi32
  %m_out = tile.reshape %n_out, shape=(64, 8,) : 512xi32 -> 64x8xi32
  %s_out = tile.splat %out, shape=(64, 8,) : ptr<fp32> -> 64x8xptr<fp32>
  %to = mem.addptr %s_out, %m_out : (64x8xptr<fp32>, 64x8xi32) -> 64x8xptr<fp32>
  mem.store %to, %sum, _, cache="", evict="" : (64x8xptr<fp32>, 64x8xfp32) -> ()
  control.return [] : () -> ()
}}
"""
CARRIED = f"""    %p = nvidia.wgmma %ba, %bb, %acc, {PRODUCT} : {SUM.format(" !1", " !3")}
    %r = nvidia.wgmma_wait [%p], pending=0 : 64x8xfp32 -> 64x8xfp32
    control.yield [%r] : 64x8xfp32 -> ()"""
# Two products, of which the first is used late: the schedule starts the second before its wait.
TWICE = f"""    %p = nvidia.wgmma %ba, %bb, %acc, {PRODUCT} : {SUM.format(" !1", " !3")}
    %r = nvidia.wgmma_wait [%p], pending=0 : 64x8xfp32 -> 64x8xfp32
    %q = nvidia.wgmma %ba, %bb, %none, {PRODUCT} : {SUM.format(" !1", " !3")}
    %s = nvidia.wgmma_wait [%q], pending=0 : 64x8xfp32 -> 64x8xfp32
    %h = arith.mul %r, %half : (64x8xfp32, 64x8xfp32) -> 64x8xfp32
    %e = arith.add %h, %s : (64x8xfp32, 64x8xfp32) -> 64x8xfp32
    control.yield [%e] : 64x8xfp32 -> ()"""
# Two sums over the same operands. The second begins with other numbers.
BOTH = f"""    %p = nvidia.wgmma %ba, %bb, %acc, {PRODUCT} : {SUM.format(" !1", " !3")}
    %r = nvidia.wgmma_wait [%p], pending=0 : 64x8xfp32 -> 64x8xfp32
    %q = nvidia.wgmma %ba, %bb, %other, {PRODUCT} : {SUM.format(" !1", " !3")}
    %s = nvidia.wgmma_wait [%q], pending=0 : 64x8xfp32 -> 64x8xfp32
    control.yield [%r, %s] : (64x8xfp32, 64x8xfp32) -> ()"""
TEXT_OF_BOTH = (
    TEXT.replace("%sum = control.for", "%one_sum, %other_sum = control.for")
    .replace("[%none], num_stages", "[%none, %half], num_stages")
    .replace(
        "(i32, i32, i32, 64x8xfp32) -> 64x8xfp32",
        "(i32, i32, i32, 64x8xfp32, 64x8xfp32) -> (64x8xfp32, 64x8xfp32)",
    )
    .replace("%acc: 64x8xfp32)", "%acc: 64x8xfp32, %other: 64x8xfp32)")
    .replace(
        "  %n_out =",
        "  %sum = arith.sub %other_sum, %one_sum : (64x8xfp32, 64x8xfp32) -> 64x8xfp32\n  %n_out =",
    )
)
PASSES_AFTER = ("overlap_products", "schedule_products")


def rows_loop(products: str) -> Module:
    text = TEXT_OF_BOTH if products is BOTH else TEXT
    return parse_module(text.format(products=products))


def after(module: Module, stages: int, *passes: str) -> tuple[Module, PassContext]:
    """A copy after `pipeline_loads` and these passes."""
    module = module.clone()
    ctx = PassContext(options={"num_stages": stages}, machine=MACHINE)
    run(module, [Step(PASSES[name]) for name in ("pipeline_loads", *passes)], ctx, [Verifier()])
    assert ctx.counts["pipelined"] == (stages > 1)
    return module, ctx


def outcome(module: Module, steps: int) -> np.ndarray:
    """What the kernel stores, on the machine on which all is late; the arrays have no row more."""
    rng = np.random.default_rng(steps)
    rows = max(steps, 1)
    a = rng.integers(-4, 5, (rows, 64, 16)).astype(np.float16)
    b = rng.integers(-4, 5, (rows, 16, 8)).astype(np.float16)
    out = np.full((64, 8), 99, np.float32)
    with AsyncMachine() as machine:
        interpret(module, 1, [a, b, out, steps])
    machine.check_idle()
    return out


def check(products: str, late: Module, steps: int) -> None:
    """All sums are of few small numbers, so they are exact."""
    expected = outcome(rows_loop(products), steps)
    np.testing.assert_array_equal(outcome(late, steps), expected)


def waits(module: Module) -> list[int]:
    """How many products each wait leaves in flight."""
    return [op.pending for op in module.walk() if isinstance(op, WgmmaWait)]


@pytest.mark.parametrize("passes", [PASSES_AFTER[:1], PASSES_AFTER])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_carried_product(stages: int, passes: tuple[str, ...]) -> None:
    """No step, one, and those around the number of stages."""
    late, ctx = after(rows_loop(CARRIED), stages, *passes)
    assert ctx.counts["overlapped"] == (stages > 1)  # without slots the next step overwrites them
    assert waits(late) == ([1, 0] if stages > 1 else [0])
    for steps in sorted({0, 1, stages - 1, stages, stages + 1, 2 * stages + 1}):
        check(CARRIED, late, steps)


@pytest.mark.parametrize("passes", [PASSES_AFTER[:1], PASSES_AFTER])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_two_carried_products(stages: int, passes: tuple[str, ...]) -> None:
    """Both are in flight at the end of an iteration; of the next one, both have started before the
    wait."""
    late, ctx = after(rows_loop(BOTH), stages, *passes)
    assert ctx.counts["overlapped"] == (stages > 1)
    assert waits(late) == ([2, 0] if stages > 1 else [0, 0])
    for steps in sorted({0, 1, stages - 1, stages, stages + 1, 2 * stages + 1}):
        check(BOTH, late, steps)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_two_products(stages: int) -> None:
    late, ctx = after(rows_loop(TWICE), stages, *PASSES_AFTER)
    assert not ctx.counts["overlapped"]
    assert waits(late) == [1, 0]
    for steps in sorted({0, 1, stages - 1, stages, stages + 1}):
        check(TWICE, late, steps)


def test_schedule_is_idempotent() -> None:
    late, ctx = after(rows_loop(TWICE), 3, *PASSES_AFTER)
    assert not PASSES["schedule_products"](late.entry, ctx)


# -- the machine finds what is wrong --------------------------------------------------------------


def rejected(products: str, *passes: str) -> Exception:
    """The error of a kernel after passes one of which is wrong."""

    def compile_and_check() -> None:
        late, _ = after(rows_loop(products), 3, *passes)
        check(products, late, 5)

    with pytest.raises((Race, InterpreterError, AssertionError, IRError)) as found:
        compile_and_check()
    return found.value


def is_race(error: Exception) -> bool:
    return isinstance(error, Race) or isinstance(error.__cause__, Race)


def test_copies_that_start_before_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap_products, "_sink_copies", lambda loop, place: None)
    assert is_race(rejected(CARRIED, "overlap_products"))
    assert is_race(rejected(BOTH, "overlap_products"))


def test_overwritten_operands_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap_products, "_is_shared_outside", lambda buffer, loop: True)
    late, ctx = after(rows_loop(CARRIED), 1, "overlap_products")
    assert ctx.counts["overlapped"] == 1
    with pytest.raises(InterpreterError) as found:
        check(CARRIED, late, 5)
    assert isinstance(found.value.__cause__, Race)


def _no_barriers(module: Module) -> None:
    for op in list(module.walk()):
        if isinstance(op, Barrier):
            op.erase()


def _fewer_products(module: Module) -> None:
    for op in module.walk():
        if isinstance(op, WgmmaWait):
            op.pending += 1


@pytest.mark.parametrize("products", [CARRIED, BOTH])
@pytest.mark.parametrize("spoil", [_no_barriers, _fewer_products])
def test_broken_overlap(spoil: Any, products: str) -> None:
    late, _ = after(rows_loop(products), 3, *PASSES_AFTER)
    spoil(late)
    with pytest.raises((Race, InterpreterError, AssertionError)):
        check(products, late, 5)


def test_wait_that_leaves_one_product_more(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = schedule_products.started_after
    monkeypatch.setattr(schedule_products, "started_after", lambda wait: counted(wait) + 1)
    rejected(TWICE, *PASSES_AFTER)


def test_overlooked_uses_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unseen(op: Op, values: set[Any]) -> bool:
        return False

    monkeypatch.setattr(schedule_products, "_uses", unseen)
    rejected(TWICE, *PASSES_AFTER)
