"""What elementwise ops become: every op on every type assembles, by the instructions it should."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.frontend.kernels import build, function_from, jit, kernel_from
from tests.lowering.simt.tiles import tile, tile_kernel
from tests.targets.nvidia.lowered import lower, ptx_of
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Op, Value
from tilewright.ops import arith, math
from tilewright.targets.nvidia import arith as lowering
from tilewright.targets.nvidia.disassemble import find_disassembler, sass

ARCHES = (80, 90, 100)
MATH = [c for c in vars(math).values()
        if isinstance(c, type) and issubclass(c, math.MathFunction) and c.name]  # fmt: skip

Make = Callable[..., Any]


def ids(value: Any) -> str:
    return value.short if isinstance(value, ir.DType) else str(value)


def applied(makes: list[Make], count: int, element: ir.DType, size: int = 128) -> Module:
    """A kernel that applies each op to tiles of an element type."""

    def build(b: Builder, *operands: Value) -> list[Value]:
        return [b.value(make(*operands)) for make in makes]

    return tile_kernel(build, [tile(element, size)] * count)


def of_two(element: ir.DType) -> list[Make]:
    found: list[Make] = [arith.Add, arith.Sub, arith.Mul, arith.Min, arith.Max, arith.Rem]
    if element.is_floating():
        quotients: list[Make] = [arith.Div, lambda x, y: arith.Div(x, y, ieee=True)]
        return found + quotients
    found += [arith.IntDiv, arith.And, arith.Or, arith.Xor, arith.Shl, arith.Shr]
    return found + [arith.MulHi] * (element.primitive_bitwidth >= 32)


def of_one(element: ir.DType) -> list[Make]:
    casts: list[Make] = [lambda x, t=t: arith.Cast(x, t, "rtne") for t in ir.SCALARS]
    found: list[Make] = [arith.Neg, arith.Abs, *casts]
    if not element.is_floating():
        return found
    exact: list[Make] = [lambda x: math.Sqrt(x, ieee=True)]
    return [*found, *MATH, *exact]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("element", ir.SCALARS, ids=ids)
def test_every_op_on_every_type_assembles(element: ir.DType, arch: int) -> None:
    """In one kernel. Nothing is left for a library to define, and nothing spills."""
    makes: list[Make] = [lambda x, y, z, make=make: make(x, y) for make in of_two(element)]
    makes += [lambda x, y, z, make=make: make(x) for make in of_one(element)]
    makes += [arith.Fma] * element.is_floating()
    lowered = lower(applied(makes, 3, element), arch)
    assert ".extern .func" not in str(lowered.stages["ptx"])
    assert lowered.metadata["n_spills"] == 0


def instructions(makes: list[Make], count: int, element: ir.DType, arch: int = 90) -> list[str]:
    """The instructions of one element, without loads, stores and what finds their place."""
    text = ptx_of(applied(makes, count, element), arch, launch_pdl=False)
    body = re.findall(r"^\t([a-z][\w.:]*)", text, re.M)
    dull = r"ld\.|st\.|mov\.|cvta|add\.s64|mul\.wide|and\.b32|shl\.b32|ret"
    return [name for name in body if not re.match(dull, name)]


def test_exp_needs_few_instructions() -> None:
    found = instructions([math.Exp], 1, ir.FP32)
    assert found.count("ex2.approx.ftz.f32") == 1
    assert len(found) <= 6, found


@pytest.mark.parametrize(("make", "most"), [(math.Log, 23), (math.Log2, 25), (math.Log10, 25)])
def test_logarithms_need_few_instructions(make: Make, most: int) -> None:
    found = instructions([make], 1, ir.FP32)
    assert found.count("lg2.approx.ftz.f32") == 1
    assert len(found) <= most, found


@pytest.mark.parametrize("element", [ir.FP16, ir.BF16], ids=ids)
@pytest.mark.parametrize(("propagate", "name"), [(False, "max"), (True, "max.NaN")])
def test_maxima_of_two_numbers_of_16_bits_take_one_instruction(
    element: ir.DType, propagate: bool, name: str
) -> None:
    def largest(x: Value, y: Value) -> Op:
        return arith.Max(x, y, propagate_nan=propagate)

    kind = "f16x2" if element == ir.FP16 else "bf16x2"
    text = ptx_of(applied([largest], 2, element, size=256), 90, launch_pdl=False)
    assert re.findall(r"^\t((?:max|min|cvt|fma)\.[.\w]*)", text, re.M) == [f"{name}.{kind}"]


@pytest.mark.parametrize("element", [ir.I32, ir.U32], ids=ids)
@pytest.mark.parametrize("make", [arith.IntDiv, arith.Rem])
def test_what_is_divided_does_not_wait_for_tests_of_the_divisor(
    make: Make, element: ir.DType
) -> None:
    """The divisor is replaced by its magnitude at most; the result is, if it was 0."""
    found = instructions([make], 2, element)
    before = found[: next(i for i, name in enumerate(found) if name.startswith(("div", "rem")))]
    assert set(before) <= {"abs.s32"}
    assert len([name for name in found if name.startswith("selp")]) <= 2


@pytest.mark.skipif(find_disassembler() is None, reason="nvdisasm is not installed")
def test_remainders_by_one_number_take_one_reciprocal() -> None:
    """Indices that wrap around a bound, as those of rows of a product."""
    text = """
    def kernel(p, n):
        i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
        tl.store(p + i, i % n)
    """
    module = build(kernel_from(text), {"p": "*i32", "n": "i32"})
    cubin = lower(module, num_warps=1).stages["cubin"]
    assert isinstance(cubin, bytes)
    assert sass(cubin).count("MUFU.RCP") == 1


@pytest.mark.skipif(find_disassembler() is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize("element", [ir.FP32, ir.BF16], ids=ids)
def test_remainders_of_floats_take_two_products_where_the_quotient_is_short(
    element: ir.DType,
) -> None:
    cubin = lower(applied([arith.Rem], 2, element, 32), num_warps=1).stages["cubin"]
    assert isinstance(cubin, bytes)
    names = re.findall(r"\*/ +(?:@\S+ )?([A-Z][A-Z0-9]*)", sass(cubin))
    usual = names[names.index("MUFU") : names.index("BRA")]
    assert usual.count("FFMA") == 3  # the quotient, and the remainder of it or of one less
    assert len(usual) <= 12
    assert "CALL" not in names  # of a division of integers


@pytest.mark.skipif(find_disassembler() is None, reason="nvdisasm is not installed")
def test_tangents_reduce_their_angle_once() -> None:
    cubin = lower(applied([math.Tan], 1, ir.FP32, 32), num_warps=1).stages["cubin"]
    assert isinstance(cubin, bytes)
    names = re.findall(r"\*/ +(?:@\S+ )?([A-Z][A-Z0-9]*)", sass(cubin))
    assert names.count("FFMA") == 12  # 4 of the reduction, 6 of the polynomial, 2 of 1 / tan
    assert names.count("DFMA") == 2  # of the reduction of a large angle
    assert "CALL" not in names  # of a division


def test_quotients_by_one_number_take_two_products_each() -> None:
    """As those of a row by its sum; what makes the divisor normal is done once."""
    text = """
    def kernel(p, n):
        i = tl.arange(0, 1024)
        tl.store(p + i, tl.load(p + i) / tl.load(n))
    """
    found = ptx_of(build(kernel_from(text), {"p": "*fp32", "n": "*fp32"}), num_warps=1)
    assert found.count("rcp.approx.ftz.f32") == 1
    assert len(re.findall(r"mul\.(?:rn\.)?f32", found)) == 2 * 32 + 1
    assert len(re.findall(r"setp\.\w+\.f32", found)) == 2


def test_divisors_that_are_known_to_be_normal_are_not_scaled() -> None:
    """1 + exp(x) is 1 at least; where it is large, 1 - 2 / (1 + exp(x)) is 1 all the same."""
    text = """
    def kernel(p, KIND: tl.constexpr):
        i = tl.arange(0, 1024)
        x = tl.load(p + i)
        d = tl.exp(x) + 1
        q = 2 / d
        if KIND == 0:
            y = 1 - q
        elif KIND == 1:
            y = 0.5 * q - 1
        elif KIND == 2:
            y = x * q
        elif KIND == 3:
            y = (1 - q) * q
        elif KIND == 4:
            y = x / (tl.exp(x) * 0.5 + 1e-30) - 1
        elif KIND == 5:
            y = 1 - 2 / (tl.exp(x) - 1)
        tl.store(p + i, y)
    """
    kernel = kernel_from(text)
    # Comparisons, and products that are not fused with sums: of what is scaled, and quotients.
    expected = ((0, 0), (0, 1), (1, 2), (1, 2), (1, 2), (2, 1))
    for kind, (comparisons, products) in enumerate(expected):
        module = build(kernel, {"p": "*fp32", "KIND": "constexpr"}, {"KIND": kind})
        found = ptx_of(module, num_warps=1)
        assert found.count("rcp.approx.ftz.f32") == 32
        assert len(re.findall(r"setp\.\w+\.f32", found)) == 32 * comparisons
        assert found.count("mul.rn.f32") == 32 * products


@pytest.mark.parametrize(
    ("divisor", "comparisons", "products"),
    [
        ("tl.sqrt_rn(x)", 0, 1),
        ("x.to(tl.float16).to(tl.float32)", 0, 1),
        ("tl.load(n + i).to(tl.float32)", 0, 1),
        ("x", 2, 3),
    ],
)
def test_divisors_with_normal_reciprocals_are_not_scaled(
    divisor: str, comparisons: int, products: int
) -> None:
    text = f"""
    def kernel(p, n):
        i = tl.arange(0, 32)
        x = tl.load(p + i)
        tl.store(p + i, tl.load(p + 32 + i) / ({divisor}))
    """
    found = ptx_of(build(kernel_from(text), {"p": "*fp32", "n": "*i32"}), num_warps=1)
    assert len(re.findall(r"setp\.\w+\.f32", found)) == comparisons
    assert len(re.findall(r"mul\.(?:rn\.)?f32", found)) == products


def test_a_reciprocal_is_one_instruction() -> None:
    text = """
    def kernel(p):
        i = tl.arange(0, 32)
        tl.store(p + i, 1 / tl.sqrt_rn(tl.load(p + i)))
    """
    found = ptx_of(build(kernel_from(text), {"p": "*fp32"}), num_warps=1)
    assert found.count("rcp.approx.ftz.f32") == 1
    assert not re.search(r"mul\.(?:rn\.)?f32", found)


@pytest.mark.parametrize("element", [ir.FP8E4NV, ir.FP8E5])
def test_one_instruction_narrows_two_numbers_to_fp8(element: ir.DType) -> None:
    text = ptx_of(applied([lambda x: arith.Cast(x, element, "rtne")], 1, ir.FP32, size=1024))
    assert text.count("cvt.rn.satfinite") == 1024 // 128 // 2


def test_halves_of_a_word_widen_by_one_instruction_each() -> None:
    text = ptx_of(applied([lambda x: arith.Cast(x, ir.FP32, "rtne")], 1, ir.BF16, size=1024))
    assert len(re.findall(r"and\.b32 .*, -65536;", text)) == 4
    assert len(re.findall(r"shl\.b32 .*, 16;", text)) == 4
    assert not re.search(r"%rs\d", text)


@pytest.mark.parametrize(("make", "element", "name"), [
    (math.Exp2, ir.FP32, "ex2.approx.ftz.f32"),
    (math.Tanh, ir.BF16, "tanh.approx.f32"),
    (math.Rsqrt, ir.FP32, "rsqrt.approx.f32"),
    (math.Sqrt, ir.FP32, "sqrt.approx.f32"),
    (lambda x: math.Sqrt(x, ieee=True), ir.FP32, "sqrt.rn.f32"),
    (lambda x: arith.Div(x, x, ieee=False), ir.FP32, "rcp.approx.ftz.f32"),
    (lambda x: arith.Div(x, x, ieee=True), ir.FP32, "div.rn.f32"),
    (lambda x: arith.Fma(x, x, x), ir.FP16, "fma.rn.f16"),
    (lambda x: arith.Cast(x, ir.FP8E4NV, "rtne"), ir.FP32, "cvt.rn.satfinite.e4m3x2.f32"),
    (lambda x: arith.Cast(x, ir.FP32, "rtne"), ir.FP8E5, "cvt.rn.f16x2.e5m2x2"),
])  # fmt: skip
def test_a_single_instruction_exists_for(make: Make, element: ir.DType, name: str) -> None:
    assert name in instructions([make], 1, element)


@pytest.mark.parametrize(("make", "names"), [
    (math.Exp, ["mul.rm.f32", "ex2.approx.ftz.f32"]),
    (math.Log, ["lg2.approx.ftz.f32", "mul.rn.f32"]),
    (math.Log2, ["lg2.approx.ftz.f32"]),
    (math.Log10, ["lg2.approx.ftz.f32", "mul.rn.f32"]),
    (math.Sin, ["sin.approx.ftz.f32"]),
    (math.Cos, ["cos.approx.ftz.f32"]),
    (math.Tanh, ["tanh.approx.f32"]),
])  # fmt: skip
def test_fast_functions_are_one_instruction_and_a_product(make: Any, names: list[str]) -> None:
    assert instructions([lambda x: make(x, fast=True)], 1, ir.FP32) == names


def test_fp8_is_converted_in_software_without_an_instruction() -> None:
    found = instructions([lambda x: arith.Cast(x, ir.FP8E4NV, "rtne")], 1, ir.FP32, arch=80)
    assert not any("e4m3" in name for name in found)


def test_a_narrow_store_of_the_bits_of_a_float_converts_nothing() -> None:
    """ptxas 13.0 takes the store of a wider register that holds a float for a conversion."""
    if find_disassembler() is None:
        pytest.skip("needs nvdisasm")
    for element, wide, to in ((ir.FP32, ir.I32, ir.I8), (ir.FP64, ir.I64, ir.I32)):

        def build(b: Builder, x: Value, wide: ir.DType = wide, to: ir.DType = to) -> list[Value]:
            bits = b.value(arith.Bitcast(b.value(arith.Add(x, x)), wide))
            return [b.value(arith.Cast(bits, to, "rtne"))]

        cubin = lower(tile_kernel(build, [tile(element, 128)])).stages["cubin"]
        assert isinstance(cubin, bytes)
        assert "F2I" not in sass(cubin)


def test_a_wide_shift_count_is_truncated_after_clamping() -> None:
    """LLVM 22 cuts it first, so that 2**32 would shift by 0."""
    for element in (ir.I64, ir.U64):
        found = instructions([arith.Shl, arith.Shr], 2, element)
        assert "min.u64" in found


def test_accesses_are_as_wide_as_they_can_be() -> None:
    for element, width in ((ir.FP32, "v4.b32"), (ir.FP16, "v4.b32"), (ir.FP64, "v2.b64")):
        text = ptx_of(applied([arith.Add], 2, element, size=2048))
        assert len(re.findall(rf"ld\.global\.{width}", text)) >= 2
        assert f"st.global.{width}" in text
        assert not re.search(r"(ld|st)\.global\.b", text)


@pytest.mark.parametrize(
    ("bits", "float_"), [("int16", "float16"), ("uint16", "float16"), ("int32", "float32")]
)
@pytest.mark.parametrize("value", ["flag", "(n > 3)", "tl.where(n > 3, 1, 0)", "(n & 1)"])
def test_bits_that_become_a_float_are_opaque_to_the_assembler(
    value: str, bits: str, float_: str
) -> None:
    """It would convert the integer, where the fp16 (or fp32) with these bits is meant."""
    wide = {"float16": "float32", "float32": "float64"}[float_]
    text = f"""
    def kernel(p, n, flag):
        bits = {value}.to(tl.{bits})
        tl.store(p, bits.to(tl.{float_}, bitcast=True).to(tl.{wide}))
    """
    types = {"p": {"float32": "*fp32", "float64": "*fp64"}[wide], "n": "i32", "flag": "i1"}
    found = ptx_of(build(kernel_from(text), types))
    top = {"float16": 1 << 15, "float32": 1 << 31}[float_]
    assert f", {top + 1}, 0, " in found


CHOICES = (
    "tl.where({} > 2, 2, 1).to(tl.{})",
    "tl.where({} > 2, 2.0, 0.5).to(tl.float64).to(tl.{})",
)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("to", ["float16", "bfloat16", "float32"])
def test_no_choice_of_doubles_is_converted(to: str, choice: str) -> None:
    """ptxas (12.8, 13.0) drops some of several `cvt.f32.f64`, each of a `selp.f64` of two constants
    whose lower halves are equal, and uses the result of another one: an H200 got wrong signs."""
    text = f"""
    def kernel(x_ptr, out):
        i = tl.arange(0, 4096)
        tl.store(out + i, {choice.format("tl.load(x_ptr + i)", to)})
    """
    short = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}[to]
    found = ptx_of(build(kernel_from(text), {"x_ptr": "*fp32", "out": f"*{short}"}))
    for chosen in re.findall(r"selp\.f64\s+(%rd\d+)", found):
        assert not re.search(rf"cvt\.\S+\.f64\s+\S+, {chosen};", found)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("arch", [90, 100, 120])
def test_two_floats_in_one_instruction(arch: int, fused: bool) -> None:
    """Of 128 threads each has four elements: two instructions, contracted if that is allowed."""

    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        return [b.value(arith.Sub(b.value(arith.Mul(x, y)), x))]

    module = tile_kernel(build, [tile(ir.FP32, 512)] * 2)
    text = ptx_of(module, arch, enable_fp_fusion=fused)
    found = re.findall(r"\b(fma|mul|add|sub)(?:\.rn)?\.(f32x2|f32)\b", text)
    names = ["fma"] if fused else ["mul", "sub"]
    if arch == 90:
        assert {kind for _, kind in found} == {"f32"}
    else:
        assert sorted(found) == sorted((name, "f32x2") for name in names for _ in range(2))
        assert fused or "mul.rn.f32x2" in text


@pytest.mark.parametrize("operator", ["//", "%"])
def test_elements_are_divided_by_one_safe_divisor(operator: str) -> None:
    """So that what is computed of the divisor is computed once, not for each element."""
    kernel = kernel_from(f"""
        def k(p, d):
            i = tl.arange(0, 512)
            tl.store(p + i, tl.load(p + i) {operator} d)
    """)
    ptx = ptx_of(build(kernel, {"p": "*i64", "d": "i64"}))
    divisions = re.findall(r"(?:div|rem)\.s64\s+%rd\d+, %rd\d+, (%rd\d+);", ptx)
    assert len(divisions) == 4
    assert len(set(divisions)) == 1


def test_both_halves_of_a_product_are_one_instruction() -> None:
    ptx = ptx_of(build(kernel_from("""
        def k(p):
            i = tl.arange(0, 128)
            tl.store(p + i, tl.randint(7, i))
    """), {"p": "*u32"}))  # fmt: skip
    assert ptx.count("mul.wide.u32") >= 16  # two a round, but for the first, whose operands are 0
    assert "mul.hi.u32" not in ptx


@pytest.mark.parametrize(("short", "bits"), [("fp32", 32), ("fp64", 64)])
def test_products_of_formulas_are_not_contracted(short: str, bits: int) -> None:
    """Formulas compute the rounding errors of products."""
    ptx = ptx_of(build(kernel_from("""
        def k(p):
            i = tl.arange(0, 128)
            tl.store(p + i, tl.extra.libdevice.pow(tl.load(p + i), 0.3))
    """), {"p": f"*{short}"}))  # fmt: skip
    assert f"mul.rn.f{bits}" in ptx
    assert f"mul.f{bits}" not in ptx


@pytest.mark.parametrize("element", [ir.FP16, ir.BF16], ids=str)
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_two_floats_of_a_word(element: ir.DType, op: str) -> None:
    """Of 128 threads each has four elements."""
    make = getattr(arith, op.capitalize())

    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        return [b.value(make(x, y))]

    text = ptx_of(tile_kernel(build, [tile(element, 512)] * 2))
    kind = "f16" if element == ir.FP16 else "bf16"
    assert len(re.findall(rf"\b{op}(?:\.rn)?\.{kind}x2\b", text)) == 2
    assert not re.search(rf"\b{op}(?:\.rn)?\.{kind}\b", text)


@pytest.mark.parametrize("element", [ir.I16, ir.U16], ids=str)
def test_two_integers_of_a_word(element: ir.DType) -> None:
    """Masks and shifts by constants; not the shift of a sign."""

    def build(b: Builder, x: Value) -> list[Value]:
        count = b.value(arith.Constant(3, x.type))
        mask = b.value(arith.Constant(0x155, x.type))
        moved = b.value(arith.Shl(b.value(arith.And(x, mask)), count))
        return [b.value(arith.Or(moved, x)), b.value(arith.Shr(moved, count))]

    text = ptx_of(tile_kernel(build, [tile(element, 512)]))
    assert len(re.findall(r"\bshl\.b32\b.*, 3;", text)) == 2
    assert not re.search(r"\b(and|or|shl)\.b16\b", text)
    assert bool(re.search(r"\bshr\.[us]16\b", text)) == (element == ir.I16)


@pytest.mark.parametrize("to", [ir.I8, ir.U8, ir.I16, ir.U16, ir.I32, ir.U32], ids=ids)
def test_floats_become_integers_by_an_instruction_that_saturates(to: ir.DType) -> None:
    found = instructions([lambda x: arith.Cast(x, to, "rtne")], 1, ir.FP32)
    kind = "s" if to.is_int_signed() else "u"
    assert [name for name in found if "rzi" in name] == [f"cvt.rzi.{kind}32.f32"]
    assert not [name for name in found if name.startswith(("setp", "selp"))]


CONVERTED_IN_BRANCHES = """
def kernel(x, y, out):
    i = tl.reshape(tl.arange(0, 256), (16, 16))
    number = tl.load(x + 407 + i)
    word = tl.load(y + 734 + i, mask=i < 91, other=3)
    if tl.load(y + 723) > 0:
        mixed = number.to(tl.int16) ^ word
    else:
        mixed = number.to(tl.int16) ^ word
    whole = number.to(tl.int16)
    chosen = tl.where(mixed != whole, mixed, whole)
    _, most = tl.associative_scan((tl.abs(whole), mixed - 3), 0, combine)
    tl.store(out + i, tl.where(word + word >= chosen, most, mixed))
