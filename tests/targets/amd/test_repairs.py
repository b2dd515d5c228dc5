"""What LLVM's back end loses: the signs of zeros that become fp16, and of those that are subtracted
from zero; the signs of shifted words; operations between a sum and a product of bytes; zeros that
are selected; quotients of 24 bits; blocks behind a trap; the operands of differences between
lanes; conditions that are branched and selected by; the masks of factors of 24 bits; zeros above
bytes that are extended to 16 bits; logic of values that are masked; constants that are selected
for NaN; the upper halves of constants of 64 bits; comparisons of 128 bits; and the carries of sums
of sums."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.amd_emulator.launch import launch
from tests.targets import selected_zeros
from tests.targets.amd.sources import WAVE_64, compiled, counted
from tilewright.base.llvm_library import parsed
from tilewright.targets.amd.features import PROCESSORS
from tilewright.targets.amd.repairs import repair

BLOCK = 256


@tw.jit
def truncated(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i, mask=i < n).to(tl.float32), tl.load(y_ptr + i, mask=i < n)
    product = x * y
    tl.store(out_ptr + i, product.to(tl.float16), mask=i < n)
    tl.store(out_ptr + BLOCK + i, (-product).to(tl.float16), mask=i < n)
    tl.store(out_ptr + 2 * BLOCK + i, (x * 0.5).to(tl.float16), mask=i < n)
    tl.store(out_ptr + 3 * BLOCK + i, (product + x).to(tl.float16), mask=i < n)


@tw.jit
def halves(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i, mask=i < n), tl.load(y_ptr + i, mask=i < n).to(tl.float16)
    tl.store(out_ptr + i, x * y, mask=i < n)
    tl.store(out_ptr + BLOCK + i, -(x * y), mask=i < n)
    tl.store(out_ptr + 2 * BLOCK + i, x * 0.5, mask=i < n)
    tl.store(out_ptr + 3 * BLOCK + i, x * y + x, mask=i < n)


def expected(kernel: Any, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> list[Any]:
    # The sum of `truncated` is contracted; both operands are exact in fp64.
    wide = np.float64 if kernel is truncated else np.float16
    a, b, half = x.astype(wide), y.astype(np.float16).astype(wide), np.float16
    return [(a * b).astype(half), (-(a * b)).astype(half), (a * wide(0.5)).astype(half),
            (a * b + a).astype(half)]  # fmt: skip


@pytest.mark.parametrize("arch", PROCESSORS)
@pytest.mark.parametrize("kernel", [truncated, halves], ids=["truncated", "halves"])
def test_products_keep_the_sign_of_zero(kernel: Any, arch: str) -> None:
    numbers = np.array([0.0, -0.0, 1.0, -1.0, 2.0**-20, -(2.0**-20), 1.5, -3.0], np.float16)
    x, y = (np.resize(a, 200) for a in (np.repeat(numbers, 8), np.tile(numbers, 8)))
    out = np.zeros(4 * BLOCK, np.float16)
    types = {"x_ptr": "*fp16", "y_ptr": "*fp32", "out_ptr": "*fp16", "n": "i32"}
    code = compiled(kernel, types, arch, BLOCK=BLOCK).asm["hsaco"]
    assert isinstance(code, bytes)
    *_, found = launch(code, arch, 1, (1,), [x, y.astype(np.float32), out, 200])
    for row, right in zip(found.reshape(4, BLOCK), expected(kernel, x, y), strict=True):
        assert np.array_equal(row[:200].view(np.uint16), right.view(np.uint16))


def test_truncation_stays_a_part_of_the_product() -> None:
    types = {"x_ptr": "*fp16", "y_ptr": "*fp32", "out_ptr": "*fp16", "n": "i32"}
    found = counted(compiled(truncated, types, WAVE_64, 4, BLOCK=BLOCK))
    # Of the product and of the sum; LLVM negates, and multiplies by 0.5, in fp16.
    assert found["v_fma_mixlo_f16"] == 2
    assert not found["v_cvt_f16_f32"]


def test_names_of_other_functions_are_not_taken_for_products() -> None:
    text = """
