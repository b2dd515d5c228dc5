"""Operands that a loop does not change are in registers where shared memory does not suffice."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.arrays import copied
from tilewright.base.record import replace
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import pipeline
from tilewright.compiler.source import ASTSource
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.passes import PassContext, Verifier, run
from tilewright.lowering.simt.shared_memory import allocated_bytes
from tilewright.ops.control import For
from tilewright.ops.gpu import Fetch
from tilewright.passes.verify_layouts import LayoutVerifier
from tilewright.targets.gpu.hoist_fetches import hoist_fetches
from tilewright.targets.protocol import GPUTarget
from tilewright.targets.registry import target

KIB = 1024


@tw.jit
def scores(q, r, k, out, n):
    """Two products of each step have an operand that the loop does not change: 16 and 8 KiB."""
    i, wide, narrow = tl.arange(0, 64)[:, None], tl.arange(0, 128), tl.arange(0, 64)
    x, y = tl.load(q + i * 128 + wide[None, :]), tl.load(r + i * 64 + narrow[None, :])
    for at in range(0, n, 64):
        keys = k + (at + tl.arange(0, 64)[None, :]) * 192
        s = tl.dot(x, tl.load(keys + wide[:, None]))
        s = tl.dot(y, tl.load(keys + 128 + narrow[:, None]), s)
        tl.store(out + i * n + at + tl.arange(0, 64)[None, :], s)


def passed(chip: GPUTarget) -> tuple[Module, PassContext]:
    types = {**dict.fromkeys(("q", "r", "k"), "*fp16"), "out": "*fp32", "n": "i32"}
    attrs = {(i,): [["tt.divisibility", 16]] for i in range(5)}
    gpu = target(chip)
    options = gpu.parse_options({"num_warps": 4, "num_stages": 1})
    module = ASTSource(scores, types, {}, attrs).module(gpu.frontend_options(options))
    ctx = context_for(gpu, options)
    run(module, pipeline(gpu), ctx, [Verifier(), LayoutVerifier(ctx)])
    return module, ctx


@pytest.mark.parametrize(("kib", "moved"), [(40, 0), (36, 1), (24, 1)])
@pytest.mark.parametrize(
    "chip", [GPUTarget("hip", "gfx942", 64), GPUTarget("cuda", 80, 32)], ids=lambda chip: chip.arch
)
def test_largest_operand_leaves_shared_memory(chip: GPUTarget, kib: int, moved: int) -> None:
    module, ctx = passed(chip)
    fn, gpu = module.entry, replace(ctx.gpu, shared_bytes=kib * KIB)
    (loop,) = [op for op in fn.walk() if isinstance(op, For)]
    before = [op for op in loop.body if isinstance(op, Fetch)]
    assert hoist_fetches(fn, PassContext(machine=gpu, options=ctx.options)) == bool(moved)
    assert len([op for op in loop.body if isinstance(op, Fetch)]) == len(before) - moved
    assert allocated_bytes(fn) <= gpu.shared_bytes
    run(module, [], ctx, [Verifier(), LayoutVerifier(ctx)])
    rng = np.random.default_rng(0)
    q, r, k = (rng.integers(-3, 4, (rows, d)).astype(np.float16)
               for rows, d in ((64, 128), (64, 64), (128, 192)))  # fmt: skip
    args = copied([q, r, k, np.zeros((64, 128), np.float32), np.int32(128)])
    interpret(module, (1, 1, 1), args)
    exact = np.hstack([q, r]).astype(np.float32) @ k.T.astype(np.float32)
    assert (args[3].reshape(64, 128) == exact).all()
