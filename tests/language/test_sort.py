"""Sorting, selecting, counting, and functions of scalars on elements, against NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.frontend.kernels import evaluate, fails, function_from, jit, kernel_from, launch
from tests.frontend.kernels import result_type as type_of
from tilewright.base.diagnostics import CompileTimeAssertionFailure
from tilewright.ir.types import FP16, FP32, I8, I32, U8, element_of

INTS: list[Any] = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
FLOATS: list[Any] = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
FLOATS8: list[Any] = [ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz]


def integers(dtype: Any, shape: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(3)
    info = np.iinfo(dtype)
    found = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    found.flat[:2] = info.max, info.min
    return found


def floats(dtype: Any, shape: tuple[int, ...]) -> Any:
    found = np.random.default_rng(4).normal(size=shape).astype(np.float32) * 8
    found.flat[0], found.flat[2] = -0.0, 0.0
    return found.astype(dtype)


@pytest.mark.parametrize("dtype", INTS)
def test_sort_of_integers(dtype: Any) -> None:
    a = integers(dtype, (4, 8))
    np.testing.assert_array_equal(evaluate("tl.sort(a)", a), np.sort(a, 1))
    np.testing.assert_array_equal(evaluate("tl.sort(a, 1, True)", a), np.sort(a, 1)[:, ::-1])
    np.testing.assert_array_equal(
        evaluate("tl.sort(a, dim=-1, descending=True)", a), np.sort(a, 1)[:, ::-1]
    )


def test_sort_of_bools() -> None:
    a = np.array([True, False, True, False, False, False, True, False])
    found = evaluate("tl.sort(a)", a)
    assert found.dtype == np.bool_
    assert found.tolist() == sorted(a.tolist())


@pytest.mark.parametrize("dtype", [*FLOATS, *FLOATS8])
def test_sort_of_floats(dtype: Any) -> None:
    a = floats(dtype, (16,))
    found = evaluate("tl.sort(a)", a)
    assert found.dtype == a.dtype
    np.testing.assert_array_equal(found.astype(np.float64), np.sort(a.astype(np.float64)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_sort_places_zeros_infinities_and_nan(dtype: Any) -> None:
    a = np.array([np.nan, 0.0, np.inf, -0.0, -np.nan, -np.inf, 1.0, -1.0]).astype(dtype)
    found = evaluate("tl.sort(a)", a).astype(np.float64)
    np.testing.assert_array_equal(found[:6], [-np.inf, -1, -0.0, 0.0, 1, np.inf])
    assert np.signbit(found[:4]).tolist() == [True, True, True, False]
    assert np.isnan(found[6:]).all()
    down = evaluate("tl.sort(a, descending=True)", a).astype(np.float64)
    np.testing.assert_array_equal(down, found[::-1])


def test_bitonic_merge() -> None:
    a = np.array([[1, 4, 6, 9, 8, 5, 2, 0], [9, 7, 3, 1, 0, 2, 2, 5]], np.float32)
    np.testing.assert_array_equal(evaluate("tl.bitonic_merge(a)", a), np.sort(a, 1))
    found = evaluate("tl.bitonic_merge(a, 1, descending=True)", a)
    np.testing.assert_array_equal(found, np.sort(a, 1)[:, ::-1])


@pytest.mark.parametrize("k", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.float32, np.float64])
def test_topk(dtype: Any, k: int) -> None:
    a = (integers if np.dtype(dtype).kind in "iu" else floats)(dtype, (2, 16))
    down = np.sort(a, 1)[:, ::-1]
    np.testing.assert_array_equal(evaluate(f"tl.topk(a, {k})", a), down[:, :k])
    found = evaluate(f"tl.topk(a, {k}, dim=1, descending=False)", a)
    np.testing.assert_array_equal(found, np.sort(a, 1)[:, :k])


@pytest.mark.parametrize(("dtype", "k", "expected"), [
    (np.int8, 4, I32), (np.uint8, 4, I32), (np.float16, 4, FP32), (np.int8, 16, I8),
    (np.uint8, 16, U8), (np.float16, 16, FP16), (np.bool_, 2, I32),
])  # fmt: skip
def test_topk_promotes_like_max(dtype: Any, k: int, expected: Any) -> None:
    a = np.arange(16).astype(dtype)
    assert element_of(type_of(f"tl.topk(a, {k})", a)) is expected
    found = evaluate(f"tl.topk(a, {k})", a)
    np.testing.assert_array_equal(found.astype(np.float64), np.sort(a)[::-1][:k].astype(np.float64))


@pytest.mark.parametrize(("call", "message"), [
    ("tl.sort(x, 0)", "only minor dimension is currently supported"),
    ("tl.topk(x, 2, 0)", "only minor dimension is currently supported"),
    ("tl.bitonic_merge(x, 0)", "only minor dimension is currently supported"),
    ("tl.topk(x, 0)", "topk: k must be greater than 0"),
    ("tl.topk(x, 3)", "topk: k must be a power of two"),
    ("tl.topk(x, 16)", "topk: k must not exceed the size of the selected dimension"),
])  # fmt: skip
def test_sorting_rejects(call: str, message: str) -> None:
    error = fails(f"def kernel():\n    x = tl.zeros((4, 8), tl.float32)\n    {call}")
    assert isinstance(error, CompileTimeAssertionFailure)
    assert message in str(error)


# -- histogram -------------------------------------------------------------------------------------


def test_histogram() -> None:
    a = np.array([0, 3, 3, 1, -1, 4, 3, 0], np.int32)
    found = evaluate("tl.histogram(a, 4)", a)
    assert found.dtype == np.int32
    assert found.tolist() == [2, 1, 0, 3]
    assert evaluate("a.histogram(4)", a.view(np.uint32)).tolist() == [2, 1, 0, 3]
    assert evaluate("tl.histogram(a, 4, mask=a > 0)", a).tolist() == [0, 1, 0, 3]
    assert evaluate("tl.histogram(a, 4, mask=b)", a, np.array(False)).tolist() == [0] * 4


@pytest.mark.parametrize(("x", "cause", "message"), [
    ("tl.zeros((2, 4), tl.int32)", AssertionError, "histogram only supports 1D input"),
    ("tl.zeros((4,), tl.float32)", ValueError, "histogram only supports integer input, but"),
])  # fmt: skip
def test_histogram_rejects(x: str, cause: Any, message: str) -> None:
    error = fails(f"def kernel():\n    tl.histogram({x}, 4)")
    assert isinstance(error.__cause__, cause)
    assert message in str(error.__cause__)


# -- map_elementwise -------------------------------------------------------------------------------

COMPARE = function_from("""
    @jit
    def compare(x, y):
        if x < y:
            return -1
        elif x == y:
            return 0
        else:
            return 1
