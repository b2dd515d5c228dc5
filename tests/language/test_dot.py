"""Matrix products: result types, precision, and what is rejected."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.frontend.kernels import build, evaluate, kernel_from
from tests.frontend.kernels import result_type as type_of
from tests.ir_values import floats_in, numbers
from tilewright.base.diagnostics import CompilationError
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.types import FP8E4B15, FP16, FP32, FP64, I32, DType, element_of
from tilewright.ops.dot import Dot

A = np.arange(8, dtype=np.float32).reshape(2, 4)
B = np.arange(16, dtype=np.float32).reshape(4, 4)


def test_product() -> None:
    np.testing.assert_array_equal(evaluate("tl.dot(a, b)", A, B), A @ B)
    np.testing.assert_array_equal(
        evaluate("tl.dot(a, b, tl.full((2, 4), 1.0, tl.float32))", A, B), A @ B + 1
    )
    np.testing.assert_array_equal(evaluate("1 + tl.dot(a, b)", A, B), A @ B + 1)


@pytest.mark.parametrize("rank", [3, 4])
def test_batch(rank: int) -> None:
    a = np.stack([A, A + 1]).reshape(*[1] * (rank - 3), 2, 2, 4)
    b = np.stack([B, B + 2]).reshape(*[1] * (rank - 3), 2, 4, 4)
    np.testing.assert_array_equal(evaluate("tl.dot(a, b)", a, b), a @ b)


TYPES: list[tuple[Any, str, DType]] = [
    (np.int8, "tl.dot(a, a)", I32),
    (np.int8, "tl.dot(a, a, out_dtype=tl.float32)", I32),
    (ml_dtypes.bfloat16, "tl.dot(a, a)", FP32),
    (np.float16, "tl.dot(a, a)", FP32),
    (np.float16, "tl.dot(a, a, out_dtype=tl.float16)", FP16),
    (np.float16, "tl.dot(a, a, tl.zeros((4, 4), tl.float16))", FP16),
    (np.float32, "tl.dot(a, a)", FP32),
    (np.float64, "tl.dot(a, a)", FP64),
    (ml_dtypes.float8_e5m2, "tl.dot(a, a, out_dtype=tl.float16)", FP16),
    (ml_dtypes.float8_e5m2, "tl.dot(a, a.to(tl.float8e4nv))", FP32),
]


@pytest.mark.parametrize(("dtype", "expression", "expected"), TYPES)
def test_product_has_the_type_of_the_table(dtype: Any, expression: str, expected: DType) -> None:
    assert type_of(expression, np.ones((4, 4), dtype)).element is expected


def dot_of(options: FrontendOptions | None, arguments: str = "", dtype: str = "fp32") -> Dot:
    text = f"""
    def kernel(p):
        i = tl.arange(0, 64)
        x = tl.load(p + i[:, None] + i[None, :])
        tl.dot(x, x{arguments})
    """
    module = build(kernel_from(text), {"p": f"*{dtype}"}, {}, options)
    return next(op for op in module.walk() if isinstance(op, Dot))


TF32 = FrontendOptions(default_dot_input_precision="tf32")


def test_precision_is_the_requested_or_the_default() -> None:
    assert dot_of(None).precision == "ieee"
    assert dot_of(TF32).precision == "tf32"
    assert dot_of(TF32, ", input_precision='ieee'").precision == "ieee"
    assert dot_of(TF32, ", input_precision='tf32x3'").precision == "tf32x3"
    assert dot_of(TF32, ", allow_tf32=False").precision == "ieee"
    assert dot_of(None, ", allow_tf32=True").precision == "tf32"
    assert dot_of(TF32, dtype="fp16").precision == "ieee"


def test_environment_sets_the_default_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32x3")
    assert dot_of(None).precision == "tf32x3"


def error_of(arguments: str, dtype: str = "fp32", options: Any = None) -> CompilationError:
    with pytest.raises(CompilationError) as info:
        dot_of(options, arguments, dtype)
    assert str(info.value).startswith("at 4:4:")
    return info.value


REJECTED: list[tuple[str, str, str]] = [
    (", input_precision='exact'", "fp32", "input_precision must be one of ('tf32', 'tf32x3', 'ieee'"
                                          ", 'bf16x3', 'bf16x6'). Got exact"),
    (", input_precision='ieee', allow_tf32=True", "fp32",
     "Only one of input_precision and allow_tf32 can be specified"),
    (", out_dtype=tl.bfloat16", "bf16", "out_dtype=bfloat16 is unsupported."),
    ("", "u8", "only int8 supported!"),
    ("", "i32", "Unsupported lhs dtype int32"),
    (".to(tl.float16)", "fp32", "Both operands must be same dtype. Got fp32 and fp16"),
    (", tl.zeros((64, 32), tl.float32)", "fp32", "accumulator shape is incompatible"),
    (", tl.zeros((64, 64), tl.float64)", "fp32", "expected accumulator dtype fp32, got fp64"),
    (", max_num_imprecise_acc=128", "fp8e5", "max_num_imprecise_acc (128) must be <= K (64)"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "dtype", "message"), REJECTED)
def test_product_rejects(arguments: str, dtype: str, message: str) -> None:
    assert str(error_of(arguments, dtype).__cause__).startswith(message)


SHAPES = [
    ("a, 1.0", "dot operands must be block tensors (not scalars)"),
    ("a, a", "input and other must have equal reduction dimensions"),
    ("a, b[None]", "input and other must have equal ranks >= 2"),
    ("tl.join(a, a).permute(2, 0, 1), b[None]", "input and other must have equal batch shapes"),
]


@pytest.mark.parametrize(("arguments", "message"), SHAPES)
def test_shapes_that_do_not_fit(arguments: str, message: str) -> None:
    with pytest.raises(CompilationError) as info:
        type_of(f"tl.dot({arguments})", A, B)
    assert str(info.value.__cause__).startswith(message)


def by_bits(lhs: DType, rhs: DType) -> tuple[int, int, int]:
    return 1, 1, 256 // lhs.primitive_bitwidth


@pytest.mark.parametrize(("dtype", "k"), [("i8", 32), ("fp16", 16)])
def test_minimum_size(dtype: str, k: int) -> None:
    text = """
    def kernel(p):
        i = tl.arange(0, 8)
        x = tl.load(p + i[:, None] + i[None, :])
        tl.dot(x, x)
    """
    minimum: Callable[[DType, DType], tuple[int, int, int]] = by_bits
    options = FrontendOptions(min_dot_size=minimum)
    with pytest.raises(CompilationError) as info:
        build(kernel_from(text), {"p": f"*{dtype}"}, {}, options)
    expected = f"Input shapes should have M >= 1, N >= 1 and K >= {k}"
    assert str(info.value.__cause__) == expected
    build(kernel_from(text), {"p": "*fp32"}, {}, options)


def test_fp8_types_that_the_target_lacks() -> None:
    options = FrontendOptions(supported_fp8_dtypes=("fp8e5",))
    text = "def k():\n    tl.full((4,), 1.0, tl.float8e4nv)\n"
    with pytest.raises(CompilationError) as info:
        build(kernel_from(text), options=options)
    assert str(info.value.__cause__) == (
        "type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e5',)"
    )
    with pytest.raises(CompilationError, match="not supported in this architecture"):
        build(kernel_from("def k(p):\n    pass\n"), {"p": "*fp8e4nv"}, {}, options)


def test_fp8e4b15_is_multiplied_in_fp16() -> None:
    a = floats_in([[1.0, 1.5], [-0.25, 0.0]], FP8E4B15)
    b = np.array([[1.0, 2.0], [3.0, 448.0]], ml_dtypes.float8_e4m3fn)
    for other in ("b", "b.to(tl.float8e5)"):
        wide = b if other == "b" else b.astype(ml_dtypes.float8_e5m2)
        expected = numbers(a).astype(np.float32) @ wide.astype(np.float32)
        found = evaluate(
            f"tl.dot(a.to(tl.float8e4b15, bitcast=True), {other})", a.view(np.uint8), b
        )
        np.testing.assert_array_equal(found, expected)
    assert element_of(dot_of(None, dtype="fp8e4b15").lhs.type) is FP16


def test_deprecated_fp8_operands_are_upcast_with_a_warning() -> None:
    options = FrontendOptions(deprecated_fp8_dot_operand_dtypes=("fp8e5b16",))
    with pytest.warns(UserWarning, match="deprecated as an operand of dot"):
        op = dot_of(options, dtype="fp8e5b16")
    assert element_of(op.lhs.type) is FP16
