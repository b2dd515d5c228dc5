"""Ops of which one instruction computes two elements, on the emulated GPU."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.arrays import copied
from tests.gpu_machine import EMULATOR
from tests.ir_values import same_bits
from tests.lowering.simt.emulator import Emulated, EmulatedHardware
from tests.lowering.simt.harness import laid_out
from tilewright.compiler.source import ASTSource
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.lowering.emit import Builder, V
from tilewright.lowering.simt.kernel import Kernel
from tilewright.ops import arith

PACKED = (arith.Add, arith.Sub, arith.Mul, arith.Fma)


@tw.jit
def chain_kernel(x_ptr, y_ptr, z_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    top = tl.max(x, 1)[:, None]
    z = tl.fma(x - top, y, x * 0.5) + tl.sum(y * y, 0)[None, :]
    tl.store(z_ptr + at, tl.where(x > y, z - 1.25, z * x))


def module_of(rows: int, columns: int) -> Module:
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "z_ptr": "*fp32"}
    source = ASTSource(chain_kernel, signature, {"M": rows, "N": columns})
    return source.module(FrontendOptions())


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (4, 8), (16, 16), (3, 7), (8, 64)])
@pytest.mark.parametrize("warps", [1, 4])
def test_results_are_those_of_single_elements(rows: int, columns: int, warps: int) -> None:
    """Bit by bit; also for registers of odd number, and where all elements of a row are one."""
    module = module_of(rows, columns)
    ready = laid_out(module, warps=warps, lanes=8, target=EMULATOR)
    rng = np.random.default_rng(rows)
    x, y = (rng.normal(size=(rows, columns)).astype(np.float32) for _ in range(2))
    x.flat[0], y.flat[-1] = -0.0, np.inf
    args: list[Any] = [x, y, np.zeros_like(x)]
    found: list[list[Any]] = []
    texts: list[str] = []
    for pairs in ((), PACKED):
        hardware = EmulatedHardware(8, EMULATOR)
        hardware.pairs = pairs
        texts.append(Kernel(ready.clone().entry, hardware, warps).emit())
        compiled = Emulated(ready.clone(), hardware, warps)
        ours = copied(args)
        compiled.launch((1, 1, 1), ours, 0)
        found.append(ours)
    assert "<2 x float>" not in texts[0]
    assert ("<2 x float>" in texts[1]) == (rows * columns > 8 * warps)
    assert all(same_bits(a, b) for a, b in zip(*found, strict=True))
    theirs = copied(args)
    interpret(module, 1, theirs)
    assert same_bits(found[1][2], theirs[2], close=True)


@tw.jit
def reductions_kernel(x_ptr, rows_ptr, columns_ptr, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + m[:, None] * N + n[None, :])
    if x_ptr.dtype.element_ty == tl.float16:
        tl.store(rows_ptr + m, tl.sum(x, 1))
        tl.store(columns_ptr + n, tl.sum(x, 0))
    else:
        tl.store(rows_ptr + m, tl.xor_sum(x, 1))
        tl.store(columns_ptr + n, tl.xor_sum(x, 0))


@pytest.mark.parametrize(
    ("element", "shape", "warps"),
    [
        ("fp16", (1, 2), 1),
        ("fp16", (2, 8), 4),
        ("fp16", (16, 16), 1),
        ("fp16", (4, 128), 4),
        ("fp16", (128, 4), 4),
        ("fp16", (64, 32), 4),
        ("i16", (64, 32), 1),
        ("i16", (32, 64), 4),
    ],
)
def test_reductions_of_pairs(
    element: str, shape: tuple[int, int], warps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of integers, which are exact in any order, of adjacent elements of rows, and of columns;
    a shuffle moves elements of two rows, where a lane has them."""
    shuffles = Counter[int]()
    shuffle = EmulatedHardware.shuffle_xor

    def counted(hw: EmulatedHardware, b: Builder, word: V, mask: int) -> V:
        shuffles[len(hw.pairs)] += 1
        return shuffle(hw, b, word, mask)

    monkeypatch.setattr(EmulatedHardware, "shuffle_xor", counted)
    rows, columns = shape
    names = ("x_ptr", "rows_ptr", "columns_ptr")
    constants = {"M": rows, "N": columns}
    facts: Any = {(i,): [["tt.divisibility", 16]] for i in range(3)}
    signature = dict.fromkeys(names, f"*{element}")
    module = ASTSource(reductions_kernel, signature, constants, facts).module(FrontendOptions())
    ready = laid_out(module, warps=warps, lanes=8, target=EMULATOR)
    kind = np.float16 if element == "fp16" else np.int16
    x = np.random.default_rng(rows).integers(-8, 8, shape).astype(kind)
    args: list[Any] = [x, np.zeros(rows, kind), np.zeros(columns, kind)]
    theirs = copied(args)
    interpret(module, 1, theirs)
    packed = (*PACKED, arith.Xor)
    for pairs in ((), packed):
        hardware = EmulatedHardware(8, EMULATOR)
        hardware.pairs = pairs
        ours = copied(args)
        Emulated(ready.clone(), hardware, warps).launch((1, 1, 1), ours, 0)
        assert all(same_bits(a, b) for a, b in zip(ours, theirs, strict=True))
    both = shuffles[0] == 2 * shuffles[len(packed)]
    assert both if rows >= 16 and columns >= 16 else shuffles[len(packed)] <= shuffles[0]
