"""Cross-compilation: code for AArch64 is compiled and inspected, not run."""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.targets import selected_zeros
from tests.targets.cpu.dot_cases import LAYOUTS, dot_module
from tests.targets.cpu.test_kernels import ir_of
from tilewright.ir.core import Module
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


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("case", [0, 1], ids=["softmax", "product"])
def test_vectors_of_sve(case: int, size: int) -> None:
    """Also the extrema, which LLVM would compute lane by lane."""
    kernel, signature, constexprs, _ = CASES[case]
    code = _assembly(ir_of(kernel, signature, constexprs), "sve", sve_bytes=size)
    assert re.search(r"\tfm(la|ad)\tz\d+\.s", code)
    assert not re.search(r"\tmov\tz\d+\.s, z\d+\.s\[", code)  # a lane that is taken out
    assert ("\tfmaxnm\tz" in code) == (case == 0)


def _assembly(module: Module, *features: str, sve_bytes: int = 0) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    has = NEOVERSE.features.union(features)
    machine = Machine(NEOVERSE.triple, "generic", has, sve_bytes=sve_bytes)
    return emit.assembly(emit.compile_text(generate(module, machine)[0], machine)[0], machine)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("kind", "columns", "feature", "instruction", "count"),
    [
        # 8 x 8 sums in vectors of 2 x 2, and 8 x 7 sums, of which each row takes two of 4.
        ("bf16", 8, "bf16", "bfmmla", 16),
        ("bf16", 7, "bf16", "bfdot", 16),
        ("i8", 8, "i8mm", "smmla", 16),
        ("u8", 8, "i8mm", "ummla", 16),
        ("i8", 8, "dotprod", "sdot", 16),
        ("u8", 8, "dotprod", "udot", 16),
        ("fp16", 8, "fp16fml", "fmlal", 8),
        ("fp16", 8, "fp16fml", "fmlal2", 8),
        ("fp8", 8, "bf16", "bfmmla", 16),
    ],
)
def test_products_of_narrow_types_take_their_instruction(
    kind: str, columns: int, feature: str, instruction: str, count: int, layout: str
) -> None:
    """Once for each vector of sums, and with nothing but loads of operands in the loop."""
    code = _assembly(dot_module(kind, layout, (8, columns, 64)), feature)
    assert len(re.findall(rf"\t{instruction}\t", code)) == count
    loops = re.split(r"\n(?=\.LBB)", code)
    (inner,) = (loop for loop in loops if f"\t{instruction}\t" in loop)
    body = inner[: inner.rindex(f"\t{instruction}\t")]
    moves = re.findall(r"\t(mov|zip1|zip2|ins|ext|dup|str|stp|fcvtl?2?)\tv", body)
    assert not moves
    assert instruction not in _assembly(dot_module(kind, layout, (8, columns, 64)))


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


def test_selected_zeros_are_not_those_of_an_extremum() -> None:
    """`fminnm` would return -0.0 instead of the 0.0 that is selected."""
    module = ir_of(selected_zeros.selected_zeros, selected_zeros.signature("fp32"), {"BLOCK": 64})
    code = _assembly(module)
    assert "fminnm" not in code
    assert "fmaxnm" in code
