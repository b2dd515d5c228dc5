"""Selections of 16 bits that ptxas would make predicated instructions are by masks of bits."""

import re

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.targets.nvidia.lowered import ptx_of
from tilewright.targets.nvidia.emit import compile_text
from tilewright.targets.nvidia.selection_repairs import with_unpredicated_selections

IR = """
declare i16 @llvm.umax.i16(i16, i16)
define ptx_kernel void @kernel(ptr addrspace(1) %p, i32 %n) {{
  %y.at = getelementptr i8, ptr addrspace(1) %p, i64 2
  %z.at = getelementptr i8, ptr addrspace(1) %p, i64 4
  %out = getelementptr i8, ptr addrspace(1) %p, i64 8
  %x = load {type}, ptr addrspace(1) %p
  %y = load {type}, ptr addrspace(1) %y.at
  %z = load {type}, ptr addrspace(1) %z.at
  %result = {operation}
  store {type} %result, ptr addrspace(1) %z.at
  %is = icmp slt i32 %n, 7
  %chosen = select i1 %is, {type} {arm}, {type} %z
  store {type} %chosen, ptr addrspace(1) %out
  ret void
}}
"""
SUM = "fadd half %x, %y"
LARGEST = "call i16 @llvm.umax.i16(i16 %x, i16 %y)"
BITS = "and i16 %x, %y"


@pytest.mark.parametrize(
    ("type", "operation", "arm", "masked"),
    [
        ("half", SUM, "%x", True),  # an operand, which may be moved behind the selection
        ("i16", LARGEST, "%y", True),
        ("half", SUM, "%result", False),
        ("i16", BITS, "%x", False),  # no operation on pairs
        ("i16", LARGEST, "7", False),
    ],
)
def test_operands_of_pairs_are_selected_by_masks(
    type: str, operation: str, arm: str, masked: bool
) -> None:
    text = IR.format(type=type, operation=operation, arm=arm)
    _, ptx = compile_text(text, "sm_90a", 81)
    arms = re.findall(r"selp\.b16 \t?%\w+, ([^,]+), ([^,]+),", ptx)
    assert (arms == [("-1", "0")]) == masked, ptx
    assert ("xor.b16" in ptx) == masked


def test_mask_selects_either() -> None:
    ptx = "\tmax.u16 \t%rs4, %rs1, %rs2;\n\tselp.b16 \t%rs3, %rs1, -5, %p1;"
    line = with_unpredicated_selections(ptx).splitlines()[-1]
    steps = re.findall(r"(xor|and)\.b16 (\S+), (\S+), (\S+);", line)
    for condition in (True, False):
        values = {"%rs1": np.int16(1234), "-5": np.int16(-5)}
        values["%mask_rs3"] = np.int16(-1 if condition else 0)
        for name, to, x, y in steps:
            act = np.bitwise_xor if name == "xor" else np.bitwise_and
            values[to] = act(values[x], values[y])
        assert values["%rs3"] == (1234 if condition else -5)


def test_scan_across_warps_selects_by_masks() -> None:
    """Of the prefixes of the warps, which are maxima of each other: one of a program on an H200
    was wrong."""
    text = """
    @jit
    def extrema(a, b, c, d):
        return tl.minimum(a, c), tl.maximum(b, d)
    def kernel(x, y):
        at = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
        v = tl.load(x + at)
        least, most = tl.associative_scan((v.to(tl.int16), v), 0, extrema)
        tl.store(y + at, tl.cumsum(most, 0) + least)
    """
    ptx = ptx_of(build(kernel_from(text), {"x": "*u8", "y": "*u32"}), num_warps=4)
    extrema = {x for found in re.findall(r"(?:max|min)\.[us]16 \t(.*);", ptx)
               for x in found.split(", ")[1:]}  # fmt: skip
    selected = {x for found in re.findall(r"selp\.b16 \t?%\w+, (.*), %p\d+;", ptx)
                for x in found.split(", ")}  # fmt: skip
    assert extrema
    assert not extrema & selected
