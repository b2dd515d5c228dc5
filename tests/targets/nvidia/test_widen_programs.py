"""Programs that run on more warps than requested, as registers would be spilled otherwise."""

from __future__ import annotations

import pytest

import tilewright
import tilewright.language as tl
from tests.frontend.kernels import build, kernel_from
from tests.gpu_machine import gpu_machine
from tilewright.backends.compiler import GPUTarget
from tilewright.compiler import ASTSource, CompiledKernel, compile
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.passes import PassContext, Step, Verifier, run
from tilewright.targets.nvidia.assemble import find_assembler
from tilewright.targets.nvidia.features import processor
from tilewright.targets.nvidia.widen_programs import widen_programs

HOPPER = GPUTarget("cuda", 90, 32)


@tilewright.jit
def gated(q, k, v, do, h, dh, g, dq, dk, dw, BT: tl.constexpr, D: tl.constexpr):
    """Gradients within a chunk of gated linear attention: no loop, four products at once."""
    t, d = tl.arange(0, BT), tl.arange(0, D)
    rows, square = t[:, None] * D + d[None, :], d[:, None] + d[None, :] * D
    b_v, b_do = tl.load(v + rows), tl.load(do + rows)
    b_h, b_dh = tl.load(h + square), tl.load(dh + square)
    last = tl.sum(b_h * b_dh)
    b_ds = tl.dot(b_do, tl.trans(b_v))
    b_dq, b_dk, b_dw = tl.dot(b_do, b_h), tl.dot(b_v, b_dh), tl.dot(b_do, b_dh)
    b_q, b_k = tl.load(q + rows), tl.load(k + rows)
    b_g = tl.load(g + t)
    b_dq = b_dq * tl.exp(b_g)[:, None]
    b_dk = b_dk * tl.exp(last - b_g)[:, None]
    b_ds = tl.where(t[:, None] >= t[None, :], b_ds * tl.exp(b_g[:, None] - b_g[None, :]), 0)
    b_ds = b_ds.to(tl.bfloat16)
    b_dq = tl.dot(b_ds, b_k, b_dq)
    b_dk = tl.dot(tl.trans(b_ds), b_q, b_dk)
    tl.store(dq + rows, (b_dq * tl.sum(b_dq * b_q, 1)[:, None]).to(tl.bfloat16))
    tl.store(dk + rows, (b_dk * tl.sum(b_dk * b_k, 1)[:, None]).to(tl.bfloat16))
    tl.store(dw + rows, b_dw.to(tl.bfloat16))


@tilewright.jit
def counting(q, k, v, do, h, dh, g, dq, dk, dw, BT: tl.constexpr, D: tl.constexpr):
    """The same, with an instruction that may count threads."""
    tl.inline_asm_elementwise(
        "bar.sync 1, 128; mov.b32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )
    gated(q, k, v, do, h, dh, g, dq, dk, dw, BT, D)


def compiled(kernel: tilewright.JITFunction, **options: int) -> CompiledKernel:
    if find_assembler() is None:
        pytest.skip("needs ptxas or nvJitLink")
    types = {name: "*bf16" for name in ("q", "k", "v", "do", "h", "dh", "dq", "dk", "dw")}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(10)}
    source = ASTSource(kernel, {**types, "g": "*fp32"}, {"BT": 64, "D": 128}, aligned)
    return compile(source, HOPPER, options)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("warps", [2, 4])
def test_products_outside_of_loops_run_on_as_many_warps_as_they_need(warps: int) -> None:
    kernel = compiled(gated, num_warps=warps)
    assert kernel.metadata.num_warps == warps
    assert kernel.metadata.launch_warps == 8
    assert f".reqntid {8 * 32}" in kernel.asm["ptx"]
    assert kernel.n_spills <= 32


def test_programs_that_may_count_their_threads_keep_them() -> None:
    assert compiled(counting, num_warps=4).metadata.launch_warps == 4


@pytest.mark.parametrize(
    ("columns", "warps", "most"), [(16, 1, 2), (16, 2, None), (32, 1, 4), (256, 4, 8)]
)
def test_warps_have_parts_of_the_largest_result(columns: int, warps: int, most: int | None) -> None:
    """Two of a small product, of which the other warps would compute the same."""
    module = build(
        kernel_from("""
        def kernel(x, y, out, N: tl.constexpr):
            m, n = tl.arange(0, 16), tl.arange(0, N)
            a = tl.load(x + m[:, None] * 16 + m[None, :])
            b = tl.dot(a, tl.load(y + m[:, None] * N + n[None, :]))
            b = tl.dot(tl.dot(a, a).to(tl.float16), b.to(tl.float16))
            tl.store(out + m[:, None] * N + n[None, :], b)
        """),
        {"x": "*fp16", "y": "*fp16", "out": "*fp32"},
        {"N": columns},
    )
    ctx = PassContext(processor(90).features, machine=gpu_machine(lanes=32, warps=warps))
    run(module, [*STEPS, Step(widen_programs)], ctx, [Verifier()])
    assert (ctx.widening.most_warps if ctx.widening else None) == most