"""


def test_no_sign_of_half_a_register_is_taken_for_that_of_the_whole() -> None:
    """ptxas would merge conversions to 16 bits of two branches, copy the half that they are, and
    shift the whole register for the sign of `abs`."""
    if find_disassembler() is None:
        pytest.skip("needs nvdisasm")
    text = "def combine(a, b, c, d): return a ^ c, tl.where(b > d, b, d)"
    kernel = kernel_from(CONVERTED_IN_BRANCHES, combine=jit(function_from(text)))
    module = build(kernel, {"x": "*fp16", "y": "*i16", "out": "*i16"})
    for at, argument in enumerate(module.entry.arg_attrs):
        argument.update(divisibility=16, alias=at)
    cubin = lower(module, num_warps=2).stages["cubin"]
    assert isinstance(cubin, bytes)
    code = sass(cubin)
    halves = set(re.findall(r"PRMT (R\d+), R\d+(?:\.reuse)?, 0x7610, \1\b", code))
    assert "F2I.TRUNC" in code  # not F2I.S16, of whose result it knows what the sign is
    assert not halves.intersection(re.findall(r"SHF\.R\.S32\.HI R\d+, RZ, 0xf, (R\d+)", code))


def test_elements_of_a_row_are_divided_once() -> None:
    """The width is a multiple of the elements that a thread has of a row; of quotients that follow,
    only that of a negative multiple differs."""
    kernel = kernel_from("""
        def k(p, width):
            i = tl.program_id(0) * 512 + tl.arange(0, 512)
            tl.store(p + i, i // width + i % width)
    """)
    module = build(kernel, {"p": "*i32", "width": "i32"})
    for argument in module.entry.arg_attrs:
        argument["divisibility"] = 16
    ptx = ptx_of(module)
    assert len(re.findall(r"div\.u32", ptx)) == len(re.findall(r"rem\.u32", ptx)) == 1


def test_users_of_a_common_factor_are_not_searched_for_each_product() -> None:
    """A Newton iteration multiplies all its values by the same one, and a time that grows with the
    square of its length would be spent on whether both halves of products are computed."""
    searched = 0

    class Counted(dict[Op, int]):
        def __iter__(self) -> Any:
            nonlocal searched
            searched += len(self)
            return super().__iter__()

    products: list[arith.Mul] = []

    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        for _ in range(50):
            products.append(b.insert(arith.Mul(x, y)))
            y = products[-1].result
        return [y]

    tile_kernel(build, [tile(ir.U32)] * 2)
    for value in {operand for op in products for operand in op.operands}:
        value.users = Counted(value.users)
    assert not any(map(lowering.has_upper_half, products))
    assert searched <= 2 * len(products)
