"""Reductions, scans and functions based on them, against NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.frontend.kernels import build, evaluate, fails, function_from, kernel_from, launch
from tests.frontend.kernels import result_type as type_of
from tests.language.all_targets import run_everywhere
from tilewright.base.diagnostics import CompileTimeAssertionFailure
from tilewright.ir.types import BF16, FP16, FP32, I8, I32, U8, U32, DType

A = np.array([[3, 1, 4, 1], [5, 9, 2, 6]], np.int32)
F = A.astype(np.float32)

NAMED: list[tuple[str, Any, Any]] = [
    ("tl.sum(a)", A, A.sum(dtype=np.int32)),
    ("tl.sum(a, 0)", A, A.sum(0, dtype=np.int32)),
    ("tl.sum(a, axis=-1)", A, A.sum(1, dtype=np.int32)),
    ("a.sum(1, keep_dims=True)", A, A.sum(1, keepdims=True, dtype=np.int32)),
    ("tl.sum(a, keep_dims=True)", A, A.sum(keepdims=True, dtype=np.int32)),
    ("tl.sum(a, 1, dtype=tl.int64)", A, A.sum(1)),
    ("tl.sum(a)", A > 2, np.uint32(5)),
    ("tl.max(a)", A, A.max()),
    ("tl.max(a, 1)", F, F.max(1)),
    ("a.min(0, keep_dims=True)", A, A.min(0, keepdims=True)),
    ("tl.max(a, 1, return_indices=True)[0]", A, A.max(1)),
    ("tl.max(a, 1, return_indices=True)[1]", A, A.argmax(1).astype(np.int32)),
    ("tl.argmin(a, 1)", A, A.argmin(1).astype(np.int32)),
    ("tl.argmax(a, 0)", A, A.argmax(0).astype(np.int32)),
    ("tl.argmax(a, 1, keep_dims=True)", A, A.argmax(1, keepdims=True).astype(np.int32)),
    ("tl.argmin(a, -1, tie_break_left=True)", A * 0, np.zeros(2, np.int32)),
    ("tl.xor_sum(a)", A, np.bitwise_xor.reduce(A.ravel())),
    ("tl.xor_sum(a, 1)", A, np.bitwise_xor.reduce(A, 1)),
    ("tl.reduce_or(a, 0)", A, np.bitwise_or.reduce(A, 0)),
    ("tl.cumsum(a, 1)", A, A.cumsum(1, dtype=np.int32)),
    ("tl.cumsum(a)", A, A.cumsum(0, dtype=np.int32)),
    ("a.cumsum(1, reverse=True)", A, A[:, ::-1].cumsum(1, dtype=np.int32)[:, ::-1]),
    ("tl.cumprod(a, 1)", A, A.cumprod(1, dtype=np.int32)),
]


@pytest.mark.parametrize(("expression", "input", "expected"), NAMED)
def test_named_reduction_equals_numpy(expression: str, input: Any, expected: Any) -> None:
    found = evaluate(expression, input)
    assert found.dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(found, expected)


TYPES = [
    ("tl.sum(a)", np.int8, I32),
    ("tl.sum(a)", np.uint8, U32),
    ("tl.sum(a)", np.bool_, U32),
    ("tl.sum(a)", np.float16, FP16),
    ("tl.sum(a)", ml_dtypes.bfloat16, BF16),
    ("tl.sum(a, dtype=tl.float32)", np.float16, FP32),
    ("tl.cumsum(a)", np.int8, I32),
    ("tl.max(a)", np.int8, I32),
    ("tl.max(a)", np.uint16, I32),
    ("tl.max(a)", np.float16, FP32),
    ("tl.max(a, 0, True)[0]", np.int8, I8),
    ("tl.max(a, 0, True)[1]", np.int8, I32),
    ("tl.xor_sum(a)", np.uint8, U8),
]


@pytest.mark.parametrize(("expression", "dtype", "expected"), TYPES)
def test_reduction_has_the_type_of_the_table(expression: str, dtype: Any, expected: DType) -> None:
    found = type_of(expression, np.ones(4, dtype))
    assert getattr(found, "element", found) is expected


def test_maximum_ignores_nan() -> None:
    a = np.array([np.nan, 1, 5, np.nan], np.float32)
    assert evaluate("tl.max(a)", a) == 5
    assert np.isnan(evaluate("tl.max(a)", np.full(2, np.nan, np.float32)))


@pytest.mark.parametrize(("axis", "numpy_axis"), [("", 0), ("0", 0), ("1", 1), ("-1", 1)])
def test_softmax(axis: str, numpy_axis: int) -> None:
    powers = np.exp(F - F.max(numpy_axis, keepdims=True))
    expected = powers / powers.sum(numpy_axis, keepdims=True)
    found = evaluate(f"tl.softmax(a, {axis})" if axis else "a.softmax()", F)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


COMBINE = function_from("@jit\ndef larger(a, b):\n    return tl.maximum(a, b)\n")
WELFORD = function_from("""
    @jit
    def welford(mean1, m2_1, weight1, mean2, m2_2, weight2):
        delta = mean2 - mean1
        weight = weight1 + weight2
        share = weight2 / weight
        return mean1 + delta * share, m2_1 + m2_2 + delta * delta * weight1 * share, weight
