"""Cross-compilation: code for AArch64 is compiled and inspected, not run."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.targets.cpu.test_kernels import ir_of
from tilewright.targets.cpu import emit
from tilewright.targets.cpu.codegen import generate
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.repairs import without_stores_of_three_bytes

NEOVERSE = Machine("aarch64-unknown-linux-gnu", "neoverse-n1", frozenset({"neon", "fp-armv8"}))


@tw.jit
def row_softmax(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    v = tl.load(x + tl.program_id(0) * n + i, mask=m, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + tl.program_id(0) * n + i, e / tl.sum(e, 0), mask=m)


@tw.jit
def product(a, b, o, M: tl.constexpr, K: tl.constexpr):
    m, k = tl.arange(0, M), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * M + m[None, :])
    tl.store(o + m[:, None] * M + m[None, :], tl.dot(x, y))


CASES: list[tuple[Any, dict[str, str], dict[str, Any], str]] = [
    (row_softmax, {"x": "*fp32", "o": "*fp32", "n": "i32"}, {"B": 1024}, "fmla"),
    (product, {"a": "*bf16", "b": "*bf16", "o": "*fp32"}, {"M": 32, "K": 16}, "fmla"),
]


@pytest.mark.parametrize(("kernel", "signature", "constexprs", "expected"), CASES)
def test_code_for_aarch64(
    kernel: Any, signature: dict[str, str], constexprs: dict[str, Any], expected: str
) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text, _ = generate(ir_of(kernel, signature, constexprs), NEOVERSE, fp_fusion=True)
    optimised, code = emit.compile_text(text, NEOVERSE)
    assert code[:4] == b"\x7fELF"
    assert expected in emit.assembly(optimised, NEOVERSE)


@pytest.mark.parametrize(
    ("triple", "features", "fused"),
    [
        ("aarch64-unknown-linux-gnu", (), True),
        ("riscv64-unknown-linux-gnu", (), True),
        ("x86_64-unknown-linux-gnu", (), False),
        ("x86_64-unknown-linux-gnu", ("fma",), True),
        ("wasm32-unknown-unknown", (), False),
    ],
)
def test_products_and_sums_fuse_where_the_architecture_does(
    triple: str, features: tuple[str, ...], fused: bool
) -> None:
    assert Machine(triple, "generic", frozenset(features)).has_fma == fused


@tw.jit
def row_maximum(x, o, B: tl.constexpr):
    tl.store(o, tl.max(tl.load(x + tl.arange(0, B)), 0))


def test_maxima_make_signalling_nans_quiet() -> None:
    """`fmaxnm` answers NaN for a signalling one; `fminnm x, x` before it makes that quiet."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir_of(row_maximum, {"x": "*fp32", "o": "*fp32"}, {"B": 64})
    optimised, _ = emit.compile_text(generate(module, NEOVERSE)[0], NEOVERSE)
    lines = emit.assembly(optimised, NEOVERSE).splitlines()
    operands = [line.split(maxsplit=1)[1].split(", ") for line in lines if "minnm" in line]
    assert any(o[1] == o[2] for o in operands if len(o) == 3)


THREE_BYTES = """
define void @f(ptr %p, ptr %q) {
  %w = load <3 x i64>, ptr %q, align 8
  %t = trunc <3 x i64> %w to <3 x i8>
  store <3 x i8> %t, ptr %p, align 1
  ret void
}
"""


def test_three_bytes_of_wide_integers_are_stored() -> None:
    """LLVM 22 fails an assertion for such a store of a vector, which ends the process."""
    assert "store i24" in without_stores_of_three_bytes(THREE_BYTES)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    optimised, code = emit.compile_text(THREE_BYTES, NEOVERSE)
    assert "store i24" in optimised
    assert code[:4] == b"\x7fELF"
