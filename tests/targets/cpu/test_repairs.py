"""What LLVM's back ends get wrong when left alone: stores of one lane, loads of no lane, extrema of
numbers and NaN, comparisons whose bits are a half, masks of signs, bits that are selected or one of
their operands; and what takes them too long: divisions."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.covering import covering
from tests.targets import selected_zeros
from tests.targets.cpu.harness import PLAIN_AVX2, PLAIN_SSE2, host
from tests.targets.cpu.test_kernels import ir_of
from tests.targets.repaired import run_repaired
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.passes import PassContext, run
from tilewright.runtime.devices import cpu as device
from tilewright.targets.cpu import emit, repairs
from tilewright.targets.cpu.machine import Machine

STORE = """
declare void @llvm.masked.store.v{n}{t}.p0(<{n} x {t}>, ptr, <{n} x i1>)

define void @f(ptr %p, ptr %q) {{
  %w = load <{n} x {wide}>, ptr %q, align 1
  %t = {narrow} <{n} x {wide}> %w to <{n} x {t}>
  call void @llvm.masked.store.v{n}{t}.p0(<{n} x {t}> %t, ptr align 1 %p, <{n} x i1> <{mask}>)
  ret void
}}
"""


@pytest.mark.parametrize("n", [4, 8, 16])
@pytest.mark.parametrize(("t", "bits"), [("i8", 8), ("i16", 16)])
def test_one_lane_of_narrowed_integers(t: str, bits: int, n: int) -> None:
    """As LLVM 22 has it, four bytes were written."""
    for lane in range(n):
        mask = ", ".join(f"i1 {str(i == lane).lower()}" for i in range(n))
        text = STORE.format(n=n, t=t, wide="i32", narrow="trunc", mask=mask)
        _, code = emit.compile_text(text, host())
        loaded: Any = device.LoadedCode(code, ["f"])
        wide = np.arange(n, dtype=np.uint32) + 0x01020304
        out = np.full(n + 8, 0x55, f"u{bits // 8}")
        expected = out.copy()
        expected[lane] = wide[lane] & ((1 << bits) - 1)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(loaded["f"])(
            out.ctypes.data, wide.ctypes.data
        )
        np.testing.assert_array_equal(out, expected)


def test_other_masks_are_unchanged() -> None:
    for mask in ("i1 true, i1 true, i1 false, i1 false", "i1 false, i1 false, i1 false, i1 false"):
        text = STORE.format(n=4, t="i16", wide="i32", narrow="trunc", mask=mask)
        assert repairs.without_lone_lanes(text) == text


COPY = """
define void @f(ptr %p, ptr %q, i32 %n) {
  %rows = sdiv i32 %n, 3
  %some = icmp slt i32 %rows, 7
  %i = insertelement <16 x i32> poison, i32 %rows, i64 0
  %s = shufflevector <16 x i32> %i, <16 x i32> poison, <16 x i32> zeroinitializer
  %m = icmp slt <16 x i32> %s, splat (i32 5)
  %w = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %q, <16 x i1> %m, <16 x float> poison)
  call void @llvm.masked.store.v16f32.p0(<16 x float> %w, ptr %p, <16 x i1> %m)
  ret void
}
"""


def test_a_masked_copy_needs_no_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling the patterns would take a tenth of the time that Python takes for such a kernel."""
    monkeypatch.setattr(repairs, "re", None)
    machine = Machine("x86_64-unknown-linux-gnu", "sapphirerapids", frozenset({"avx512f"}))
    assert repairs.repair(COPY, machine) == COPY


LOAD = """
declare <{n} x {t}> @llvm.masked.load.v{n}{m}.p0(ptr, <{n} x i1>, <{n} x {t}>)

define void @f(ptr %p, ptr %q, i32 %a) {{
  %c = icmp ult i32 %a, 4
  %i = insertelement <{n} x i1> poison, i1 %c, i64 0
  %s = shufflevector <{n} x i1> %i, <{n} x i1> poison, <{n} x i32> zeroinitializer
  %m = and <{n} x i1> %s, <{mask}>
  %w = call <{n} x {t}> @llvm.masked.load.v{n}{m}.p0(ptr align 4 %p, <{n} x i1> %m, <{n} x {t}> zeroinitializer)
  store <{n} x {t}> %w, ptr %q, align 4
  ret void
}}
"""  # noqa: E501
TYPES = {"i32": "i32", "i64": "i64", "float": "f32", "double": "f64", "ptr": "p0", "i16": "i16"}


