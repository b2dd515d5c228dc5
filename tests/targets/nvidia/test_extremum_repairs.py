"""Extrema of 16 bits are not compared by the instruction that ptxas would take the answer from."""

import re

import pytest

from tests.frontend.kernels import build, kernel_from
from tests.targets.nvidia.lowered import ptx_of
from tilewright.targets.nvidia.extremum_repairs import with_inequalities


def test_extremum_is_compared_by_inequality() -> None:
    """As in a program that was wrong on an H200: LLVM makes a maximum of the first branch."""
    text = """
    def kernel(p):
        x = tl.load(p)
        y = x
        if x > 0:
            y = (y ^ x) ^ y
        else:
            y = x ^ y
        z = tl.abs(y)
        w = z
        if z > 0:
            w = z.to(tl.float16, bitcast=True).to(tl.int16) ^ z
        tl.store(p + 1, w)
        tl.store(p + 2, z)
    """
    ptx = ptx_of(build(kernel_from(text), {"p": "*i16"}), num_warps=1)
    assert "max.s16" in ptx
    assert re.search(r"setp\.ne\.b16 %differ_p\d+, %rs\d+, 0;", ptx), ptx
    assert "setp.eq.b16" not in ptx


@pytest.mark.parametrize("line", [
    "\tsetp.eq.b16 \t%p9, %rs30, 0;", "\tsetp.eq.s32 \t%p9, %r3, 0;",
])  # fmt: skip
def test_equality_is_negated_inequality(line: str) -> None:
    before = "\tmax.s16 \t%rs30, %rs1, 0;\n\tcvt.s32.s16 \t%r3, %rs30;\n"
    found = with_inequalities(before + line).removeprefix(before)
    type, x = ("b16", "%rs30") if "b16" in line else ("s32", "%r3")
    assert found == (
        f"\t{{ .reg .pred %differ_p9; setp.ne.{type} %differ_p9, {x}, 0; "
        f"not.pred %p9, %differ_p9; }}"
    )


def test_other_comparisons_stay() -> None:
    for kept in (
        "\tmin.s32 \t%r1, %r2, 0;\n\tsetp.eq.b16 \t%p1, %rs1, 0;",
        "\tmin.s16 \t%rs1, %rs2, 0;\n\tsetp.eq.b32 \t%p1, %r1, 0;\n\tsetp.ne.b16 \t%p1, %rs1, 0;",
    ):
        assert with_inequalities(kept) == kept
