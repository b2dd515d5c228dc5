"""Operators and casts, against NumPy, on values at the edges of each type."""

import warnings
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import build, evaluate, fails, kernel_from, result_type
from tests.ir_values import floats_in, numbers
from tilewright.ir.types import FP8E4B15, FP32, I1, I32, I64, SCALARS, Pointer

I8 = np.array([-128, -7, -1, 0, 1, 3, 7, 127], np.int8)
J8 = np.array([1, 2, -3, 5, -1, 7, -128, 127], np.int8)
F32 = np.array([-0.0, 0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 7.0], np.float32)
G32 = np.array([0.0, -0.0, -2.5, 2.0, 1.0, np.nan, np.nan, -7.0], np.float32)


def same(found: Any, expected: Any) -> None:
    """Equal bit for bit, with any NaN equal to any other."""
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    if expected.dtype.kind == "f":
        ordered = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[ordered], np.signbit(expected)[ordered])


def truncated(a: Any, b: Any) -> Any:
    return np.array([int(x / y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])


def test_integer_division_truncates_toward_zero() -> None:
    a, b = np.array([-7, 7, -7, 7], np.int32), np.array([2, 2, -2, -2], np.int32)
    same(evaluate("a // b", a, b), truncated(a, b).astype(np.int32))
    same(evaluate("a % b", a, b), (a - truncated(a, b) * b).astype(np.int32))


def test_integers_wrap() -> None:
    with np.errstate(over="ignore"):
        same(evaluate("a + b", I8, J8), I8 + J8)
        same(evaluate("a * b", I8, J8), I8 * J8)
        same(evaluate("a - b", I8, J8), I8 - J8)
        same(evaluate("-a", I8), -I8)


def test_division_of_integers_is_done_in_fp32() -> None:
    a = np.array([1, 2, 2**40, -5], np.int64)
    b = np.array([3, 2, 3, 2], np.int64)
    same(evaluate("a / b", a, b), a.astype(np.float32) / b.astype(np.float32))


def test_remainder_of_floats_has_the_sign_of_the_dividend() -> None:
    a, b = np.array([5.5, -5.5], np.float32), np.array([2.0, 2.0], np.float32)
    same(evaluate("a % b", a, b), np.fmod(a, b))


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
def test_comparison_with_nan_is_false_unless_unequal(sign: str) -> None:
    expected = eval(f"a {sign} b", {"a": F32, "b": G32})
    same(evaluate(f"(a {sign} b).to(tl.int8)", F32, G32), expected.astype(np.int8))


def test_comparison_follows_the_promoted_signedness() -> None:
    a, b = np.array([-1, 1], np.int32), np.array([1, 1], np.uint32)
    same(evaluate("(a < b).to(tl.int8)", a, b), np.array([0, 0], np.int8))


def test_right_shift_follows_the_type_of_the_left_operand() -> None:
    a, n = np.array([-8, 8], np.int32), np.array([1, 1], np.uint32)
    same(evaluate("a >> 1", a), np.array([-4, 4], np.int32))
    same(evaluate("a >> b", a, n), np.array([-4, 4], np.int32).view(np.uint32))
    same(evaluate("a >> 1", a.view(np.uint32)), a.view(np.uint32) >> 1)


def test_constant_shift_by_the_width_warns() -> None:
    with pytest.warns(UserWarning, match="exceeds the maximum bitwidth"):
        result_type("a << 32", np.ones(4, np.int32))


def test_negation_flips_the_sign_of_zero_and_nan() -> None:
    found = evaluate("-a", F32)
    np.testing.assert_array_equal(np.signbit(found), ~np.signbit(F32))


def test_bit_operators_of_bools_are_logical() -> None:
    a, b = np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)
    same(evaluate("a & b", a, b), a & b)
    same(evaluate("a | b", a, b), a | b)
    same(evaluate("a ^ b", a, b), a ^ b)
    same(evaluate("~a", a), ~a)
    same(evaluate("not a", a), ~a)
    same(evaluate("a.logical_and(b)", a, b), a & b)
    same(evaluate("a.logical_or(b)", a, b), a | b)


def test_minimum_and_maximum_prefer_numbers_to_nan_by_default() -> None:
    a, b = np.array([1, np.nan], np.float32), np.array([np.nan, 2], np.float32)
    same(evaluate("tl.minimum(a, b)", a, b), np.array([1, 2], np.float32))
    same(evaluate("tl.maximum(a, b)", a, b), np.array([1, 2], np.float32))
    everywhere = np.full(2, np.nan, np.float32)
    same(evaluate("tl.maximum(a, b, tl.PropagateNan.ALL)", a, b), everywhere)
    same(evaluate("tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)", a, b), everywhere)


def test_clamp_gives_the_lower_bound_for_nan_unless_it_propagates() -> None:
    a = np.array([-1, 0.5, 2, np.nan], np.float32)
    same(evaluate("tl.clamp(a, 0.0, 1.0)", a), np.array([0, 0.5, 1, 0], np.float32))
    found = evaluate("tl.clamp(a, 0.0, 1.0, tl.PropagateNan.ALL)", a)
    same(found, np.array([0, 0.5, 1, np.nan], np.float32))
    same(evaluate("tl.clamp(a, -2, 2)", I8), np.clip(I8, -2, 2).astype(np.int32))


