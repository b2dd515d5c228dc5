"""Inline PTX, through the assembler."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frontend.kernels import kernel_from
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.targets.protocol import GPUTarget

HOPPER = GPUTarget("cuda", 90, 32)

# Operand, result, pack, constraints, code, what the PTX must show.
CASES = [
    ("fp32", "float32", 1, "=f,f", "ex2.approx.ftz.f32 $0, $1;", "ex2.approx.ftz.f32"),
    ("fp64", "float64", 1, "=d,d", "abs.f64 $0, $1;", "abs.f64"),
    ("i64", "int64", 2, "=l,=l,l,l", "not.b64 $0, $2; not.b64 $1, $3;", "not.b64"),
    ("i8", "int8", 4, "=r,r", "not.b32 $0, $1;", "not.b32"),
    ("fp16", "float16", 2, "=r,r", "abs.f16x2 $0, $1;", "abs.f16x2"),
    ("fp16", "float16", 1, "=h,h", "abs.f16 $0, $1;", "abs.f16"),
    ("fp8e4nv", "float16", 4, "=r,=r,r",
     "{ .reg .b16 a<2>; mov.b32 {a0, a1}, $2; cvt.rn.f16x2.e4m3x2 $0, a0; "
     "cvt.rn.f16x2.e4m3x2 $1, a1; }", "cvt.rn.f16x2.e4m3x2"),
]  # fmt: skip


@pytest.mark.parametrize(("type", "result", "pack", "constraints", "code", "shown"), CASES)
def test_assembly(
    type: str, result: str, pack: int, constraints: str, code: str, shown: str
) -> None:
    text = f"""
    def kernel(p, out):
        i = tl.arange(0, 1024)
        x = tl.load(p + i)
        y = tl.inline_asm_elementwise("{code}", "{constraints}", [x], tl.{result}, True, {pack})
        tl.store(out + i, y.to(tl.float32) if {result!r} == "float16" else y)
    """
    out = {"float16": "fp32"}.get(result, type)
    kernel: Any = compile(
        ASTSource(kernel_from(text), {"p": f"*{type}", "out": f"*{out}"}, {}), HOPPER
    )
    assert shown in kernel.asm["ptx"]
    assert kernel.asm["cubin"]


@pytest.mark.parametrize(
    ("constraints", "code", "extended"),
    [("=l,l", "add.u64 $0, $1, 4;", False), ("=r,l", "cvt.u32.u64 $0, $1;", True)],
)
def test_results_may_be_addresses(constraints: str, code: str, extended: bool) -> None:
    """Also in registers of 32 bits, which the code of barriers declares for unused results."""
    text = f"""
    def kernel(p, out):
        x = p + tl.arange(0, 128)
        y = tl.inline_asm_elementwise("{code}", "{constraints}", [x], x.dtype, False, 1)
        tl.store(out + tl.arange(0, 128), y)
    """
    signature = {"p": "*fp32", "out": "*u64"}
    kernel: Any = compile(ASTSource(kernel_from(text), signature, {}), HOPPER)
    assert code.split()[0] in kernel.asm["ptx"]
    assert ("cvt.u64.u32" in kernel.asm["ptx"]) == extended
    assert kernel.asm["cubin"]


@pytest.mark.parametrize("pure", [True, False])
def test_only_pure_assembly_is_removed(pure: bool) -> None:
    text = f"""
    def kernel(p):
        clock = tl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [], tl.int32, {pure}, 1)
        tl.store(p, 1)
    """
    kernel: Any = compile(ASTSource(kernel_from(text), {"p": "*i32"}, {}), HOPPER)
    assert ("%clock" in kernel.asm["ptx"]) == (not pure)