""")
COLLATZ = function_from("""
    @jit
    def collatz(n):
        steps = 0
        while n != 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        return steps
""")
MINMAX = function_from("""
    @jit
    def minmax(a0, a1, b0, b1):
        return tl.minimum(a0, a1), tl.maximum(a0, a1), b0 + a0, b1 + a1
""")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_map_elementwise_of_numbers_and_elements(dtype: Any) -> None:
    text = """
    def f(x):
        return tl.fma(tl.full((), 3.0, x.dtype), x, tl.full((), 1.0, x.dtype))
    """
    a = np.arange(5, dtype=dtype)
    found = evaluate("tl.map_elementwise(f, a)", a, f=jit(function_from(text)))
    np.testing.assert_array_equal(found, 3 * a + 1)


def test_map_elementwise_branches_for_each_element() -> None:
    a = np.array([[1, 5, 3, 7], [2, 2, 9, 0]], np.int32)
    b = np.array([2, 2, 3, 9], np.int32)
    found = evaluate("tl.map_elementwise(f, a, b)", a, b, f=COMPARE)
    np.testing.assert_array_equal(found, np.sign(a - b))
    np.testing.assert_array_equal(
        evaluate("tl.map_elementwise(f, a, 3)", a, f=COMPARE), np.sign(a - 3)
    )
    np.testing.assert_array_equal(evaluate("tl.map_elementwise(f, 2, 3) + a", a, f=COMPARE), a - 1)


def test_map_elementwise_loops_for_each_element() -> None:
    a = np.array([1, 2, 3, 6, 7, 9, 27, 97], np.int32)
    found = evaluate("tl.map_elementwise(f, a)", a, f=COLLATZ)
    assert found.tolist() == [0, 1, 7, 8, 16, 19, 111, 118]


def test_map_elementwise_takes_packs() -> None:
    a, b = np.array([4, 1, 2, 8], np.int32), np.array([0, 1, 2, 3], np.float32)
    found = evaluate("tl.map_elementwise(f, a, b, pack=2)[0]", a, b, f=MINMAX)
    assert found.tolist() == [1, 4, 2, 8]
    found = evaluate("tl.map_elementwise(f, a, b, pack=2)[1]", a, b, f=MINMAX)
    assert found.tolist() == [4, 2, 4, 11]


LOADS = function_from("""
    @jit
    def follow(pointer, count):
        total = 0
        for i in range(count):
            total += tl.load(pointer + i)
        return total
""")


def test_map_elementwise_may_read_memory() -> None:
    kernel = kernel_from(
        """
        def kernel(out, source, counts):
            i = tl.arange(0, 4)
            n = tl.load(counts + i)
            tl.store(out + i, tl.map_elementwise(f, source + i, n))
        """,
        f=LOADS,
    )
    source, counts = np.arange(10, dtype=np.int32) ** 2, np.array([0, 1, 2, 5], np.int32)
    out = np.zeros(4, np.int32)
    launch(kernel, out, source, counts)
    assert out.tolist() == [0, 1, 4 + 9, 9 + 16 + 25 + 36 + 49]


HELPED = function_from(
    """
    @jit
    def helped(x, y):
        return 10 * compare(y=y, x=x)
    """,
    compare=COMPARE,
)


def test_map_elementwise_of_a_function_that_calls_another() -> None:
    a, b = np.array([1, 5, 3, 7], np.int32), np.array([2, 2, 3, 9], np.int32)
    found = evaluate("tl.map_elementwise(f, a, b)", a, b, f=HELPED)
    np.testing.assert_array_equal(found, 10 * np.sign(a - b))


STORES = function_from("""
    @jit
    def stores(pointer):
        tl.store(pointer, 1)
        return 0
""")


@pytest.mark.parametrize(("call", "names", "message"), [
    ("tl.map_elementwise(f, p + x)", {"f": STORES}, "must not write memory"),
    ("tl.map_elementwise(f, x, x, pack=0)", {"f": MINMAX}, "pack must be a power of two, got 0"),
    ("tl.map_elementwise(f, x, x, pack=16)", {"f": MINMAX}, "8 elements are not a multiple of"),
    ("tl.map_elementwise(f, x, pack=2)", {"f": COMPARE}, "must return 2 values of each result"),
    ("tl.map_elementwise(f)", {"f": COMPARE}, "needs an argument"),
])  # fmt: skip
def test_map_elementwise_rejects(call: str, names: Any, message: str) -> None:
    text = f"def kernel(p):\n    x = tl.arange(0, 8)\n    {call}"
    error = fails(text, np.zeros(8, np.int32), **names)
    assert message in str(error)
