"""Shifts that LLVM's back end for NVIDIA GPUs miscompiles are rewritten."""

import re

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.targets.nvidia.shift_repairs import with_repaired_shifts
from tilewright.targets.protocol import GPUTarget


@tw.jit
def guarded(x_ptr, count_ptr, out_ptr, LEFT: tl.constexpr):
    i = tl.arange(0, 32)
    x, count = tl.load(x_ptr + i), tl.load(count_ptr + i)
    short = count.to(tl.uint32)
    tl.store(out_ptr + i, tl.where(count < 32, x << short if LEFT else x >> short, 0))


@pytest.mark.parametrize("left", [True, False])
def test_guards_of_wide_counts_remain(left: bool) -> None:
    """A count of 2**32 is not below 32, though its lower half is."""
    types = {"x_ptr": "*u32", "count_ptr": "*u64", "out_ptr": "*u32"}
    source = ASTSource(guarded, types, {"LEFT": left})
    ptx = compile(source, GPUTarget("cuda", 90, 32), {"num_warps": 1}).asm["ptx"]
    guard = re.search(r"setp\.lt\.u64 \t(%p\d+), %rd\d+, 32;", ptx)
    assert guard is not None
    assert re.search(rf"selp\.b32 \t%r\d+, %r\d+, 0, {guard[1]};", ptx)


def test_which_shifts_are_rewritten() -> None:
    text = """
define i32 @f(i32 %x, i64 %n, i32 %m, i64 %y) {
  %a = icmp ult i64 %n, 32
  %t = trunc i64 %n to i32
  %s = shl i32 %x, %t, !dbg !1
  %r = select i1 %a, i32 %s, i32 0
  %b = icmp ugt i64 %n, 63
  %u = lshr i64 %y, %n
  %v = select i1 %b, i64 0, i64 %u
  %c = icmp ult i32 %m, 32
  %w = shl i32 %x, %m
  %z = select i1 %c, i32 %w, i32 0
  %d = shl nsw i32 %x, 31
  %e = shl nuw nsw i32 %x, 30
  ret i32 %r
}
"""
    lines = re.sub(r"count\.\d+", "count", with_repaired_shifts(text)).splitlines()
    assert lines[4:6] == [
        '  %count = call i32 asm "", "=r,0"(i32 %t)',
        "  %s = shl i32 %x, %count, !dbg !1",
    ]
    assert lines[8:10] == [
        '  %count = call i64 asm "", "=l,0"(i64 %n)',
        "  %u = lshr i64 %y, %count",
    ]
    assert lines[12] == "  %w = shl i32 %x, %m"
    assert lines[14:16] == ["  %d = shl i32 %x, 31", "  %e = shl nuw nsw i32 %x, 30"]