define half @a(float %x, float %y) {
  %m = fmul float %x, %y
  ret half 0.0
}

define half @b(float %m) {
  %h = fptrunc float %m to half
  ret half %h
}
"""
    assert repair(text, PROCESSORS[WAVE_64]) == text


def test_vectors() -> None:
    text = """
define <2 x half> @a(<2 x float> %x, <2 x float> %y) {
  %m = fmul contract <2 x float> %x, <float 1.0, float 2.0>
  %h = fptrunc <2 x float> %m to <2 x half>, !dbg !1
  ret <2 x half> %h
}
"""
    lines = re.sub(r"product\.\d+", "product", repair(text, PROCESSORS[WAVE_64])).splitlines()
    assert lines[3:5] == [
        "  %product = call contract <2 x float> @llvm.fma.v2f32(<2 x float> %x, "
        "<2 x float> <float 1.0, float 2.0>, <2 x float> splat (float -0.0))",
        "  %h = fptrunc <2 x float> %product to <2 x half>, !dbg !1",
    ]


@tw.jit
def rotated(x_ptr, out_ptr, COUNT: tl.constexpr, MASK: tl.constexpr):
    """A signed shift right, in a word with other bytes."""
    i = tl.arange(0, 64)
    a = tl.full((64,), 12, tl.int32)
    b = tl.load(x_ptr + i)
    for _ in range(3):
        a, b = ((a << (32 - COUNT)) | ((a >> COUNT) & MASK)) + b, a
    tl.store(out_ptr + i, a)


@pytest.mark.parametrize("arch", PROCESSORS)
@pytest.mark.parametrize(("count", "mask"), [(24, -1), (16, -1), (8, -1), (16, 0xFFFFFF)])
def test_signed_shifts_by_bytes(count: int, mask: int, arch: str) -> None:
    x, out = np.arange(64, dtype=np.int32) * 0x4F1BBCDD, np.zeros(64, np.int32)
    types = {"x_ptr": "*i32", "out_ptr": "*i32"}
    code = compiled(rotated, types, arch, warps=1, COUNT=count, MASK=mask).asm["hsaco"]
    assert isinstance(code, bytes)
    _, found = launch(code, arch, 1, (1,), [x, out])
    a, b = np.full(64, 12, np.int32), x
    for _ in range(3):
        a, b = ((a << (32 - count)) | ((a >> count) & np.int32(mask))) + b, a
    assert np.array_equal(found, a)


def test_signed_shifts_of_values_without_names() -> None:
    text = """
define i64 @a(i64 %x, i64 %y) {
  %1 = ashr i64 %x, 32
  %2 = or i64 %1, %y
  ret i64 %2
}
"""
    shift, flip, sign = re.sub(
        r"shifted\.\d+", "shifted", repair(text, PROCESSORS[WAVE_64])
    ).splitlines()[2:5]
    assert shift == "  %shifted = lshr i64 %x, 32"
    assert flip == "  %shifted.flipped = xor i64 %shifted, 2147483648"
    assert sign == "  %1 = sub i64 %shifted.flipped, 2147483648"
    with parsed(repair(text, PROCESSORS[WAVE_64])) as module:
        module.verify()


@tw.jit
def subtracted(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out_ptr + i, x - (0.0 - y))
    tl.store(out_ptr + BLOCK + i, (0.0 - y) * x)
    tl.store(out_ptr + 2 * BLOCK + i, (-y) * x)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("type", ["fp16", "fp32"])
def test_differences_from_zero_are_no_negations(type: str, arch: str) -> None:
    dtype = np.dtype(f"f{int(type[2:]) // 8}")
    numbers = np.array([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, 1e-5], dtype)
    x, y = np.repeat(numbers, 8), np.tile(numbers, 8)
    types = {"x_ptr": f"*{type}", "y_ptr": f"*{type}", "out_ptr": f"*{type}"}
    code = compiled(subtracted, types, arch, BLOCK=64).asm["hsaco"]
    assert isinstance(code, bytes)
    *_, found = launch(code, arch, 1, (1,), [x, y, np.zeros(3 * 64, dtype)])
    with np.errstate(invalid="ignore"):
        results = np.concatenate([x - (dtype.type(0) - y), (dtype.type(0) - y) * x, -y * x])
    np.testing.assert_array_equal(found, results)
    numbers = results == results
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(results[numbers]))


@tw.jit
def subtracted_scalars(x_ptr, y_ptr, out_ptr):
    for i in range(64):
        x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
        tl.store(out_ptr + i, x - (0.0 - y))
        tl.store(out_ptr + 64 + i, (0.0 - y) * x)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1200"])
@pytest.mark.parametrize("type", ["fp16", "fp32"])
def test_differences_from_zero_in_scalar_registers(type: str, arch: str) -> None:
    dtype = np.dtype(f"f{int(type[2:]) // 8}")
    numbers = np.array([0.0, -0.0, 1.0, -1.0, 2.5, 3.0, -7.0, 1e-5], dtype)
    x, y = np.repeat(numbers, 8), np.tile(numbers, 8)
    types = {"x_ptr": f"*{type}", "y_ptr": f"*{type}", "out_ptr": f"*{type}"}
    code = compiled(subtracted_scalars, types, arch, warps=1).asm["hsaco"]
    assert isinstance(code, bytes)
    *_, found = launch(code, arch, 1, (1,), [x, y, np.zeros(2 * 64, dtype)])
    results = np.concatenate([x - (dtype.type(0) - y), (dtype.type(0) - y) * x])
    np.testing.assert_array_equal(found, results)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(results))


def test_which_differences_are_fenced() -> None:
    text = """