COUNTS = [2, 3, 4, 5, 7, 8, 9, 12, 16, 32]
FEATURES = [PLAIN_AVX2, PLAIN_AVX2.replace("avx2,", ""), None]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("t", "n", "features"), covering(TYPES, COUNTS, FEATURES))
def test_loads_of_registers_without_lanes(t: str, n: int, features: str | None) -> None:
    """As LLVM 22 has it for AVX, a register of which no lane is ever set was read whole."""
    if "avx2" not in host().features:
        pytest.skip("needs AVX2")
    machine = host(features)
    size = {"i32": 4, "float": 4, "i16": 2}.get(t, 8)
    # Within the first register of four lanes, and about the middle and the end.
    for count in sorted({*range(min(n, 6)), n // 2, n // 2 + 1, n - 1}):
        mask = ", ".join(f"i1 {str(i < count).lower()}" for i in range(n))
        text = LOAD.format(n=n, t=t, m=TYPES[t], mask=mask)
        _, code = emit.compile_text(text, machine)
        loaded: Any = device.LoadedCode(code, ["f"])
        source, out = np.arange(1, n + 1, dtype=f"i{size}"), np.full(n, -1, f"i{size}")
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(loaded["f"])
        call(source.ctypes.data, out.ctypes.data, 0)
        np.testing.assert_array_equal(out, np.where(np.arange(n) < count, source, 0))
        call(source.ctypes.data, out.ctypes.data, 4)
        np.testing.assert_array_equal(out, np.zeros(n))


EXTREMUM = """
declare {t} @llvm.{name}.{m}({t}, {t})

define void @f(ptr %p, ptr %q, i32 %a) {{
  %x = load {t}, ptr %p, align 4
  %n = sitofp i32 %a to {t}
  %r = call {t} @llvm.{name}.{m}({t} {operands})
  store {t} %r, ptr %q, align 4
  ret void
}}
"""


@pytest.mark.parametrize("name", ["minimumnum", "maximumnum"])
@pytest.mark.parametrize("t", ["float", "double"])
@pytest.mark.parametrize("features", [PLAIN_AVX2, None])
def test_extrema_of_numbers_and_nan(t: str, name: str, features: str | None) -> None:
    """As LLVM 22 has it for AVX-512, that of a converted integer and NaN was NaN."""
    if features is not None and "avx2" not in host().features:
        pytest.skip("needs AVX2")
    dtype = np.float32 if t == "float" else np.float64
    for operands in (f"%x, {t} %n", f"%n, {t} %x"):
        text = EXTREMUM.format(t=t, m=TYPES[t], name=name, operands=operands)
        _, code = emit.compile_text(text, host(features))
        loaded: Any = device.LoadedCode(code, ["f"])
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(loaded["f"])
        for x in (np.nan, 2.5, -np.inf):
            source, out = np.full(1, x, dtype), np.zeros(1, dtype)
            call(source.ctypes.data, out.ctypes.data, 2)
            choose = np.fmin if name == "minimumnum" else np.fmax
            np.testing.assert_array_equal(out, choose(source, dtype(2)))


def test_a_repair_starts_at_the_call() -> None:
    """Not at another one above it, which calls no function by name."""
    above = '  %one = call float asm "", "=x,0"(float 1.0)\n  %x = sitofp i64 %n to float\n'
    extremum = "  %m = call float @llvm.maximumnum.f32(float %x, float %one)\n"
    found = repairs.with_opaque_extrema(above + extremum)
    assert found.startswith(above)
    assert found != above + extremum
    load = (
        "  %v = call <8 x i32> @llvm.masked.load.v8i32.p0(ptr align 4 %p, <8 x i1> %m,"
        " <8 x i32> zeroinitializer)\n"
    )
    found = repairs.with_opaque_masks(above + load)
    assert found.startswith(above)
    assert found != above + load


COMPARED = """
import tilewright as tw
import tilewright.language as tl
from tilewright.compiler.source import ASTSource
from tilewright.targets.protocol import GPUTarget


@tw.jit
def kernel(x, y, n):
    bits = (tl.load(x) {comparison} (n & 1)).to(tl.int16)
    tl.store(y, bits.to(tl.float16, bitcast=True) * 2)


source = ASTSource(kernel, {{"x": "*fp32", "y": "*fp16", "n": "i32"}})
tw.compile(source, target=GPUTarget("cpu", "{chip}"))
"""


@pytest.mark.parametrize("chip", ["sapphirerapids", "graniterapids", "skylake-avx512"])
@pytest.mark.parametrize("comparison", ["!=", "=="])
def test_comparisons_whose_bits_are_a_half(tmp_path: Path, chip: str, comparison: str) -> None:
    """In a process of its own, which LLVM 22 ends where it has no instruction."""
    source = tmp_path / "compared.py"
    source.write_text(COMPARED.format(chip=chip, comparison=comparison), "utf-8")
    run = subprocess.run([sys.executable, str(source)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


DIVISIONS = """
define void @f(ptr %p, ptr %q, ptr %r) {{
  %x = load {type}, ptr %p, align 1
  %d = load {type}, ptr %q, align 1
{lines}
  ret void
}}
"""
OPERATIONS = ("sdiv", "udiv", "srem", "urem")


@pytest.mark.parametrize("features", [None, PLAIN_SSE2])
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_called_divisions(bits: int, features: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """By values and by constants, of which only 64 bits are divided lane by lane."""
    type = f"<8 x i{bits}>"
    cases = [(name, by) for name in OPERATIONS for by in ("%d", 7, 8, 100)]
    lines = [
        f"  %v{k} = {name} {type} %x, {by if by == '%d' else f'splat (i{bits} {by})'}\n"
        f"  %p{k} = getelementptr {type}, ptr %r, i64 {k}\n"
        f"  store {type} %v{k}, ptr %p{k}, align 1"
        for k, (name, by) in enumerate(cases)
    ]
    monkeypatch.setattr(repairs, "MOST_LANES", 8)
    text = DIVISIONS.format(type=type, lines="\n".join(lines))
    optimised, code = emit.compile_text(text, host(features))
    assert optimised.count("call fastcc") == 4 * (1 if bits < 64 else 3)
    x = np.array(
        [0, 1, -1, 99, 100, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, -12345], f"i{bits // 8}"
    )
    d = np.array([1, 2, 3, 7, 100, 10, 11, 12], x.dtype)
    out = np.zeros((len(cases), 8), x.dtype)
    loaded: Any = device.LoadedCode(code, ["f"])
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(loaded["f"])
    call(x.ctypes.data, d.ctypes.data, out.ctypes.data)
    for (name, by), row in zip(cases, out, strict=True):
        kind = np.dtype(f"{'u' if name[0] == 'u' else 'i'}{bits // 8}")
        dividends, divisors = x.view(kind), d.view(kind) if by == "%d" else np.full(8, by, kind)
        remainders = np.fmod(dividends, divisors)
        quotients = (dividends - remainders) // divisors
        expected = quotients if name.endswith("div") else remainders
        np.testing.assert_array_equal(row.view(kind), expected)


def test_few_divisions_are_unchanged() -> None:
    line = "  %a = sdiv <16 x i64> %x, splat (i64 10), !dbg !7\n"
    few = repairs.MOST_LANES // 16
    assert repairs.with_called_divisions(line * few) == line * few
    (call, *_) = repairs.with_called_divisions(line * (few + 1)).splitlines()
    assert call == "  %a = call fastcc <16 x i64> @lanes.divide.0(<16 x i64> %x), !dbg !7"
    constants = (
        "  %a = sdiv <16 x i32> %x, splat (i32 10)\n  %b = srem <4 x i64> %x, splat (i64 8)\n"
    )
    assert repairs.with_called_divisions(constants * few) == constants * few


# An integer of all lanes, and the upper half of them by another use of the mask.
MASK = """
define i32 @g(<{n} x i{bits}> %x, ptr %p, ptr %q) noinline {{
  %m = {mask}
  %all = bitcast <{n} x i1> %m to i{n}
  %z = zext i{n} %all to i32
  %upper = shufflevector <{n} x i1> %m, <{n} x i1> poison, <{half} x i32> <{lanes}>
  %one = load <{half} x i64>, ptr %p, align 1
  %two = load <{half} x i64>, ptr %q, align 1
  %w = select <{half} x i1> %upper, <{half} x i64> %one, <{half} x i64> %two
  store <{half} x i64> %w, ptr %p, align 1
  ret i32 %z
}}

define i32 @f(ptr %x, ptr %p, ptr %q) {{
  %v = load <{n} x i{bits}>, ptr %x, align 1
  %z = call i32 @g(<{n} x i{bits}> %v, ptr %p, ptr %q)
  ret i32 %z
}}
"""


@pytest.mark.parametrize(("n", "bits"), [(16, 8), (8, 16), (4, 32), (8, 32), (16, 32), (4, 64)])
@pytest.mark.parametrize("of", ["sign", "bit"])
def test_masks_with_two_uses(n: int, bits: int, of: str) -> None:
    """As LLVM 22 has it for AVX-512, the upper lanes were those of a mask that was never set."""
    type = f"<{n} x i{bits}>"
    mask = {"sign": f"icmp slt {type} %x, zeroinitializer", "bit": f"trunc {type} %x to <{n} x i1>"}
    lanes = ", ".join(f"i32 {lane}" for lane in range(n // 2, n))
    text = MASK.format(n=n, bits=bits, half=n // 2, lanes=lanes, mask=mask[of])
    _, code = emit.compile_text(text, host())
    loaded: Any = device.LoadedCode(code, ["f"])
    call = ctypes.CFUNCTYPE(ctypes.c_uint32, *[ctypes.c_void_p] * 3)(loaded["f"])
    source = np.random.default_rng(n).integers(-100, 100, n).astype(f"i{bits // 8}")
    one, two = np.full(n // 2, 1, np.int64), np.full(n // 2, 2, np.int64)
    expected = source < 0 if of == "sign" else source % 2 == 1
    whole = call(source.ctypes.data, one.ctypes.data, two.ctypes.data)
    assert whole == sum(1 << lane for lane in range(n) if expected[lane])
    np.testing.assert_array_equal(one, np.where(expected[n // 2 :], 1, 2))


def test_masks_of_registers_that_movmskps_lacks() -> None:
    """As LLVM 22 has it for AVX-512, instructions named registers that have no encoding there."""
    machine = host()
    if "avx512vl" not in machine.features:
        pytest.skip("needs AVX-512")
    text = """
define i8 @f(<8 x i32> %x) {
  %m = icmp slt <8 x i32> %x, zeroinitializer
  %b = bitcast <8 x i1> %m to i8
  ret i8 %b
}
"""
    ir, _ = emit.compile_text(text, machine)
    assert "movmskp" not in emit.assembly(ir, machine)


@tw.jit
def mixed(x, y, keys, out, MASK: tl.constexpr, FORM: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b, key, first = tl.load(x + i), tl.load(y + i), tl.load(keys + i), tl.load(x)
    bits = (a & MASK) | (b & ~MASK) if FORM == "or" else b ^ ((a ^ b) & MASK)
    tl.store(out + i, tl.where(key < 7, bits, b))
    tl.store(out + N + i, tl.where(key < 7, a, bits))
    tl.store(out + 2 * N + i, tl.where(key < 7, first ^ ((first ^ b) & MASK), first))


@pytest.mark.parametrize("form", ["or", "xor"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("mask", [0x7FFFFFFF, 0x6A0E8F6A, 0xFF])
def test_bits_that_are_selected_or_one_of_their_operands(mask: int, dtype: Any, form: str) -> None:
    """As LLVM 22 has it for AVX-512, the bits were those of another function of both and the
    mask."""
    rng, n = np.random.default_rng(0), 64
    x, y = rng.integers(0, 1 << 31, (2, n)).astype(dtype)
    keys, out = rng.integers(-10, 20, n).astype(np.int32), np.zeros(3 * n, dtype)
    mixed[(1,)](x, y, keys, out, MASK=mask, FORM=form, N=n)
    bits = (x & mask) | (y & ~dtype(mask))
    np.testing.assert_array_equal(out[:n], np.where(keys < 7, bits, y))
    np.testing.assert_array_equal(out[n : 2 * n], np.where(keys < 7, x, bits))
    first = np.where(keys < 7, (y & mask) | (x[0] & ~dtype(mask)), x[0])
    np.testing.assert_array_equal(out[2 * n :], first)


def test_repairs_for_another_processor_keep_the_meaning() -> None:
    """The uses of the language run so, too, in `tests/language/test_support_table.py`."""
    module = ir_of(selected_zeros.selected_zeros, selected_zeros.signature("fp32"), {"BLOCK": 64})
    run(module, STEPS, PassContext(), [])
    x = selected_zeros.special_values(np.dtype(np.float32), 64)
    out = np.zeros(selected_zeros.PARTS * 64, np.float32)
    assert run_repaired(module, (1, 1, 1), [x, out])
    np.testing.assert_array_equal(out, selected_zeros.expected(x))