def test_where_broadcasts_and_warns_of_a_condition_that_is_not_bool() -> None:
    a = np.arange(4, dtype=np.float32)
    same(evaluate("tl.where(a > 1, a, -1.0)", a), np.where(a > 1, a, np.float32(-1)))
    with pytest.warns(UserWarning, match="non-boolean condition"):
        same(
            evaluate("tl.where(b, a, 0.0)", a, np.array([0, 1, 0, 2], np.uint32)),
            np.array([0, 1, 0, 3], np.float32),
        )


def test_abs_fma_umulhi_cdiv() -> None:
    with np.errstate(over="ignore"):
        same(evaluate("tl.abs(a)", I8), np.abs(I8))
    same(evaluate("tl.abs(a)", F32), np.abs(F32))
    a = np.array([2**31, 2**32 - 1], np.uint32)
    same(evaluate("tl.umulhi(a, a)", a), ((a.astype(object) ** 2) >> 32).astype(np.uint32))
    same(evaluate("tl.fma(a, 2.0, 1.0)", np.ones(2, np.float32)), np.full(2, 3, np.float32))
    half = np.ones(2, np.float16)  # of which a literal takes the type in `a * 1.5`
    same(evaluate("tl.fma(a, a, 1.5)", half), np.full(2, 2.5, np.float32))
    same(evaluate("tl.fma(a, 2, 1)", half), np.full(2, 3, np.float16))
    same(evaluate("tl.cdiv(a, 4)", np.array([0, 1, 4, 5], np.int32)), np.array([0, 1, 1, 2], "i4"))
    same(evaluate("tl.cdiv(a, b)", *[np.array([9, 8], np.int32)] * 2), np.array([1, 1], np.int32))


def test_elementary_functions_take_fp32_and_fp64_only() -> None:
    error = fails("def kernel(a):\n    tl.exp(tl.load(a))\n", np.ones(1, np.float16))
    assert str(error.__cause__) == "Expected dtype ['fp32', 'fp64'] but got fp16"
    assert result_type("tl.exp(1)") is FP32
    same(evaluate("tl.sqrt(a)", np.array([4.0, 2.0])), np.sqrt(np.array([4.0, 2.0])))
    same(evaluate("a.floor()", np.array([-1.5, 1.5])), np.array([-2.0, 1.0]))


def test_division_functions() -> None:
    a, b = np.array([1, 2], np.float32), np.array([3, 7], np.float32)
    same(evaluate("tl.div_rn(a, b)", a, b), a / b)
    same(evaluate("tl.fdiv(a, b, ieee_rounding=True)", a, b), a / b)
    error = fails("def k(a):\n    tl.fdiv(tl.load(a), 2)\n", np.ones(1, np.int32))
    assert str(error.__cause__) == "fdiv requires floating-point operands after type promotion"
    text = "def k(a):\n    tl.fdiv(tl.load(a), 2.0, True, True)\n"
    error = fails(text, np.ones(1, np.float32))
    assert str(error.__cause__) == "approx and ieee_rounding cannot both be True"


def test_sigmoid_equals_its_definition() -> None:
    a = np.array([-1, 0, 2, 30], np.float32)
    np.testing.assert_allclose(evaluate("tl.sigmoid(a)", a), 1 / (1 + np.exp(-a)), rtol=1e-6)


def test_libdevice() -> None:
    names = {"libdevice": tl.extra.libdevice}
    a = np.array([-1.5, -0.0, 2.5, np.nan, np.inf, -np.inf, 3e9, -0.5], np.float32)
    same(evaluate("libdevice.trunc(a)", a, **names), np.trunc(a))
    same(evaluate("libdevice.isnan(a)", a, **names), np.isnan(a))
    same(evaluate("libdevice.isinf(a)", a, **names), np.isinf(a))
    same(evaluate("libdevice.finitef(a)", a, **names), np.isfinite(a))
    same(evaluate("libdevice.signbit(a)", a, **names), np.signbit(a).astype(np.int32))
    same(evaluate("libdevice.copysign(b, a)", a, np.full(8, 3, "f4"), **names), np.copysign(3, a))
    same(evaluate("libdevice.float_as_int(a)", a, **names), a.view(np.int32))
    found = evaluate("libdevice.tanh(a)", a[:2], **names)
    np.testing.assert_allclose(found, np.tanh(a[:2]), rtol=1e-6)
    error = fails("def k(a):\n    tl.extra.libdevice.no_such(tl.load(a))\n", np.ones(1, "f4"))
    assert "has no attribute 'no_such'" in str(error)


