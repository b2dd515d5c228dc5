"""Which type an operation on two types has: every pair, and the table of the language reference."""

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import build, fails, kernel_from, result_type
from tilewright.ir.types import (
    BF16,
    FP8E4B15,
    FP8E4NV,
    FP8E5,
    FP16,
    FP32,
    FP64,
    I1,
    I8,
    I16,
    I32,
    I64,
    SCALARS,
    U8,
    U16,
    U32,
    U64,
    DType,
)
from tilewright.language.semantic.convert import computation_type, natural_type


def value_of(dtype: DType) -> Any:
    """A tile of ones of the type, as an argument."""
    return np.ones(4, dtype.numpy)


EXPRESSIONS: list[tuple[str, list[DType], DType]] = [
    ("a + 4.0", [I16], FP32),
    ("a + 1", [I1], I32),
    ("a + True", [I1], I1),
    ("a + b", [I1, I1], I1),
    ("a + b", [I1, I8], I8),
    ("a + 1e-5", [FP16], FP16),
    ("a / 2", [FP16], FP32),
    ("a % 2.0", [BF16], FP32),
    ("a + 5", [I8], I8),
    ("a - 5", [U8], U8),
    ("a + b", [I32, U32], U32),
    ("a + b", [I64, U32], I64),
    ("a + b", [I8, U16], U16),
    ("a + b", [BF16, FP16], FP16),
    ("a + b", [BF16, I32], FP32),
    ("a * b", [FP16, I64], FP16),
    ("a + b", [BF16, FP8E5], FP32),
    ("a + b", [FP8E4NV, FP8E5], FP16),
    ("a + b", [FP8E5, FP8E5], FP8E5),
    ("a + b", [FP8E4B15, FP8E4B15], FP8E4B15),
    ("a + b", [FP8E4B15, FP8E5], FP16),
    ("a % b", [FP8E4B15, FP8E4B15], FP8E4B15),
    ("a / b", [I64, I64], FP32),
    ("a / b", [FP8E5, FP8E5], FP8E5),
    ("2 / a", [FP8E4NV], FP8E4NV),
    ("a / 2", [FP64], FP64),
    ("a // b", [I8, I32], I32),
    ("a % b", [U8, U32], U32),
    ("a & b", [I16, I8], I16),
    ("a << 2", [U16], U16),
    ("a >> b", [I32, U32], U32),
    ("a < b", [I32, FP32], I1),
    ("2 * a", [U64], U64),
    ("1.5 - a", [BF16], BF16),
    ("a + 1e300", [FP32], FP32),
    ("1e300 * a", [I32], FP64),
    ("tl.minimum(a, b)", [BF16, BF16], FP32),
    ("tl.minimum(a, b)", [FP16, FP16], FP16),
    ("tl.maximum(a, 1)", [FP16], FP16),
    ("tl.maximum(a, 0.5)", [FP16], FP32),
    ("tl.maximum(1, a)", [I8], I32),
    ("tl.maximum(a, 1)", [FP8E5], FP8E5),
    ("tl.where(a > 0, a, 0)", [FP16], FP16),
    ("tl.where(a > 0, a, b)", [I8, U8], U8),
    ("tl.fma(a, b, 1.0)", [FP16, FP16], FP32),
    ("tl.fma(a, b, b)", [FP16, FP32], FP32),
    ("tl.clamp(a, 0.0, 1.0)", [BF16], FP32),
    ("tl.clamp(a, 0, 6)", [I8], I32),
    ("~a", [U8], U8),
    ("-a", [FP16], FP16),
    ("not a", [I1], I1),
]


@pytest.mark.parametrize(("expression", "types", "expected"), EXPRESSIONS)
def test_expression_has_the_type_of_the_table(
    expression: str, types: list[DType], expected: DType
) -> None:
    found = result_type(expression, *[value_of(t) for t in types])
    assert found.element is expected
    assert found.shape == (4,)


@pytest.mark.parametrize(("a", "b"), list(product(SCALARS, SCALARS)))
def test_promotion_is_symmetric(a: DType, b: DType) -> None:
    for div in (False, True):
        try:
            expected = computation_type(a, False, b, False, div)
        except TypeError:
            with pytest.raises(TypeError):
                computation_type(b, False, a, False, div)
            continue
        assert computation_type(b, False, a, False, div) is expected


@pytest.mark.parametrize("strong", SCALARS)
def test_number_has_the_type_of_the_tensor_unless_its_kind_is_higher(strong: DType) -> None:
    for number in (True, 3, 2.5):
        weak = natural_type(number)
        if strong.is_fp8() and weak.kind().value > strong.kind().value:
            continue
        found = computation_type(strong, False, weak, True)
        lower = weak.kind().value <= strong.kind().value
        assert found is (strong if lower else computation_type(strong, False, weak, False))


