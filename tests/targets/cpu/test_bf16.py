"""Rounding to bf16: numbers that are normal and those that are not, in vectors of both."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.targets.cpu.harness import assert_same, host, places_ir
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PassContext, run
from tilewright.targets.cpu import avx512
from tilewright.targets.cpu.codegen import generate

CAST = """
func @cast(%x: ptr<fp32>, %o: ptr<bf16>) {{
  %i = tile.arange start=0, end={n} : () -> {n}xi32
  %pid = program.id axis=0 : () -> i32
  %size = arith.constant value={n}, type=i32 : () -> i32
  %first = arith.mul %pid, %size : (i32, i32) -> i32
  %start = tile.splat %first, shape=({n},) : i32 -> {n}xi32
  %at = arith.add %start, %i : ({n}xi32, {n}xi32) -> {n}xi32
  %xs = tile.splat %x, shape=({n},) : ptr<fp32> -> {n}xptr<fp32>
  %from = mem.addptr %xs, %at : ({n}xptr<fp32>, {n}xi32) -> {n}xptr<fp32>
  %v = mem.load %from, _, _, cache="", evict="", volatile=False : ({n}xptr<fp32>) -> {n}xfp32
  %w = arith.cast %v, to=bf16, rounding="rtne" : {n}xfp32 -> {n}xbf16
  %os = tile.splat %o, shape=({n},) : ptr<bf16> -> {n}xptr<bf16>
  %to = mem.addptr %os, %at : ({n}xptr<bf16>, {n}xi32) -> {n}xptr<bf16>
  mem.store %to, %w, _, cache="", evict="" : ({n}xptr<bf16>, {n}xbf16) -> ()
  control.return [] : () -> ()
}}
"""

COLUMN_MAXIMA = f"""
func @maxima(%x: ptr<bf16>, %o: ptr<bf16>) {{
{places_ir(4, 40)}
  %xs = tile.splat %x, shape=(4, 40) : ptr<bf16> -> 4x40xptr<bf16>
  %from = mem.addptr %xs, %offset : (4x40xptr<bf16>, 4x40xi32) -> 4x40xptr<bf16>
  %v = mem.load %from, _, _, cache="", evict="", volatile=False : (4x40xptr<bf16>) -> 4x40xbf16
  %s = tile.reduce [%v], axis=0 : 4x40xbf16 -> 40xbf16 {{
    (%a: bf16, %b: bf16)
    %t = arith.max %a, %b, propagate_nan=False : (bf16, bf16) -> bf16
    control.yield [%t] : bf16 -> ()
  }}
  %os = tile.splat %o, shape=(40,) : ptr<bf16> -> 40xptr<bf16>
  %to = mem.addptr %os, %k : (40xptr<bf16>, 40xi32) -> 40xptr<bf16>
  mem.store %to, %s, _, cache="", evict="" : (40xptr<bf16>, 40xbf16) -> ()
  control.return [] : () -> ()
}}
"""


def patterns() -> np.ndarray:
    """fp32 on both sides of where rounding to bf16 changes, of all sizes; NaN of all kinds."""
    upper = np.arange(0, 1 << 16, 5, dtype=np.uint32) << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    return (upper[:, None] | lower).ravel().view(np.float32)


@pytest.mark.parametrize("n", [7, 16, 40])
@pytest.mark.parametrize("mixed", [False, True])
def test_rounding(n: int, mixed: bool) -> None:
    x = patterns()
    if mixed:  # most vectors hold some that are subnormal
        x = np.random.default_rng(0).permutation(x)
    x[:64] = 1.1
    x = x[: len(x) // n * n]
    out = np.zeros(len(x), ml_dtypes.bfloat16)
    assert_same(CAST.format(n=n), (len(x) // n, 1, 1), [x, out])


def test_one_subnormal_number_in_a_vector() -> None:
    for k in range(16):
        x = np.full(32, 1.01, np.float32)
        x[k], x[16 + k] = 3e-39, -3e-39
        assert_same(CAST.format(n=16), (2, 1, 1), [x, np.zeros(32, ml_dtypes.bfloat16)])


def test_results_of_reductions() -> None:
    x = np.random.default_rng(1).integers(0, 1 << 16, (4, 40)).astype(np.uint16)
    x[:, ::3] &= 0x807F  # subnormal
    args = [x.view(ml_dtypes.bfloat16), np.zeros(40, ml_dtypes.bfloat16)]
    assert_same(COLUMN_MAXIMA, (1, 1, 1), args)


@pytest.mark.skipif(not avx512.converts_bf16(host()), reason="the host has no instruction for it")
def test_bf16_instruction_rounds() -> None:
    code, _ = generate(parse_module(CAST.format(n=64)), host())
    assert "cvtneps2bf16" in code


def test_lanes_disabled_by_a_constant_mask() -> None:
    """LLVM 22 ended the process: it made constants of bfloat of the registers that are all 1."""
    kernel = kernel_from("""
        def kernel(x, o):
            k = tl.arange(0, 32)
            n = tl.arange(0, 8)
            a = (tl.load(x + k[None, :], mask=k[None, :] < 2, other=1) & 3).to(tl.bfloat16)
            b = (k[:, None] + n[None, :] > 20).to(tl.bfloat16)
            tl.store(o + n[None, :], tl.dot(a, b))
    """)
    module = build(kernel, {"x": "*i64", "o": "*fp32"})
    run(module, STEPS, PassContext())
    assert_same(module, (1, 1, 1), [np.arange(32), np.zeros(8, np.float32)])
