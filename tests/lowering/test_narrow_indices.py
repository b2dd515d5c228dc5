"""Indices of 8 and 16 bits wrap, as those into tables of 256 elements are meant to: no access may
rely on consecutive ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.arrays import copied
from tests.fuzz.programs.check import build
from tests.gpu.programs import Program
from tests.ir_values import same_bits
from tests.lowering.simt import harness as simt
from tests.targets.cpu import harness as cpu
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import STEPS, pipeline
from tilewright.ir.interpret import interpret
from tilewright.ir.passes import PassContext, run
from tilewright.targets.nvidia.target import NvidiaTarget

MIDDLE = 1 << 15  # of the table: indices of signed types are of both signs


@tw.jit
def table(x, out, start, by, T: tl.constexpr, C: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    index = (i + start).to(T) + tl.full((), C, T)
    tl.store(out + i, tl.load(x + 32768 + index))
    tl.store(out + N + i, tl.load(x + 32768 + (index - by.to(T))))
    tl.store(out + 2 * N + i, tl.load(x + 32768 + index * 3))


@tw.jit
def rows(x, out, start, by, T: tl.constexpr, C: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, 8)[:, None], tl.arange(0, N)[None, :]
    index = (m * N).to(T) + (n + start).to(T) + tl.full((), C, T)
    tl.store(out + m * N + n, tl.load(x + 32768 + index))


@tw.jit
def bounded(x, out, start, by, T: tl.constexpr, C: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    index = (i + start).to(T) + tl.full((), C, T)
    tl.store(out + i, tl.load(x + i, mask=index < 100, other=-1))
    tl.store(out + N + i, tl.load(x + 32768 + index // 4 + index % 8))
    tl.store(out + 2 * N + i, i, mask=(index >= by.to(T)) & (i < 3 * N // 4))


@tw.jit
def moved_along(x, out, start, by, T: tl.constexpr, C: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    index = i.to(T)
    total = tl.zeros((N,), tl.int32)
    for _ in range(6):
        total = total * 3 + tl.load(x + 32768 + index)
        index += tl.full((), C, T)
    tl.store(out + i, total)


CASES = [
    (kernel, dtype, constant, n)
    for kernel in (table, rows, bounded, moved_along)
    for dtype, constant, n in (
        ("int8", 2, 256), ("uint8", 2, 256), ("int8", 100, 64), ("uint8", 250, 64),
        ("int16", 32700, 128), ("uint16", 65530, 128), ("uint8", 0, 512), ("int16", 16, 64),
    )
]  # fmt: skip


def _program(case: tuple[Any, str, int, int], start: int) -> Program:
    kernel, dtype, constant, n = case
    x = np.arange(3 * MIDDLE, dtype=np.int32)
    out = np.full(8 * n, -7, np.int32)
    constants = {"T": getattr(tl, dtype), "C": constant, "N": n}
    return Program(kernel, [x, out, start, 5], constants)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].fn.__name__}-{c[1]}-{c[2]}-{c[3]}")
def test_narrow_indices_wrap(case: tuple[Any, str, int, int], start: int) -> None:
    module, args = build(_program(case, start))
    expected = copied(args)
    interpret(module, (1,), expected)
    found = {"cpu": copied(args), "emulated": copied(args), "laid out": copied(args)}
    lowered = module.clone()
    run(lowered, STEPS, PassContext())
    cpu.run_compiled(lowered, (1, 1, 1), found["cpu"])
    simt.run_emulated(module, (1, 1, 1), found["emulated"], warps=1, lanes=32)
    target = NvidiaTarget(90)
    ctx = context_for(target, target.parse_options({"num_warps": 1}))
    laid_out = module.clone()
    run(laid_out, pipeline(target), ctx)
    interpret(laid_out, (1,), found["laid out"])
    for where, arrays in found.items():
        assert same_bits(arrays[1], expected[1]), where
