"""Allocation of shared memory, and placement of barriers between conflicting accesses."""

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.lowering.simt.harness import assert_same, laid_out
from tilewright.ir.core import Module, Op
from tilewright.ir.parser import parse_module
from tilewright.ir.verify import verify_module
from tilewright.lowering.simt import convert as _convert
from tilewright.lowering.simt import gather as _gather
from tilewright.lowering.simt import reduce as _reduce
from tilewright.lowering.simt.shared_memory import LASTING, SMALL, SharedMemory, is_private

REGISTERED = (_convert, _gather, _reduce)  # whose scratch is part of the plan

# The sum's own barrier is between the product and the wait for it.
ACC = (
    "register[0,1 0,8 0,16 0,32 8,0] lane[0,2 0,4 1,0 2,0 4,0] warp[16,0 32,0] block[] "
    "-> dim0:64 dim1:64"
)
LOOP = f"""
layout !0 = "{ACC}"
layout !1 = "offset[0,1 0,2 0,4 0,8 0,16 0,32 1,8 2,16 4,32 8,0 16,0 32,0] -> dim0:64 dim1:64"
layout !2 = "register[1 8 16 32] lane[2 4 0 0 0] warp[0 0] block[] -> dim0:64"
func @kernel(%0: i32) {{
  %1 = arith.constant value=0, type=i32 : () -> i32
  %2 = arith.constant value=1, type=i32 : () -> i32
  %3 = arith.constant value=0.0, type=64x64xfp32 : () -> 64x64xfp32 !0
  %4 = arith.constant value=1.0, type=64x64xfp16 : () -> 64x64xfp16 !0
  %5 = control.for %1, %0, %2, [%3] : (i32, i32, i32, 64x64xfp32 !0) -> 64x64xfp32 !0 {{
    (%i: i32, %acc: 64x64xfp32 !0)
    %6 = gpu.share %4 : 64x64xfp16 !0 -> shared<64x64xfp16> !1
    %7 = nvidia.wgmma %6, %6, %acc
      : (shared<64x64xfp16> !1, shared<64x64xfp16> !1, 64x64xfp32 !0) -> 64x64xfp32 !0
    %8 = tile.reduce [%3], axis=0 : 64x64xfp32 !0 -> 64xfp32 !2 {{
      (%a: fp32, %b: fp32)
      %9 = arith.add %a, %b : (fp32, fp32) -> fp32
      control.yield [%9] : fp32 -> ()
    }}
    %10 = nvidia.wgmma_wait [%7] : 64x64xfp32 !0 -> 64x64xfp32 !0
    control.yield [%10] : 64x64xfp32 !0 -> ()
  }}
  control.return [] : () -> ()
}}
"""


# A product is in flight when the loop ends; the buffer shared behind the loop is written before
# the wait for it.
AFTER = f"""
layout !0 = "{ACC}"
layout !1 = "offset[0,1 0,2 0,4 0,8 0,16 0,32 1,8 2,16 4,32 8,0 16,0 32,0] -> dim0:64 dim1:64"
func @kernel(%0: i32) {{
  %1 = arith.constant value=0, type=i32 : () -> i32
  %2 = arith.constant value=1, type=i32 : () -> i32
  %3 = arith.constant value=0.0, type=64x64xfp32 : () -> 64x64xfp32 !0
  %4 = arith.constant value=1.0, type=64x64xfp16 : () -> 64x64xfp16 !0
  %5 = gpu.share %4 : 64x64xfp16 !0 -> shared<64x64xfp16> !1
  %6 = control.for %1, %0, %2, [%3] : (i32, i32, i32, 64x64xfp32 !0) -> 64x64xfp32 !0 {{
    (%i: i32, %acc: 64x64xfp32 !0)
    %7 = nvidia.wgmma %5, %5, %acc
      : (shared<64x64xfp16> !1, shared<64x64xfp16> !1, 64x64xfp32 !0) -> 64x64xfp32 !0
    control.yield [%7] : 64x64xfp32 !0 -> ()
  }}
  %8 = gpu.share %4 : 64x64xfp16 !0 -> shared<64x64xfp16> !1
  program.barrier : () -> ()
  %9 = nvidia.wgmma_wait [%6] : 64x64xfp32 !0 -> 64x64xfp32 !0
  %13 = arith.neg %9 : 64x64xfp32 !0 -> 64x64xfp32 !0
  %10 = gpu.share %4 : 64x64xfp16 !0 -> shared<64x64xfp16> !1
  %11 = gpu.fetch %10 : shared<64x64xfp16> !1 -> 64x64xfp16 !0
  %12 = gpu.fetch %8 : shared<64x64xfp16> !1 -> 64x64xfp16 !0
  control.return [] : () -> ()
}}
"""


