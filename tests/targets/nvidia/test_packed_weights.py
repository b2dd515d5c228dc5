"""Weights of 4 bits that lie along N in words: each thread unpacks the words that it loads, stores
the elements to shared memory at once, and loads them from there as matrices."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.lowering.simt.harness import assert_same
from tests.targets.nvidia.lowered import ptx_of
from tilewright.ir.core import Module

BM, BN, BK = 32, 32, 32


def product(steps: int) -> Module:
    kernel = kernel_from(f"""
        def kernel(x, w, scales, zeros, y, N):
            x, w = tl.multiple_of(x, 16), tl.multiple_of(w, 16)
            scales, zeros = tl.multiple_of(scales, 16), tl.multiple_of(zeros, 16)
            rows, columns, words = tl.arange(0, 32), tl.arange(0, 32), tl.arange(0, 4)
            depth = tl.arange(0, 32)
            N = tl.multiple_of(N, 16)
            order = ((tl.arange(0, 2) * 4)[None, :] + tl.arange(0, 4)[:, None]).reshape(8)
            shifts = tl.broadcast_to((order * 4)[None, :], (32 * 4, 8)).reshape((32, 32))
            acc = tl.zeros((32, 32), tl.float32)
            for i in range({steps}):
                known = depth < {steps * 32}
                a = tl.load(x + rows[:, None] * {steps * 32} + depth[None, :], known[None, :], 0.0)
                b = tl.load(w + depth[:, None] * (N // 8) + words[None, :], known[:, None], 0)
                z = tl.load(zeros + i * (N // 8) + words[None, :])
                for _ in tl.static_range(3):
                    b = tl.interleave(b, b)
                    z = tl.interleave(z, z)
                s = tl.load(scales + i * N + columns[None, :])
                z = (tl.broadcast_to(z, (32, 32)) >> shifts) & 15
                acc = tl.dot(a, ((((b >> shifts) & 15) - z) * s).to(tl.float16), acc)
                depth += 32
            tl.store(y + rows[:, None] * 32 + columns[None, :], acc)
    """)
    pointers = {"x": "*fp16", "w": "*i32", "scales": "*fp16", "zeros": "*i32", "y": "*fp32"}
    module = build(kernel, {**pointers, "N": "i32"})
    for alias, facts in enumerate(module.entry.arg_attrs[: len(pointers)]):
        facts["alias"] = alias
    return module


@pytest.mark.parametrize("steps", [1, 4])
def test_weights_arrive(steps: int) -> None:
    rng = np.random.default_rng(steps)
    x = rng.integers(-3, 4, (BM, steps * BK)).astype(np.float16)
    words = [
        rng.integers(-(2**31), 2**31, (rows, BN // 8)).astype(np.int32)
        for rows in (steps * BK, steps)
    ]
    scales = rng.integers(-2, 3, (steps, BN)).astype(np.float16)
    y = np.zeros((BM, BN), np.float32)
    args = [x.reshape(-1), words[0].reshape(-1), scales.reshape(-1), words[1].reshape(-1)]
    assert_same(product(steps), (1, 1, 1), [*args, y.reshape(-1), BN], warps=4, lanes=32)


def test_nothing_is_exchanged_element_by_element() -> None:
    """Words, zeros and scales are loaded in one layout, by one access each, and the elements of a
    word are stored at once."""
    text = ptx_of(product(4), num_warps=4, num_stages=3)
    loop = text[text.index("mma.sync") - 20_000 : text.rindex("mma.sync")]
    assert "shfl" not in text
    assert "cvt.rn.f16.s32" not in text
    assert len(re.findall(r"ldmatrix\S*\.trans", text)) > 0
    assert re.search(r"st\.shared\.v4", loop)
    assert not re.search(r"st\.shared\.[bu]16", text)
