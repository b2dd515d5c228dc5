"""Where shared memory lies, and where barriers keep its users apart."""

from tilewright.ir.core import Op
from tilewright.ir.parser import parse_module
from tilewright.lowering.simt import reduce as _reduce
from tilewright.lowering.simt.shared_memory import SharedMemory

REGISTERED = (_reduce,)  # whose scratch is part of the plan

# The sum's own barrier stands between the product and the wait for it.
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


def _only(ops: list[Op], name: str) -> Op:
    (found,) = [op for op in ops if op.name == name]
    return found


def test_product_reads_until_it_is_waited_for() -> None:
    module = parse_module(LOOP)
    ops = list(module.entry.walk())
    plan = SharedMemory(module.entry)
    share, reduce = _only(ops, "gpu.share"), _only(ops, "tile.reduce")
    assert plan.spans[reduce], "the sum exchanges its parts through shared memory"
    assert share in plan.barriers, "in the next turn other warps may still be reading"


def test_memory_of_a_product_in_flight_is_not_used_again() -> None:
    module = parse_module(LOOP)
    ops = list(module.entry.walk())
    plan = SharedMemory(module.entry)
    share, reduce = _only(ops, "gpu.share"), _only(ops, "tile.reduce")
    assert not plan.spans[share].overlaps(plan.spans[reduce])