def _only(ops: list[Op], name: str) -> Op:
    (found,) = [op for op in ops if op.name == name]
    return found


def test_operands_of_a_product_are_live_beyond_the_loop_that_started_it() -> None:
    module = parse_module(AFTER)
    plan = SharedMemory(module.entry)
    operand, before, after = (op for op in module.entry.walk() if op.name == "gpu.share")
    assert not plan.spans[operand].overlaps(plan.spans[before])
    assert plan.spans[operand].overlaps(plan.spans[after])
    assert after in plan.barriers, "other warps may still wait for the product that reads there"


def test_operands_of_a_product_are_live_until_its_wait() -> None:
    module = parse_module(LOOP)
    ops = list(module.entry.walk())
    plan = SharedMemory(module.entry)
    share, reduce = _only(ops, "gpu.share"), _only(ops, "tile.reduce")
    assert plan.spans[reduce], "the sum exchanges its parts through shared memory"
    assert share in plan.barriers, "in the next turn other warps may still be reading"


def test_memory_of_a_product_in_flight_is_not_reused() -> None:
    module = parse_module(LOOP)
    ops = list(module.entry.walk())
    plan = SharedMemory(module.entry)
    share, reduce = _only(ops, "gpu.share"), _only(ops, "tile.reduce")
    assert not plan.spans[share].overlaps(plan.spans[reduce])


def _flips(count: int) -> Module:
    """A chain of flips of 256 elements of 4 bytes, which go through shared memory."""
    lines = ["func @kernel(%x: ptr<i32>) {", "  %i = tile.arange start=0, end=256 : () -> 256xi32"]
    lines += ["  %s = tile.splat %x, shape=(256,) : ptr<i32> -> 256xptr<i32>"]
    lines += ["  %p = mem.addptr %s, %i : (256xptr<i32>, 256xi32) -> 256xptr<i32>"]
    load = '%v0 = mem.load %p, _, _, cache="", evict="", volatile=False'
    lines += [f"  {load} : 256xptr<i32> -> 256xi32"]
    for k in range(count):
        lines.append(f"  %f{k} = tile.flip %v{k}, axis=0 : 256xi32 -> 256xi32")
        lines.append(f"  %v{k + 1} = arith.sub %f{k}, %i : (256xi32, 256xi32) -> 256xi32")
    lines += [
        f'  mem.store %p, %v{count}, _, cache="", evict=""\n    : (256xptr<i32>, 256xi32) -> ()'
    ]
    lines += ["  control.return [] : () -> ()", "}"]
    module = parse_module("\n".join(lines))
    verify_module(module)
    return module


def _nest(depth: int) -> Module:
    """Loops within each other, around a conversion that goes through shared memory."""
    text = "def kernel(x, y, n):\n    i = tl.arange(0, 64)\n    a = tl.load(x + i)\n"
    for k in range(depth):
        text += "    " * (k + 1) + f"for k{k} in range(n):\n"
    text += "    " * (depth + 1) + "a = tl.flip(a, 0) * 3\n    tl.store(y + i, a)\n"
    return build(kernel_from(text), {"x": "*i32", "y": "*i32", "n": "i32"})


def test_time_is_not_exponential_in_the_depth_of_loops() -> None:
    """Each loop is walked twice only if the first walk finds accesses at its back edge."""
    barriers = [SharedMemory(laid_out(_nest(n), warps=2, lanes=8).entry).barriers for n in (3, 19)]
    assert len(barriers[0]) == len(barriers[1])
    args = [np.arange(64, dtype=np.int32), np.zeros(64, np.int32), 2]
    assert_same(_nest(3), (1, 1, 1), args, warps=2, lanes=8)