""")
BRANCHES = function_from("""
    @jit
    def first_positive(a, b):
        if a > 0:
            return a
        return b
""")


def test_reduction_with_a_function() -> None:
    assert evaluate("tl.reduce(a, 1, larger)", A, larger=COMBINE).tolist() == [4, 9]
    assert evaluate("a.reduce(None, larger)", A, larger=COMBINE) == 9
    assert evaluate("tl.reduce(a, 1, larger, keep_dims=True)", A, larger=COMBINE).shape == (2, 1)


def test_reduction_of_several_tiles() -> None:
    text = """
    def kernel(x, out):
        v = tl.load(x + tl.arange(0, 8))
        zero = tl.zeros_like(v)
        mean, m2, weight = tl.reduce((v, zero, zero + 1), 0, welford)
        tl.store(out, mean)
        tl.store(out + 1, m2 / weight)
    """
    x, out = np.array([1, 5, 2, 2, 9, 0, 3, 7], np.float32), np.zeros(2, np.float32)
    launch(kernel_from(text, welford=WELFORD), x, out)
    np.testing.assert_allclose(out, [x.mean(), x.var()], rtol=1e-6)


def test_combine_function_may_branch() -> None:
    a = np.array([-1, 0, 3, 4], np.int32)
    assert evaluate("tl.reduce(a, 0, f)", a, f=BRANCHES) == 3


def test_scan_with_a_function() -> None:
    found = evaluate("tl.associative_scan(a, 1, larger)", A, larger=COMBINE)
    np.testing.assert_array_equal(found, np.maximum.accumulate(A, 1))
    found = evaluate("tl.associative_scan(a, 1, larger, reverse=True)", A, larger=COMBINE)
    np.testing.assert_array_equal(found, np.maximum.accumulate(A[:, ::-1], 1)[:, ::-1])


REJECTED = [
    ("tl.sum(x, 1)", "invalid axis 1. Expected -1 <= axis < 1"),
    ("tl.max(x, -2)", "invalid axis -2. Expected -1 <= axis < 1"),
    ("tl.argmax(x, 1)", "invalid axis 1. Expected -1 <= axis < 1"),
    ("tl.max(x, return_indices=True)", "an index along an axis needs `axis`"),
    ("tl.cumsum(x, 1)", "scan axis 1 must be < inputs rank (1)"),
    ("tl.reduce((x, x[None]), 0, f)", "all reduction inputs must have the same shape"),
    ("tl.associative_scan((x, x[None]), 0, f)", "all scan inputs must have the same shape"),
    ("tl.reduce((x, x), 0, f)", "larger() too many positional arguments"),
    ("tl.reduce(x, 0, 3)", "a combine function must be decorated with @triton.jit"),
    ("tl.softmax(x)", "Expected dtype ['fp32', 'fp64'] but got int32"),
]


@pytest.mark.parametrize(("expression", "message"), REJECTED)
def test_reduction_rejects(expression: str, message: str) -> None:
    text = f"def k():\n    x = tl.arange(0, 4)\n    {expression}\n"
    error = fails(text, f=COMBINE)
    assert str(error.__cause__).startswith(message)
    assert str(error).startswith("at 3:4:")


@pytest.mark.parametrize("name", ["xor_sum", "reduce_or"])
def test_bitwise_reduction_takes_integers_only(name: str) -> None:
    error = fails(f"def k(x):\n    tl.{name}(x, 0)\n", 1.5)
    assert isinstance(error, CompileTimeAssertionFailure)
    assert f"{name} only supported for integers" in str(error)


def test_error_in_a_combine_function_points_into_it() -> None:
    wrong = function_from("@jit\ndef wrong(a, b):\n    return a + c\n")
    error = fails("def k():\n    tl.reduce(tl.arange(0, 4), 0, wrong)\n", wrong=wrong)
    assert str(error).startswith("at 2:4:")
    assert str(error.__cause__).startswith("at 2:15:")
    assert "c is not defined" in str(error.__cause__)


def test_reduction_of_a_scalar_is_itself() -> None:
    build(
        kernel_from("def k(x):\n    tl.static_assert(tl.sum(x).dtype == tl.int32)\n"), {"x": "i32"}
    )


def test_a_combine_function_may_call_another() -> None:
    inner = function_from("@jit\ndef inner(a, b):\n    return a if a > b else b\n")
    outer = function_from("@jit\ndef outer(a, b):\n    return inner(b=b, a=a)\n", inner=inner)
    assert evaluate("tl.reduce(a, None, f)", A, f=outer) == A.max()
    found = evaluate("tl.associative_scan(a, 1, f)", A, f=outer)
    np.testing.assert_array_equal(found, np.maximum.accumulate(A, 1))


@pytest.mark.parametrize(
    ("body", "column", "message"),
    [
        ("tl.sum(tl.join(a, b))", 18, "computes with elements, not with tiles"),
        ("a + b + tl.max(tl.arange(0, 4), 0)", 26, "such as this one of shape (4,)"),
        ("(tl.debug_barrier(), a + b)[1]", 12, "must not access memory, and have no effects"),
    ],
)
def test_a_combine_function_computes_with_elements(body: str, column: int, message: str) -> None:
    wrong = function_from(f"@jit\ndef wrong(a, b):\n    return {body}\n")
    for call in ("tl.reduce", "tl.associative_scan"):
        error = fails(f"def k():\n    {call}(tl.arange(0, 8), 0, wrong)\n", wrong=wrong)
        found: BaseException = error
        while found.__cause__ is not None:
            found = found.__cause__
        assert f"at 2:{column}:" in str(found), found
        assert message in str(found)


def test_a_combine_function_may_read_the_grid() -> None:
    text = """
    @jit
    def add(a, b):
        return a + b + tl.program_id(0) * (tl.num_programs(0) - 1)

    def kernel(x, sums, running):
        i, p = tl.arange(0, 20), tl.program_id(0)
        tl.store(sums + p, tl.reduce(tl.load(x + i), 0, add))
        tl.store(running + p * 20 + i, tl.associative_scan(tl.load(x + i), 0, add))
    """
    x, sums, running = np.arange(20, dtype=np.int32), *(np.zeros(n, np.int32) for n in (3, 60))
    run_everywhere(text, x, sums, running, grid=(3,))
    np.testing.assert_array_equal(sums, 190 + 19 * 2 * np.arange(3))


def test_error_in_a_callee_of_a_combine_function_points_into_it() -> None:
    wrong = function_from("@jit\ndef wrong(a, b):\n    return a + c\n")
    outer = function_from("@jit\ndef outer(a, b):\n    return wrong(a, b)\n", wrong=wrong)
    error = fails("def k():\n    tl.reduce(tl.arange(0, 4), 0, outer)\n", outer=outer)
    assert str(error).startswith("at 2:4:")
    assert str(error.__cause__).startswith("at 2:11:")
    assert error.__cause__ is not None
    assert str(error.__cause__.__cause__).startswith("at 2:15:")


LOOPS = """
@jit
def gcd(a, b):
    while b != 0:
        a, b = b, a % b
    return a