define half @f(half %x, <2 x float> %y) {
  %a = fsub contract half 0xH0000, %x, !dbg !1
  %b = fsub <2 x float> zeroinitializer, %y
  %c = fsub half 0xH8000, %x
  %d = fsub half %x, 0xH0000
  ret half %a
}
"""
    lines = re.sub(r"difference\.\d+", "difference", repair(text, PROCESSORS[WAVE_64])).splitlines()
    half, pair = "@llvm.canonicalize.f16", "@llvm.canonicalize.v2f32"
    assert lines[2:8] == [
        "  %difference = fsub contract half 0xH0000, %x, !dbg !1",
        f"  %a = call half {half}(half %difference), !dbg !1",
        "  %difference = fsub <2 x float> zeroinitializer, %y",
        f"  %b = call <2 x float> {pair}(<2 x float> %difference)",
        "  %c = fsub half 0xH8000, %x",
        "  %d = fsub half %x, 0xH0000",
    ]
    assert f"declare half {half}(half)" in lines


@tw.jit
def byte_products(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    product = x * y
    tl.store(out_ptr + i, product % 2)
    tl.store(out_ptr + BLOCK + i, product + (product >> 3))
    tl.store(out_ptr + 2 * BLOCK + i, product + (product ^ 5))
    tl.store(out_ptr + 3 * BLOCK + i, product - (3 - x * x))
    tl.store(out_ptr + 4 * BLOCK + i, x * x + ((product + y * y) & 29))


@pytest.mark.parametrize("arch", sorted(PROCESSORS))
@pytest.mark.parametrize("type", ["i8", "u8"])
def test_operations_on_products_of_bytes_are_no_sums(type: str, arch: str) -> None:
    dtype = np.dtype(f"{type[0]}1")
    x, y = np.random.default_rng(0).integers(0, 256, (2, 64)).astype(np.uint8).view(dtype)
    types = {"x_ptr": f"*{type}", "y_ptr": f"*{type}", "out_ptr": f"*{type}"}
    code = compiled(byte_products, types, arch, warps=1, BLOCK=64).asm["hsaco"]
    assert isinstance(code, bytes)
    *_, found = launch(code, arch, 1, (1,), [x, y, np.zeros(5 * 64, dtype)])
    product, c = x * y, dtype.type
    expected = [
        np.fmod(product, c(2)),
        product + (product >> c(3)),
        product + (product ^ c(5)),
        product - (c(3) - x * x),
        x * x + ((product + y * y) & c(29)),
    ]
    np.testing.assert_array_equal(found, np.concatenate(expected))


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("type", ["fp16", "fp32", "fp64"])
def test_selected_zeros_are_not_those_of_an_extremum(type: str, arch: str) -> None:
    x = selected_zeros.special_values(np.dtype(f"f{int(type[2:]) // 8}"), 64)
    types = selected_zeros.signature(type)
    code = compiled(selected_zeros.selected_zeros, types, arch, BLOCK=64).asm["hsaco"]
    assert isinstance(code, bytes)
    out = np.zeros(selected_zeros.PARTS * 64, x.dtype)
    _, found = launch(code, arch, 1, (1,), [x, out])
    expected = selected_zeros.expected(x)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@tw.jit
def short_quotients(x_ptr, y_ptr, out_ptr, MASK: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i) & MASK, tl.load(y_ptr + i) & MASK
    tl.store(out_ptr + i, x // y)
    tl.store(out_ptr + BLOCK + i, x % y)


@pytest.mark.parametrize("type", ["u32", "i32", "u64", "i64"])
def test_quotients_of_24_bits(type: str) -> None:
    """Of multiples less one, by the largest of which a product with the reciprocal is too large."""
    dtype = np.dtype(f"{type[0]}{int(type[1:]) // 8}")
    y = np.arange(1, 1025).astype(dtype)
    x = 0xFFFFFF // y * y - dtype.type(1)
    types = {"x_ptr": f"*{type}", "y_ptr": f"*{type}", "out_ptr": f"*{type}"}
    code = compiled(short_quotients, types, WAVE_64, MASK=0xFFFFFF, BLOCK=1024).asm["hsaco"]
    assert isinstance(code, bytes)
    *_, found = launch(code, WAVE_64, 1, (1,), [x, y, np.zeros(2 * 1024, dtype)])
    np.testing.assert_array_equal(found, np.concatenate([x // y, x % y]))


@pytest.mark.parametrize("type", ["u32", "i32", "u64", "i64"])
def test_quotients_of_23_bits_are_not_computed_in_fp32(type: str) -> None:
    types = {"x_ptr": f"*{type}", "y_ptr": f"*{type}", "out_ptr": f"*{type}"}
    code = str(compiled(short_quotients, types, WAVE_64, MASK=0x7FFFFF, BLOCK=64).asm["llir"])
    divisors = set(re.findall(r" = [us](?:div|rem) \w+ %[\w.]+, (%\w+)", code))
    assert divisors == {"%divisor"}


@tw.jit
def asserted(x_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    tl.device_assert(n < 2, "n")
    total = tl.load(x_ptr) + m
    tl.store(out_ptr + tl.arange(0, BLOCK), total + tl.load(x_ptr + n) - m)


@pytest.mark.parametrize("arch", sorted(PROCESSORS))
def test_sums_of_64_bits_after_a_trap(arch: str) -> None:
    """LLVM ended the process."""
    types = {"x_ptr": "*i64", "out_ptr": "*i64", "n": "i32", "m": "i64"}
    found = counted(compiled(asserted, types, arch, options={"debug": True}, BLOCK=64))
    assert found["s_trap"] == 1


@tw.jit
def larger(a, b):
    below = a - b
    return a - tl.where(below < 0, below, 0)


@tw.jit
def largest(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.reduce(x, 0, larger))


@pytest.mark.parametrize("arch", sorted(PROCESSORS))
@pytest.mark.parametrize("type", ["i16", "i32", "i64"])
def test_differences_between_lanes(type: str, arch: str) -> None:
    """The emulator knows no `v_subrev_u32_dpp`."""
    dtype = np.dtype(f"i{int(type[1:]) // 8}")
    x = np.random.default_rng(0).integers(-1000, 1000, 128).astype(dtype)
    types = {"x_ptr": f"*{type}", "out_ptr": f"*{type}"}
    code = compiled(largest, types, arch, BLOCK=128).asm["hsaco"]
    assert isinstance(code, bytes)
    _, found = launch(code, arch, 1, (1,), [x, np.zeros(1, dtype)])
    assert found[0] == x.max()


@tw.jit
def branched(x_ptr, out_ptr, a, b, n, m, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    below = a < b
    start = tl.where(below, n, m)
    x = tl.zeros((BLOCK,), tl.float32)
    if not below:
        x += tl.load(x_ptr + i + start)
    tl.store(out_ptr + i + start, x)


@pytest.mark.parametrize("arch", sorted(PROCESSORS))
def test_conditions_that_are_branched_and_selected_by(arch: str) -> None:
    types = {"x_ptr": "*fp32", "out_ptr": "*fp32", "a": "fp32", "b": "fp32", "n": "i32", "m": "i32"}
    code = compiled(branched, types, arch, BLOCK=64).asm["hsaco"]
    assert isinstance(code, bytes)
    x = np.arange(100, dtype=np.float32) + 1
    for a, start in ((1.0, 5), (3.0, 9)):
        expected = np.zeros(100, np.float32)
        expected[start : start + 64] = 0 if a < 2 else x[start : start + 64]
        arguments = [x, np.zeros(100, np.float32), a, 2.0, 5, 9]
        _, found = launch(code, arch, 1, (1,), arguments)
        np.testing.assert_array_equal(found, expected)


@tw.jit
def wide_constants(x_ptr, out_ptr, n, a, b, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    below = a < b
    x = tl.load(x_ptr + i) + tl.where(below, n, 1)
    y = n.to(tl.float64)
    for _ in range(n):
        y = y * 3
        if y.to(tl.int8) > 3:
            x += tl.load(x_ptr)
    if not below:
        x += tl.load(x_ptr + BLOCK + i)
    tl.store(out_ptr + i, x)


@pytest.mark.parametrize("arch", sorted(PROCESSORS))
def test_constants_of_64_bits_beside_such_conditions(arch: str) -> None:
    types = {"x_ptr": "*i32", "out_ptr": "*i32", "n": "i32", "a": "fp32", "b": "fp32"}
    code = compiled(wide_constants, types, arch, BLOCK=64).asm["hsaco"]
    assert isinstance(code, bytes)
    x = np.arange(5, 133, dtype=np.int32)
    _, found = launch(code, arch, 1, (1,), [x, np.zeros(64, np.int32), 6, 3.0, 2.0])
    np.testing.assert_array_equal(found, x[:64] + x[64:] + 1 + 6 * x[0])


@tw.jit
def short_products(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    masked = (x & 0xFFFFFF).to(tl.int64) * (y & 0xFFFFFF).to(tl.int64)
    shifted = ((x << 8) >> 8).to(tl.int64) * ((y << 8) >> 8).to(tl.int64)
    tl.store(out_ptr + i, masked + y)
    tl.store(out_ptr + BLOCK + i, shifted + y)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("type", ["i32", "u32"])
def test_sums_with_products_of_24_bits(type: str, arch: str) -> None:
    dtype = np.dtype(f"{type[0]}4")
    x, y = np.random.default_rng(0).integers(0, 2**32, (2, 64)).astype(np.uint32).view(dtype)
    types = {"x_ptr": f"*{type}", "y_ptr": f"*{type}", "out_ptr": "*i64"}
    code = compiled(short_products, types, arch, BLOCK=64).asm["hsaco"]
    assert isinstance(code, bytes)
    *_, found = launch(code, arch, 1, (1,), [x, y, np.zeros(2 * 64, np.int64)])
    eight, long = dtype.type(8), np.int64
    masked = (x & 0xFFFFFF).astype(long) * (y & 0xFFFFFF) + y
    shifted = (x << eight >> eight).astype(long) * (y << eight >> eight) + y
    np.testing.assert_array_equal(found, np.concatenate([masked, shifted]))


@tw.jit
def signed_bytes(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    upper = (x.to(tl.int16) >> 8).to(tl.uint16)
    tl.store(out_ptr + i, x ^ upper.to(tl.int32))
    second = (y >> 8).to(tl.int8).to(tl.int16).to(tl.uint16)
    tl.store(out_ptr + BLOCK + i, second.to(tl.int32) * 3)


@pytest.mark.parametrize("arch", sorted(PROCESSORS))
def test_bytes_that_are_extended_to_16_bits(arch: str) -> None:
    x = np.random.default_rng(0).integers(-(2**31), 2**31, 64).astype(np.int32)
    y = x.astype(np.int16)
    types = {"x_ptr": "*i32", "y_ptr": "*i16", "out_ptr": "*i32"}
    code = compiled(signed_bytes, types, arch, BLOCK=64).asm["hsaco"]
    assert isinstance(code, bytes)
    *_, found = launch(code, arch, 1, (1,), [x, y, np.zeros(2 * 64, np.int32)])
    upper = (y >> 8).astype(np.uint16).astype(np.int32)
    np.testing.assert_array_equal(found, np.concatenate([x ^ upper, upper * 3]))


@tw.jit
def low_bits(out_ptr, n, BLOCK: tl.constexpr):
    bit = n & 1
    tl.store(out_ptr + tl.arange(0, BLOCK), (-268451839 - bit) | (bit ^ 1))


@pytest.mark.parametrize("arch", sorted(PROCESSORS))
def test_logic_of_a_masked_number(arch: str) -> None:
    """Of gfx950, one instruction combines three operands by a table."""
    code = compiled(low_bits, {"out_ptr": "*i32", "n": "i32"}, arch, BLOCK=64).asm["hsaco"]
    assert isinstance(code, bytes)
    (found,) = launch(code, arch, 1, (1,), [np.zeros(64, np.int32), 7])
    np.testing.assert_array_equal(found, -268451840)


@tw.jit
def selected_constants(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    differs = (x < 2.25) | (x > 2.25)
    tl.store(out_ptr + i, tl.where(differs, 7.5, 2.25))
    tl.store(out_ptr + BLOCK + i, tl.where(differs, x * 2, 2.25))


@tw.jit
def upper_halves(x, y, out_ptr):
    first = tl.umulhi(x, tl.full((), 65535, tl.uint64)).to(tl.int16)
    second = tl.umulhi(x, tl.full((), 3, tl.uint64)).to(tl.int16)
    tl.store(out_ptr, tl.where(first == -2, y, 7))
    tl.store(out_ptr + 1, tl.where(second != 1, y, 7))


@pytest.mark.parametrize("arch", [WAVE_64, "gfx1200"])
def test_upper_halves_of_products_that_are_compared(arch: str) -> None:
    code = compiled(upper_halves, {"x": "u64", "y": "i32", "out_ptr": "*i32"}, arch).asm["hsaco"]
    assert isinstance(code, bytes)
    for x in (0, 2**64 - 1, 2**64 - 2**48, 2**64 // 3 + 1):
        (found,) = launch(code, arch, 1, (1,), [x, 5, np.zeros(2, np.int32)])
        conditions = x * 65535 >> 64 == 65534, x * 3 >> 64 != 1
        assert found.tolist() == [5 if c else 7 for c in conditions]


@pytest.mark.parametrize("arch", sorted(PROCESSORS))
@pytest.mark.parametrize("type", ["fp16", "fp32"])
def test_constants_that_are_selected_for_nan(type: str, arch: str) -> None:
    x = np.tile(np.array([2.25, np.nan, np.inf, 1], f"f{int(type[2:]) // 8}"), 16)
    types = {"x_ptr": f"*{type}", "out_ptr": f"*{type}"}
    code = compiled(selected_constants, types, arch, BLOCK=64).asm["hsaco"]
    assert isinstance(code, bytes)
    _, found = launch(code, arch, 1, (1,), [x, np.zeros(2 * 64, x.dtype)])
    differs = (x < 2.25) | (x > 2.25)
    expected = [np.where(differs, 7.5, 2.25), np.where(differs, x * 2, 2.25)]
    np.testing.assert_array_equal(found, np.concatenate(expected).astype(x.dtype))


def test_which_comparisons_take_two_steps() -> None:
    text = """