def test_scratch_of_many_ops_is_shared() -> None:
    module = _flips(60)
    plan = SharedMemory(laid_out(module, warps=4, lanes=8).entry)
    assert 256 * 4 <= SMALL < LASTING < plan.bytes <= LASTING + 256 * 4
    assert plan.barriers, "what is used again is read before it is written"
    assert_same(module, (1, 1, 1), [np.arange(256, dtype=np.int32)])


def test_scratch_of_few_ops_is_not_shared() -> None:
    plan = SharedMemory(laid_out(_flips(10), warps=4, lanes=8).entry)
    assert plan.bytes == 10 * 256 * 4
    assert not plan.barriers


def test_scratch_of_few_ops_is_shared_where_it_would_not_fit() -> None:
    plan = SharedMemory(laid_out(_flips(10), warps=4, lanes=8).entry, 10 * 256 * 4 - 16)
    assert plan.bytes == 256 * 4
    assert len(plan.barriers) == 9, "each flip but the first writes what threads may still read"


RESULT = (
    "register[0,1 8,0 0,8 0,16 0,32] lane[0,2 0,4 1,0 2,0 4,0] warp[16,0 32,0] block[] "
    "-> dim0:64 dim1:64"
)
ROWS = (
    "register[0,1 0,2 0,4 4,0 8,0] lane[0,8 0,16 0,32 1,0 2,0] warp[16,0 32,0] block[] "
    "-> dim0:64 dim1:64"
)
SWIZZLED = "offset[0,1 0,2 0,4 0,8 0,16 0,32 1,8 2,16 4,32 8,0 16,0 32,0] -> dim0:64 dim1:64"
CONVERSION = f"""
layout !0 = "{RESULT}"
layout !1 = "{ROWS}"
layout !2 = "{SWIZZLED}"
func @kernel(%0: i32) {{
  %1 = arith.constant value=1.0, type=64x64xfp16 : () -> 64x64xfp16 !0
  %2 = gpu.share %1 : 64x64xfp16 !0 -> shared<64x64xfp16> !2
  %3 = gpu.fetch %2 : shared<64x64xfp16> !2 -> 64x64xfp16 !0
  %4 = gpu.convert_layout %3 : 64x64xfp16 !0 -> 64x64xfp16 !1
  %5 = gpu.convert_layout %3 : 64x64xfp16 !0 -> 64x64xfp16 !1
  control.return [] : () -> ()
}}
"""


@pytest.mark.parametrize(
    ("limit", "reused"),
    [
        (0, True),  # not known
        (64 * 64 * 2 + 2 * 4096, False),
        (2 * (64 * 64 * 2 + 2 * 4096), False),
        (2 * (64 * 64 * 2 + 2 * 4096) - 16, True),  # a program fewer would be resident
    ],
)
def test_memory_of_warps_is_not_reused_where_there_is_enough(limit: int, reused: bool) -> None:
    fn = parse_module(CONVERSION).entry
    plan = SharedMemory(fn, limit)
    *_, last = (op for op in fn.walk() if is_private(op))
    share = _only(list(fn.walk()), "gpu.share")
    assert plan.spans[share].overlaps(plan.spans[last]) == reused
    # It overwrites what other warps may still read.
    assert (last in plan.barriers) == reused


def test_memory_is_reused_by_the_next_op_where_it_would_not_fit() -> None:
    fn = parse_module(CONVERSION).entry
    plan = SharedMemory(fn, 64 * 64 * 2)
    assert plan.bytes == 64 * 64 * 2
    first, _ = (op for op in fn.walk() if is_private(op))
    assert plan.spans[_only(list(fn.walk()), "gpu.share")].overlaps(plan.spans[first])
    assert first in plan.barriers


def test_accesses_before_a_conversion_within_warps_are_not_forgotten() -> None:
    """Warps do not wait for each other in it, so what is written behind it waits for both."""
    later = CONVERSION.replace(
        "  control.return",
        "  %6 = gpu.share %4 : 64x64xfp16 !1 -> shared<64x64xfp16> !2\n  control.return",
    )
    fn = parse_module(later).entry
    plan = SharedMemory(fn, 64 * 64 * 2 + 2 * 4096)
    first, last = (op for op in fn.walk() if op.name == "gpu.share")
    assert plan.spans[first].overlaps(plan.spans[last])
    assert last in plan.barriers
