"""Loops are pipelined with as many slots as fit into the GPU's shared memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.base import knobs
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import pipeline
from tilewright.compiler.source import ASTSource
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext, run
from tilewright.lowering.simt.shared_memory import allocated_bytes
from tilewright.ops.control import For
from tilewright.targets.gpu import compilation
from tilewright.targets.gpu.codegen import ThreadCode, thread_code
from tilewright.targets.nvidia.target import NvidiaTarget

KIB = 1024


@tw.jit
def product(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    sums = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * N + n[None, :])
        sums = tl.dot(x, y, sums)
    tl.store(c + m[:, None] * N + n[None, :], sums)


@tw.jit
def two_products(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k, few = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK), tl.arange(0, 16)
    sums = tl.zeros((M, N), tl.float32)
    for start in tl.range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * N + n[None, :])
        sums = tl.dot(x, y, sums)
    for start in tl.range(0, K, 16, num_stages=3):
        x = tl.load(a + m[:, None] * K + (start + few)[None, :])
        y = tl.load(b + (start + few)[:, None] * N + n[None, :])
        sums = tl.dot(x, y, sums)
    tl.store(c + m[:, None] * N + n[None, :], sums)


def laid_out(
    kernel: Any, arch: int, num_stages: int, M: int, N: int, BK: int, warps: int = 8
) -> tuple[Module, PassContext]:
    """The kernel after all passes of an architecture, and what they report."""
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32"}
    sizes = {"M": M, "N": N, "BK": BK}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(4)}
    source = ASTSource(kernel, types | dict.fromkeys(sizes, "constexpr"), sizes, aligned)
    target = NvidiaTarget(arch)
    options = target.parse_options({"num_stages": num_stages, "num_warps": warps})
    module, ctx = source.module(target.frontend_options(options)), context_for(target, options)
    run(module, pipeline(target), ctx)
    return module, ctx


def slots_of(module: Module) -> list[int]:
    """The first extent of the buffers with three axes, in order."""
    shapes = [getattr(op.results[0].type, "shape", ()) for op in module.entry.walk() if op.results
              and op.name == "gpu.allocate"]  # fmt: skip
    return [shape[0] for shape in shapes if len(shape) == 3]


def remarks(ctx: PassContext) -> list[str]:
    return [remark.text for remark in ctx.remarks if remark.by == "limit_stages"]


@pytest.mark.parametrize(
    ("arch", "stages", "M", "N", "BK", "slots"),
    [
        (86, 4, 128, 128, 64, 3),
        (89, 4, 128, 256, 64, 2),
        (120, 4, 256, 128, 64, 2),
        (80, 4, 128, 128, 64, 4),
        (90, 4, 128, 256, 64, 4),
        (90, 6, 128, 256, 64, 4),
        (90, 3, 64, 32, 32, 3),
    ],
)
def test_stages_are_the_most_that_fit(
    arch: int, stages: int, M: int, N: int, BK: int, slots: int
) -> None:
    module, ctx = laid_out(product, arch, stages, M, N, BK)
    limit = ctx.gpu.shared_bytes
    assert slots_of(module) == [slots] * 2
    assert allocated_bytes(module.entry) <= limit
    if slots == stages:
        assert remarks(ctx) == []
        return
    assert (slots + 1) * (M + N) * BK * 2 > limit
    (remark,) = (r for r in ctx.remarks if r.by == "limit_stages")
    taken = slots * (M + N) * BK * 2 // KIB
    assert remark.missed
    assert remark.text == (
        f"num_stages is {slots} instead of {stages}: with it, the kernel takes {taken} of the "
        f"{limit // KIB} KiB of shared memory"
    )
    loop = next(op for op in module.entry.walk() if isinstance(op, For))
    assert remark.loc is not None
    assert remark.loc == loop.loc
    line = Path(__file__).read_text().splitlines()[remark.loc.line - 1]
    assert "for start in range(0, K, BK):" in line


@pytest.mark.parametrize(
    ("stages", "warps", "slots"),
    [
        pytest.param(3, 4, 2, id="two programs instead of one"),
        pytest.param(4, 4, 4, id="one program, by three stages as well"),
        pytest.param(3, 8, 3, id="two warps for each scheduler"),
    ],
)
def test_stages_where_few_warps_are_resident(stages: int, warps: int, slots: int) -> None:
    """Fewer, if one more program of 64 x 128 and 128 x 64 elements, 32 KiB, is resident then."""
    module, ctx = laid_out(product, 80, stages, 64, 64, 128, warps)
    assert slots_of(module) == [slots] * 2
    made_room = "2 stages make 2 instead of 1 programs resident"
    assert remarks(ctx) == [made_room] * (slots < stages)


def test_asynchronous_products_keep_their_stages() -> None:
    _, ctx = laid_out(product, 90, 3, 64, 64, 128, 4)
    assert remarks(ctx) == []


def test_at_least_one_stage_remains() -> None:
    module, ctx = laid_out(product, 86, 4, 256, 256, 128)
    assert slots_of(module) == []
    assert "128 of the 99 KiB" in remarks(ctx)[0]


def test_a_function_with_fewer_stages_is_kept_where_most_memory_is_taken() -> None:
    _, ctx = laid_out(product, 90, 4, 128, 256, 64)
    assert ctx.smaller is not None
    name, (function, _) = ctx.smaller
    assert name == "limit_stages"
    assert [op.num_stages for op in function.walk() if isinstance(op, For)] == [2]
    _, ctx = laid_out(product, 90, 3, 64, 64, 32)
    assert ctx.smaller is None


def test_what_does_not_fit_after_all_passes_is_compiled_with_fewer_stages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = {"M": 128, "N": 256, "BK": 64}
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32"}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(4)}
    source = ASTSource(product, types | dict.fromkeys(sizes, "constexpr"), sizes, aligned)
    slots: list[int] = []

    def enlarged(module: Module, *rest: Any) -> ThreadCode:
        """As if passes had added memory to a kernel of four stages."""
        code = thread_code(module, *rest)
        slots.append(slots_of(module)[0])
        return code._replace(shared_bytes=code.shared_bytes + 64 * KIB * (slots[-1] == 4))

    monkeypatch.setattr(compilation, "thread_code", enlarged)
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        knobs.compilation.disabled_passes = "specialize_warps"
        kernel = tw.compile(source, NvidiaTarget(90), {"num_stages": 4, "num_warps": 8})
    assert slots == [4, 2]
    assert kernel.metadata.shared <= 227 * KIB


@tw.jit
def equal_products(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    for part in tl.static_range(2):
        sums = tl.zeros((M, N), tl.float32)
        for start in range(part * BK, K, 2 * BK):
            x = tl.load(a + m[:, None] * K + (start + k)[None, :])
            y = tl.load(b + (start + k)[:, None] * N + n[None, :])
            sums = tl.dot(x, y, sums)
        tl.store(c + part * M * N + m[:, None] * N + n[None, :], sums)


def test_loops_that_take_the_same_are_both_lowered() -> None:
    """Lowering one of them alone frees nothing."""
    module, ctx = laid_out(equal_products, 86, 4, 128, 128, 64)
    assert slots_of(module) == [3, 3, 3, 3]
    assert len(remarks(ctx)) == 2
    assert allocated_bytes(module.entry) <= ctx.gpu.shared_bytes


def test_loop_that_fits_keeps_its_stages() -> None:
    """The buffers of both loops are never live at once."""
    module, ctx = laid_out(two_products, 86, 4, 128, 128, 64)
    assert slots_of(module) == [3, 3, 3, 3]
    (text,) = remarks(ctx)
    assert text.startswith("num_stages is 3 instead of 4")
