"""Result types that do not follow from the promotion of the operands alone, and their values."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.language.all_targets import run_everywhere
from tests.language.on_targets import BLOCK, TARGETS, run
from tilewright.base.diagnostics import CompilationError
from tilewright.frontend.options import FrontendOptions

Array = np.ndarray[Any, Any]

CASES = [
    ("tl.cumsum(x)", "bf16", "float32"),
    ("tl.cumsum(x)", "fp16", "float16"),
    ("tl.cumsum(x)", "i8", "int32"),
    ("tl.cumprod(x)", "bf16", "float32"),
    ("tl.cumprod(x)", "i1", "int1"),
    ("tl.cumprod(x)", "i8", "int8"),
    ("tl.cumprod(x)", "u8", "uint8"),
    ("tl.cumprod(x, dtype=tl.float32)", "i16", "float32"),
    ("tl.max(x, 0)", "bf16", "float32"),
    ("tl.max(x, 0, return_indices=True)[0]", "bf16", "float32"),
    ("tl.max(x, 0, return_indices=True)[0]", "fp16", "float16"),
    ("tl.min(x, 0, return_indices=True)[0]", "bf16", "float32"),
    ("tl.min(x, 0, return_indices=True)[1]", "bf16", "int32"),
    ("tl.sort(x)", "bf16", "bfloat16"),
    ("tl.softmax(x)", "fp16", "float32"),
    ("tl.softmax(x)", "bf16", "float32"),
    ("tl.softmax(x)", "fp8e5", "float32"),
    ("tl.softmax(x)", "fp64", "float64"),
    ("tl.fdiv(x, x)", "fp16", "float16"),
    ("tl.fdiv(x, x)", "fp8e5", "float8e5"),
    ("tl.fdiv(x, x.to(tl.float32))", "fp16", "float32"),
    ("x / 2", "fp8e5", "float8e5"),
    ("x % 1.5", "fp8e4nv", "float8e4nv"),
    ("x / 2", "bf16", "float32"),
    ("tl.maximum(x, 1)", "i8", "int32"),
    ("tl.minimum(0.5, x)", "fp16", "float32"),
    ("tl.maximum(x, x)", "bf16", "float32"),
    ("tl.maximum(x, x.to(tl.float16))", "bf16", "float32"),
    ("tl.clamp(x, 0.0, 1.0)", "fp16", "float32"),
    ("tl.clamp(x, 0, 1)", "fp16", "float16"),
    ("tl.clamp(x, x, x)", "bf16", "float32"),
    ("tl.join(x, x.to(tl.uint8))", "i8", "int8"),
    ("tl.cat(x, x.to(tl.int32))", "u32", "uint32"),
    ("tl.histogram(x, 4)", "u8", "int32"),
    ("tl.full((4,), 1.5, tl.int1)", "i8", "int1"),
    ("x.to(tl.float16, fp_downcast_rounding='rtz')", "fp16", "float16"),
    ("tl.rand(0, x)", "fp16", "float32"),
    ("tl.philox(0, x, x, x, x)[0]", "fp32", "uint32"),
]


@pytest.mark.parametrize(("expression", "given", "expected"), CASES)
def test_type(expression: str, given: str, expected: str) -> None:
    text = f"""
    def kernel(p):
        x = tl.load(p + tl.arange(0, 8))
        y = {expression}
        tl.static_assert(y.dtype == tl.{expected})
    """
    build(kernel_from(text), {"p": f"*{given}"})


SQUARE = "tl.zeros((16, 16), tl.float16)"
REJECTED_WHEN_STRICT = [
    ("tl.flip(x)", "i32"),
    ("tl.clamp(x, 0, 1)", "i32"),
    ("tl.maximum(x, 1)", "fp8e5"),
    ("x == 1", "fp8e4nv"),
    ("tl.where(x > 0, x, x)", "fp8e5"),
    ("tl.fdiv(x, 2.0)", "fp16"),
    ("tl.fdiv(x, 2)", "fp32"),
    ("tl.umulhi(x, x.to(tl.int64))", "i8"),
    ("tl.cat(x, x.to(tl.int64))", "i32"),
    ("tl.load(p, cache_modifier='.cs')", "i32"),
    ("tl.store(p, 0, cache_modifier='.ca')", "i32"),
    ("tl.assume(x > 0)", "i32"),
    (f"tl.dot({SQUARE}, {SQUARE}, {SQUARE})", "fp16"),
]


@pytest.mark.parametrize(("expression", "given"), REJECTED_WHEN_STRICT)
def test_type_that_only_strict_triton_rejects(expression: str, given: str) -> None:
    text = f"""
    def kernel(p):
        x = tl.load(p + tl.arange(0, 8))
        y = {expression}
    """
    kernel, types = kernel_from(text), {"p": f"*{given}"}
    build(kernel, types)
    with pytest.raises(CompilationError):
        build(kernel, types, options=replace(FrontendOptions(), strict_triton=True))


def computed(expression: str, result: Any, *inputs: Array) -> Array:
    """The value of an expression in `x` and `y` on tiles of all elements, on every target."""
    names = "xy"[: len(inputs)]
    loads = "".join(f"    {n} = tl.load(p{n} + i)\n" for n in names)
    text = (
        f"def kernel(out, {', '.join('p' + n for n in names)}):\n"
        f"    i = tl.arange(0, {len(inputs[0])})\n{loads}    r = {expression}\n"
        "    tl.store(out + tl.arange(0, r.shape[0]), r)\n"
    )
    out = np.zeros(result[1] if isinstance(result, tuple) else len(inputs[0]),
                   result[0] if isinstance(result, tuple) else result)  # fmt: skip
    run_everywhere(text, out, *inputs)
    return out


FP16 = np.array([0.1, 0.2, -0.1, 300, 0, np.nan, 65504, -1], np.float16)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_compared_with_a_number_in_fp32(kind: Any) -> None:
    x = FP16.astype(kind)
    wide = x.astype(np.float32)
    for operator in ("==", "!=", "<", ">="):
        found = computed(f"x {operator} 0.1", np.bool_, x)
        expected = eval(f"wide {operator} np.float32(0.1)", {"wide": wide, "np": np})
        assert found.tolist() == expected.tolist(), operator
    assert not computed("x == 0.1", np.bool_, x).any(), "0.1 is no number of 16 bits"


def test_integers_are_compared_with_a_number_in_its_own_type() -> None:
    x = np.array([-128, 127, 0, 44], np.int8)
    assert computed("x < 300", np.bool_, x).all()
    assert not computed("x == 300", np.bool_, x).any()
    y = np.array([0, 1, 2**32 - 1, 5], np.uint32)
    assert computed("y == -1", np.bool_, x, y).tolist() == [False, False, True, False]


def test_extremum_with_a_number_does_not_wrap() -> None:
    x = np.array([-128, 127, 0, 100], np.int8)
    assert computed("tl.maximum(x, 1) * 2", np.int32, x).tolist() == [2, 254, 2, 200]
    assert computed("tl.minimum(x, 300)", np.int32, x).tolist() == x.tolist()
    half = np.array([0.1, -3, np.nan, 5], np.float16)
    found = computed("tl.maximum(x, 0.1)", np.float32, half)
    assert found.tolist() == [np.float32(v) for v in (0.1, 0.1, 0.1, 5)]


def test_products_of_narrow_integers_wrap() -> None:
    x = np.full(8, 3, np.int8)
    with np.errstate(over="ignore"):
        assert computed("tl.cumprod(x)", np.int8, x).tolist() == np.cumprod(x, dtype="i1").tolist()


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_quotients_of_narrow_floats_are_rounded_once(kind: Any) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(0, 8, (2, 512)).astype(kind)
    y[y == 0] = 1  # what is too large for fp8 saturates
    found = computed("tl.fdiv(x, y)", kind, x, y)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float64) / y.astype(np.float64)).astype(kind)
        np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("target", TARGETS)
def test_softmax_of_halves_is_computed_in_fp32(target: str) -> None:
    x = np.linspace(-4, 4, BLOCK).astype(np.float16)
    powers = np.exp(x.astype(np.float64))
    found = run(target, "tl.softmax(a)", [x], np.float32)
    np.testing.assert_allclose(found, powers / powers.sum(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i8", "u8", "?"])
def test_histogram_of_integers_of_each_width(kind: str) -> None:
    x = np.array([0, 3, 3, 1, -1, 4, 200, 2**40 + 1], np.int64).astype(kind)
    expected = [int((x == n).sum()) for n in range(4)]
    assert computed("tl.histogram(x, 4)", (np.int32, 4), x).tolist() == expected


def test_tiles_of_both_signs_keep_their_bits_side_by_side() -> None:
    x, y = np.array([-1, 5], np.int8), np.array([200, 7], np.uint8)
    assert computed("tl.cat(x, y)", (np.int8, 4), x, y).tolist() == [-1, 5, -56, 7]
    assert computed("tl.interleave(y, x)", (np.uint8, 4), x, y).tolist() == [200, 255, 7, 5]