NATURAL: list[tuple[Any, DType]] = [
    (True, I1),
    (0, I32),
    (-(2**31), I32),
    (2**31 - 1, I32),
    (2**31, U32),
    (2**32 - 1, U32),
    (2**32, I64),
    (-(2**31) - 1, I64),
    (2**63 - 1, I64),
    (2**63, U64),
    (2**64 - 1, U64),
    (0.0, FP32),
    (-0.0, FP32),
    (float("inf"), FP32),
    (float("nan"), FP32),
    (2.0**-126, FP32),
    (2.0**-127, FP64),
    (3.4028234663852886e38, FP32),
    (3.5e38, FP64),
    (1.5, FP32),
]


@pytest.mark.parametrize(("number", "expected"), NATURAL)
def test_number_alone_has_its_natural_type(number: Any, expected: DType) -> None:
    assert natural_type(number) is expected
    assert result_type("tl.to_tensor(x)", x=tl.constexpr(number)) is expected


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
def test_integer_beyond_64_bits_has_no_type(number: int) -> None:
    with pytest.raises(ValueError, match="Nonrepresentable integer"):
        natural_type(number)


def test_assigned_number_is_not_weak() -> None:
    assert result_type("a + 5", np.ones(4, np.int8)).element is I8
    text = """
    def kernel(a):
        five = 5
        x = tl.load(a) + five
        tl.static_assert(x.dtype == tl.int32)
    """
    build(kernel_from(text), {"a": "*i8"})


REJECTED: list[tuple[str, list[DType], str]] = [
    ("a + 300", [I8], "Scalar 300 is out of range for type int8"),
    ("a - (-1)", [U32], "Cannot perform a binary operation between an unsigned tensor and a neg"),
    ("a // b", [I32, U32], "Cannot use /, #, or % with int32 and uint32 because they have differ"),
    ("a % b", [U8, I8], "because they have different signedness"),
    ("a // b", [FP32, FP32], "unexpected type fp32"),
    ("a & b", [FP32, I32], "invalid operands of type"),
    ("a << b", [I32, FP32], "invalid operands of type"),
    ("a + b", [FP8E5, I32], "unexpected type"),
    ("~a", [FP32], "wrong type argument to unary invert"),
    ("not a", [I32], "Cannot bitcast data-type of size 32 to data-type of size 1"),
    ("+a", [I32], "AST unary operator '__pos__' is not (currently) implemented on type tensor"),
    ("a ** 2", [I32], "unsupported operand type(s) for **: '<['4'], int32>' and 'int'"),
    ("a + 'x'", [I32], "unsupported operand type(s) for +: '<['4'], int32>' and 'str'"),
    ("a + None", [I32], "unsupported operand type(s) for +"),
    ("a @ a", [I32], "AST binary operator 'MatMult' is not (currently) implemented."),
    ("1 in a", [I32], "AST comparison operator 'In' is not (currently) implemented."),
]


@pytest.mark.parametrize(("expression", "types", "message"), REJECTED)
def test_unsupported_operation_is_rejected(
    expression: str, types: list[DType], message: str
) -> None:
    names = ["a", "b"][: len(types)]
    offsets = "tl.arange(0, 4)"
    loads = "\n".join(f"    {n} = tl.load({n} + {offsets})" for n in names)
    text = f"def kernel({', '.join(names)}):\n{loads}\n    {expression}\n"
    error = fails(text, *[value_of(t) for t in types])
    assert message in str(error)
    assert f"at {len(types) + 2}:4:" in str(error)


POINTERS = [
    ("p + 1.5", "invalid operands of type"),
    ("p + p", "cannot add pointers together"),
    ("p - p", "invalid operands of type"),
    ("p * 2", "invalid operands of type"),
    ("p < p", "invalid operands of type"),
    ("-p", "wrong type argument to unary minus"),
    ("1 - p", "invalid operands of type"),
]


@pytest.mark.parametrize(("expression", "message"), POINTERS)
def test_unsupported_pointer_arithmetic(expression: str, message: str) -> None:
    error = fails(f"def kernel(p):\n    {expression}\n", np.ones(1, np.float32))
    assert message in str(error)


def test_bf16_in_numpy_is_bf16() -> None:
    assert np.dtype(ml_dtypes.bfloat16) == BF16.numpy
    assert result_type("a", np.ones(1, ml_dtypes.bfloat16)).element is BF16


def test_unsigned_counts_of_all_widths() -> None:
    for narrow, wide in ((U8, U16), (U16, U32), (U32, U64)):
        assert computation_type(narrow, False, wide, False) is wide