@jit
def union(a, b):
    found = a
    for i in range(8):
        bit = (b >> i) & 1
        if bit == 0:
            continue
        found |= bit << i
        if found == 255:
            break
    return found

def kernel(x, y, common, bits, running):
    i, j = tl.arange(0, 7)[:, None], tl.arange(0, 40)[None, :]
    a = tl.load(x + i * 40 + j)
    tl.store(common + tl.arange(0, 7), tl.reduce(a, 1, gcd))
    tl.store(running + i * 40 + j, tl.associative_scan(a, 1, gcd))
    tl.store(bits + tl.arange(0, 40), tl.reduce(tl.load(y + i * 40 + j), 0, union))
"""


def test_combine_functions_may_hold_loops() -> None:
    """Which end for the elements there are, and for others need not."""
    rng = np.random.default_rng(1)
    x = rng.choice([12, 18, 60, 84, 30, 6, 210], (7, 40)).astype(np.int32)
    y = (1 << rng.integers(0, 8, (7, 40))).astype(np.int64)
    common, bits, running = np.zeros(7, np.int32), np.zeros(40, np.int64), np.zeros_like(x)
    run_everywhere(LOOPS, x, y, common, bits, running)
    np.testing.assert_array_equal(common, np.gcd.reduce(x, 1))
    np.testing.assert_array_equal(running, np.gcd.accumulate(x, 1))
    np.testing.assert_array_equal(bits, np.bitwise_or.reduce(y, 0))


def test_combine_functions_may_count() -> None:
    text = """
    @jit
    def plus_ten(a, b):
        found = a + b
        for _ in range(2):
            found += 5
        return found

    def kernel(x, y):
        i = tl.arange(0, 256).reshape(16, 4, 4)
        tl.store(y + tl.arange(0, 64).reshape(16, 4), tl.reduce(tl.load(x + i), 1, plus_ten))
    """
    x, y = np.arange(256, dtype=np.int32), np.zeros(64, np.int32)
    run_everywhere(text, x, y)
    np.testing.assert_array_equal(y, (x.reshape(16, 4, 4).sum(1) + 30).ravel())


def test_combine_functions_may_use_the_type_of_a_tile() -> None:
    """As those of Inductor do, of a number that may be a compile-time value."""
    text = """
    @jit
    def promoted(x):
        return x + tl.zeros((1,), tl.int1)

    @jit
    def larger(a, b):
        mask = a > b
        if promoted(a).dtype.is_floating():
            mask |= a != a
        return tl.where(mask, a, b)

    def kernel(x, y):
        i = tl.arange(0, 64)
        tl.store(y, tl.reduce(tl.load(x + i), 0, larger))
    """
    x, y = np.random.default_rng(0).permutation(64).astype(np.float32), np.zeros(1, np.float32)
    run_everywhere(text, x, y)
    assert y[0] == 63
