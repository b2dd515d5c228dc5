"""Facts that code generation reports with the code, and coverage of all ops."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.frontend.kernels import build, kernel_from
from tests.gpu import products, recipes
from tests.gpu.programs import HOPPER, source_of
from tests.targets.nvidia.lowered import lower, ptx_of
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile
from tilewright.ir.define import REGISTRY
from tilewright.lowering.registry import lowering_of
from tilewright.lowering.simt.kernel import emitter_of
from tilewright.ops.control import Call, WithRule
from tilewright.ops.dot_scaled import DotScaled
from tilewright.targets.nvidia.features import processor
from tilewright.targets.protocol import GPUTarget


def compiled(program: recipes.Program, **options: Any) -> CompiledKernel:
    return compile(source_of(program)[0], HOPPER, options)


def test_every_op_has_a_lowering() -> None:
    """Terminators are read by the ops that hold them, calls are inlined, rules of derivatives
    dropped, and block-scaled products expanded where they are not chosen. Ops of another vendor are
    there if another test has compiled for it."""
    without = {
        name
        for name, cls in REGISTRY.items()
        if not (emitter_of(cls, "cuda") or lowering_of(cls, "cuda") or cls.terminator)
        and cls.__module__ != "tilewright.ops.amd"
    }
    assert without == {Call.name, DotScaled.name, WithRule.name}


@pytest.mark.parametrize(
    ("arch", "type", "acc", "expected"),
    [(90, "fp16", "fp32", 0), (90, "fp8e5", "fp32", 0), (89, "fp8e5", "fp32", 84),
     (89, "fp8e4nv", "fp16", 87)],
)  # fmt: skip
def test_ptx_version_covers_the_instructions(arch: int, type: str, acc: str, expected: int) -> None:
    """Two warps: mma.sync, which has fp8 in later versions than other types."""
    version = max(expected, processor(arch).ptx_version)
    target = GPUTarget("cuda", arch, 32)
    program = products.dot(type, acc, (32, 32, 64))
    kernel = compile(source_of(program)[0], target, {"num_warps": 2})
    assert "mma.sync" in kernel.asm["ptx"]
    assert kernel.metadata.ptx_version == version
    assert f".version {version // 10}.{version % 10}\n" in kernel.asm["ptx"]
    assert "cubin" in kernel.asm


@pytest.mark.parametrize("warps", [1, 4, 32])
def test_thread_count_is_declared(warps: int) -> None:
    text = compiled(recipes.vector_add(1000), num_warps=warps).asm["ptx"]
    assert re.search(rf"\.(reqntid|maxntid) {32 * warps}\b", text)


def test_registers_are_bounded() -> None:
    wide = compiled(recipes.softmax("fp32", 2, 8192), num_warps=4)
    narrow = compiled(recipes.softmax("fp32", 2, 8192), num_warps=4, maxnreg=64)
    assert narrow.n_regs <= 64 < wide.n_regs
    assert ".maxnreg 64" in narrow.asm["ptx"]


def test_fusion_follows_the_users_choice() -> None:
    """A product and a sum are one instruction with one rounding, or are not."""
    text = "a * b + c", (("fp32", (256,)),) * 3, ("fp32", (256,))
    program = recipes.expression(*text)
    assert "fma.rn.f32" in compiled(program, enable_fp_fusion=True).asm["ptx"]
    assert "fma.rn.f32" not in compiled(program, enable_fp_fusion=False).asm["ptx"]


@pytest.mark.parametrize("leave", ["pass", "if i == n: break"])
@pytest.mark.parametrize("bounds", ["-2, 1", "-4, 2, 2", "-7, 8, 3", "n"])
def test_loops_end_by_inequality(bounds: str, leave: str) -> None:
    """ptxas makes `i + 1 >u 2` of `i >u 1`: range(-2, 1) would end before its last iteration."""
    text = f"""
    def kernel(p, n):
        x = tl.load(p)
        for i in range({bounds}):
            x = x * 1.5 + tl.load(p + (i & 7))
            {leave}
        tl.store(p, x)
    """
    module = build(kernel_from(text), {"p": "*fp32", "n": "i32"})
    ptx = ptx_of(module, launch_pdl=False)
    assert not re.findall(r"setp\.\w\w\.u32", ptx)
    assert "setp.ne.b32" in ptx


@pytest.mark.parametrize(
    ("start", "stop", "step", "type"),
    [
        (1, 2**64 - 1, 2**62 + 1, "uint64"),
        (-(2**63) + 2, 2**63 - 1, 2**62 + 3, "int64"),
        (-7, 2**63 - 1, 2**61, "int64"),
        (3, 2**32 - 1, 2**30 + 5, "uint32"),
        (-(2**31), 2**31 - 1, 2**30 - 1, "int32"),
    ],
)
def test_loops_whose_index_wraps_after_the_last_iteration_end_by_inequality(
    start: int, stop: int, step: int, type: str
) -> None:
    """ptxas counted one iteration of the first of these loops instead of four (seen on an H200)."""
    text = f"""
    def kernel(p):
        x = tl.load(p)
        step = tl.full((), {step}, tl.{type})
        for i in range(tl.full((), {start}, tl.{type}), tl.full((), {stop}, tl.{type}), step):
            x = x * 3 + i.to(tl.int64)
        tl.store(p, x)
    """
    ptx = ptx_of(build(kernel_from(text), {"p": "*i64"}), launch_pdl=False)
    assert not re.findall(r"setp\.(?!ne|eq)", ptx)
    bits = int(type[-2:])
    (after,) = re.findall(rf"setp\.ne\.b{bits} .*, (-?\d+);", ptx)
    assert int(after) % 2**bits == (start + len(range(start, stop, step)) * step) % 2**bits


@pytest.mark.parametrize(("block", "ahead"), [(4096, True), (8192, False), (16384, False)])
def test_prefetching_keeps_the_resident_programs(block: int, ahead: bool) -> None:
    """16 warps: with a tile of 32 elements of a thread in advance, one program would be resident,
    where two have as many loads in flight, and one computes while the other loads."""
    text = f"""
    def kernel(x, out, n):
        total = 0.0
        for start in range(0, n, {block}):
            at = start + tl.arange(0, {block})
            v = tl.load(x + at, mask=at < n, other=-float("inf")).to(tl.float32)
            total += tl.sum(tl.exp(v - tl.max(v)))
        tl.store(out, total)
    """
    module = build(kernel_from(text), {"x": "*bf16", "out": "*fp32", "n": "i32"})
    lowered = lower(module, num_warps=16)
    loads = str(lowered.stages["ptx"]).count("ld.global.b16")
    assert loads == (2 if ahead else 1) * block // (16 * 32)
    if not ahead:
        assert lowered.metadata["n_regs"] <= 64