# -- casts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", SCALARS, ids=str)
@pytest.mark.parametrize("source", SCALARS, ids=str)
def test_cast_preserves_small_values(source: Any, to: Any) -> None:
    # 2 is more than fp8e4b15 holds
    value = floats_in(np.array([0, 1, 1.5 if FP8E4B15 in (source, to) else 2, 1]), source)
    small = numbers(value).astype(np.float32)
    if source.is_fp8() != to.is_fp8() and not (source.is_floating() and to.is_floating()):
        with pytest.raises(Exception, match="no direct conversion"):
            evaluate("a.to(T)", value, T=to)
        return
    expected = small != 0 if to is I1 else floats_in(small, to)
    found = evaluate("a.to(T)", value, T=to)
    same(numbers(found).astype(np.float32), numbers(expected).astype(np.float32))


def test_cast_extends_by_the_sign_of_the_source() -> None:
    a = np.array([-1, 1], np.int8)
    same(evaluate("a.to(tl.uint32)", a), np.array([2**32 - 1, 1], np.uint32))
    same(evaluate("a.to(tl.int32)", a.view(np.uint8)), np.array([255, 1], np.int32))
    same(evaluate("a.to(tl.int32)", np.array([True, False])), np.array([1, 0], np.int32))


def test_cast_to_bool_compares_with_zero() -> None:
    a = np.array([0.0, -0.0, np.nan, 0.5], np.float32)
    same(evaluate("a.to(tl.int1)", a), np.array([False, False, True, True]))


def test_cast_truncates_floats_and_rounds_to_narrower_ones() -> None:
    a = np.array([-1.9, 1.9, 1.0 + 2**-11, 1.0 + 3 * 2**-11], np.float32)
    same(evaluate("a.to(tl.int32)", a), np.array([-1, 1, 1, 1], np.int32))
    same(evaluate("a.to(tl.float16)", a), a.astype(np.float16))
    toward_zero = np.array([-1.9, 1.9], np.float32).astype(np.float64)
    found = evaluate("a.to(tl.float16, fp_downcast_rounding='rtz')", a[:2]).astype(np.float64)
    assert (np.abs(found) <= np.abs(toward_zero)).all()
    assert (np.abs(found - toward_zero) < 2**-10).all()


def test_bitcast_reinterprets() -> None:
    a = np.array([1.0, -2.0], np.float32)
    same(evaluate("a.to(tl.int32, bitcast=True)", a), a.view(np.int32))
    same(evaluate("tl.cast(a, tl.uint32, bitcast=True)", a), a.view(np.uint32))


CASTS = [
    ("tl.load(a).to(tl.int16, bitcast=True)", np.float32,
     "Cannot bitcast data-type of size 32 to data-type of size 16"),
    ("tl.load(a).to(tl.float64, 'rtz')", np.float32,
     "fp_downcast_rounding should be set only for truncating fp conversions. Source scalar type is "
     "fp32 and destination type is fp64"),
    ("tl.load(a).to(tl.float16, 'up')", np.float32, "Invalid rounding mode: 'up'"),
    ("a.to(tl.int32)", np.float32, "cannot cast pointer<fp32> to int32"),
    ("a.to(tl.float64)", np.float32, "cannot cast pointer<fp32> to fp64"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "dtype", "message"), CASTS)
def test_unsupported_cast(expression: str, dtype: Any, message: str) -> None:
    error = fails(f"def k(a):\n    {expression}\n", np.ones(1, dtype))
    assert str(error.__cause__).startswith(message)
    assert str(error).startswith("at 2:4:")


def test_pointers_and_integers() -> None:
    text = """
    def kernel(p, n):
        address = p.to(tl.int64)
        tl.static_assert(address.dtype == tl.int64)
        back = address.to(tl.pointer_type(tl.int8))
        tl.static_assert(back.dtype == tl.pointer_type(tl.int8))
        tl.static_assert((p + n).dtype == p.dtype)
        tl.static_assert(p.to(tl.int1).dtype == tl.int1)
    """
    build(kernel_from(text), {"p": "*fp32", "n": "u8"})


def test_pointer_moves_by_elements() -> None:
    text = """
    def kernel(p, out, n):
        tl.store(out, tl.load(p + n))
        tl.store(out + 1, tl.load(n + p))
        tl.store(out + 2, tl.load(p + 4 - n))
    """
    module = build(kernel_from(text), {"p": "*fp64", "out": "*fp64", "n": "u8"})
    offsets = [op.operands[1].type for op in module.walk() if op.name == "mem.addptr"]
    assert I64 in offsets, "an unsigned offset is widened before it is used"
    assert I32 in offsets
    assert result_type("tl.to_tensor(1)") is I32


def test_constants_are_rounded_to_their_type() -> None:
    a = np.ones(2, np.float16)
    same(evaluate("a + 0.1", a), a + np.float16(0.1))
    same(evaluate("tl.full((2,), 300, tl.int8)"), np.full(2, 44, np.int8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(evaluate("a * 1e30", a), np.full(2, np.inf, np.float16))


def test_constant_pointer_type_is_a_type() -> None:
    made: Any = tl.pointer_type(tl.float32, const=True)
    assert made == Pointer(FP32, True)
    assert str(made) == "const_pointer<fp32>"
    assert isinstance(made, tl.pointer_type)