define <2 x float> @f(float %x, <2 x float> %y) {
  %a = fcmp one float %x, 2.000000e+00
  %b = select i1 %a, float %x, float 2.000000e+00
  %c = fcmp one float %x, 3.000000e+00
  %d = select i1 %c, float %b, float 2.000000e+00
  %e = fcmp contract ueq <2 x float> %y, <float 1.000000e+00, float 2.000000e+00>, !dbg !1
  %f = select <2 x i1> %e, <2 x float> <float 1.000000e+00, float 3.000000e+00>, <2 x float> %y
  ret <2 x float> %f
}
"""
    lines = re.sub(r"compared\.\d+", "compared", repair(text, PROCESSORS[WAVE_64])).splitlines()
    pair = "<float 1.000000e+00, float 2.000000e+00>"
    assert lines[2:11] == [
        "  %compared.number = fcmp ord float %x, %x",
        "  %compared.equal = fcmp une float %x, 2.000000e+00",
        "  %a = and i1 %compared.number, %compared.equal",
        "  %b = select i1 %a, float %x, float 2.000000e+00",
        "  %c = fcmp one float %x, 3.000000e+00",
        "  %d = select i1 %c, float %b, float 2.000000e+00",
        "  %compared.number = fcmp uno <2 x float> %y, %y, !dbg !1",
        f"  %compared.equal = fcmp oeq <2 x float> %y, {pair}, !dbg !1",
        "  %e = or <2 x i1> %compared.number, %compared.equal, !dbg !1",
    ]


@tw.jit
def carries(x_ptr, y_ptr, low_ptr, z_ptr, out_ptr, carry_ptr, SIDE: tl.constexpr):
    i = tl.arange(0, 64)
    high = tl.load(x_ptr + i) + tl.load(y_ptr + i)
    a = high.to(tl.uint64) << 32 | tl.load(low_ptr + i).to(tl.uint64)
    z = tl.load(z_ptr + i).to(tl.uint64)
    total = a + z
    tl.store(out_ptr + i, total)
    if SIDE == "left":
        carry = total < a
    elif SIDE == "right":
        carry = z > total
    else:
        carry = ~a < z
    tl.store(carry_ptr + i, carry.to(tl.int32))


@pytest.mark.parametrize("arch", sorted(PROCESSORS))
@pytest.mark.parametrize("side", ["left", "right", "inverse"])
def test_carries_of_sums_of_sums(side: str, arch: str) -> None:
    """As LLVM 22 has it, the carry was also that of the sum in the upper word."""
    words = dict.fromkeys(("x_ptr", "y_ptr", "low_ptr", "z_ptr"), "*u32")
    types = {**words, "out_ptr": "*u64", "carry_ptr": "*i32"}
    kernel = compiled(carries, types, arch, 1, SIDE=side)
    numbers = np.array([0, 1, 1 << 31, (1 << 32) - 1], np.uint32)
    x, y, low, z = np.random.default_rng(0).choice(numbers, (4, 64))
    args = [x, y, low, z, np.zeros(64, np.uint64), np.zeros(64, np.int32)]
    *_, total, carry = launch(kernel.asm["hsaco"], arch, 1, (1,), args)
    a = (x + y).astype(np.uint64) << np.uint64(32) | low
    np.testing.assert_array_equal(total, a + z)
    np.testing.assert_array_equal(carry, a + z < a)


def test_which_comparisons_of_sums_are_hidden() -> None:
    text = """
define i1 @f(i64 %x, i64 %y) {{
  %s = add i64 %x, {addend}
  %c = icmp {comparison}
  ret i1 %c
}}
"""
    hidden = {
        "%y": ("ult i64 %s, %x", "ugt i64 %y, %s", "ult i64 %x, %s"),
        "1": ("eq i64 %x, -1", "eq i64 %s, 0"),
        "-1": ("ne i64 %x, 0",),
        "5": ("ult i64 %s, 5",),
    }
    kept = {
        "%y": ("eq i64 %s, %x", "slt i64 %s, %x"),
        "1": ("eq i64 %s, %y", "ult i64 %s, 10", "eq i64 %s, 10"),
        "5": ("ne i64 %x, 0",),
    }
    for cases, changed in ((hidden, True), (kept, False)):
        for addend, comparisons in cases.items():
            for comparison in comparisons:
                given = text.format(addend=addend, comparison=comparison)
                assert (repair(given, PROCESSORS[WAVE_64]) != given) == changed, given
