"""Parts of messages that users' tests may match: one test per row of the error reference."""

import linecache
import pickle
import traceback
import warnings
from dataclasses import replace
from typing import Any

import pytest

import tilewright
from tests.frontend.kernels import build, fails, kernel_from
from tilewright.base.diagnostics import (
    CompilationError,
    CompileTimeAssertionFailure,
    TritonError,
    UnsupportedLanguageConstruct,
)
from tilewright.compiler import errors as compiler_errors
from tilewright.frontend.options import FrontendOptions
from tilewright.language import semantic

TRITON = replace(FrontendOptions(), strict_triton=True)


def cause_of(body: str, options: FrontendOptions | None = None) -> str:
    """The text of the cause of the error of a kernel with this body."""
    kernel = kernel_from(f"def kernel():\n    {body}\n")
    with pytest.raises(CompilationError) as info:
        build(kernel, {}, {}, options)
    return str(info.value.__cause__)


def test_classes_are_importable_under_public_names() -> None:
    assert tilewright.errors.TritonError is TritonError
    assert compiler_errors.CompilationError is CompilationError
    assert compiler_errors.CompileTimeAssertionFailure is CompileTimeAssertionFailure
    assert compiler_errors.UnsupportedLanguageConstruct is UnsupportedLanguageConstruct
    assert issubclass(semantic.IncompatibleTypeErrorImpl, Exception)
    assert not issubclass(semantic.IncompatibleTypeErrorImpl, TritonError)


def test_arange_of_another_extent_than_a_power_of_two() -> None:
    assert cause_of("tl.arange(2, 7)", options=TRITON) == "arange's range must be a power of 2"


def test_full_of_another_extent_than_a_power_of_two() -> None:
    text = cause_of("tl.full((33,), 0, tl.int64)", options=TRITON)
    assert text == "Shape element 0 must be a power of 2"


def test_second_return_is_not_reached() -> None:
    text = """
@jit
def two_returns():
    return tl.arange(0, 4)
    return tl.arange(0, 8)

def kernel():
    a = two_returns()
    a + tl.arange(0, 4)
"""
    build(kernel_from(text))


BRANCHES = """
@jit
def returns(N: tl.constexpr, x):
    if {condition}:
        return tl.arange(0, 4)
    else:
        return tl.arange(0, 8)

def kernel(N: tl.constexpr, x):
    returns(N, x)
"""


def test_returns_of_unlike_shapes_decided_at_compile_time() -> None:
    kernel = kernel_from(BRANCHES.format(condition="N == 0"))
    for number in (0, 1):
        build(kernel, {"x": "i32"}, {"N": number})


def test_returns_of_unlike_shapes_decided_at_run_time() -> None:
    error = fails(BRANCHES.format(condition="x == 0"), 1, constexprs={"N": 0})
    assert str(error).startswith("at 2:4:")
    assert str(error.__cause__).startswith("at 1:0:")


def test_condition_of_another_type_than_bool_warns() -> None:
    text = "def kernel():\n    a = tl.full((64,), 0, tl.uint32)\n    tl.where(a, a, a + 1)\n"
    with pytest.warns(UserWarning, match=r"tl\.where with a non-boolean condition is deprecated"):
        build(kernel_from(text))


def test_fp8_that_the_target_lacks() -> None:
    options = replace(FrontendOptions(), supported_fp8_dtypes=("fp8e5",))
    text = cause_of("tl.full((64, 64), 0.0, tl.float8e4nv)", options=options)
    assert "not supported in this architecture" in text


@pytest.mark.parametrize(("dtype", "k"), [("int8", 32), ("float8e5", 32), ("float16", 16)])
def test_too_small_dots(dtype: str, k: int) -> None:
    options = replace(FrontendOptions(), strict_triton=True, min_dot_size=(1, 1, k))
    text = cause_of(
        f"tl.dot(tl.full((8, 8), 0, tl.{dtype}), tl.full((8, 8), 0, tl.{dtype}))",
        options=options,
    )
    assert f"Input shapes should have M >= 1, N >= 1 and K >= {k}" in text


def test_inexact_sums_longer_than_the_dot() -> None:
    body = "a = tl.full((64, 64), 0.0, tl.float8e5)\n    tl.dot(a, a, max_num_imprecise_acc=128)"
    assert cause_of(body) == "max_num_imprecise_acc (128) must be <= K (64)"


def test_scales_of_unlike_factors() -> None:
    body = """
    lhs, rhs = tl.full((32, 64), 0, tl.uint8), tl.full((64, 32), 0, tl.uint8)
    lhs_scale, rhs_scale = tl.full((32, 8), 0, tl.uint8), tl.full((32, 4), 0, tl.uint8)
    tl.dot_scaled(lhs, lhs_scale, "e2m1", rhs, rhs_scale, "e2m1")
"""
    assert (
        cause_of(body.strip()) == "Operands must have the same scale factor; (lhs: 16 vs rhs: 32)"
    )


@pytest.mark.parametrize("axis", [-3, 2, 1])
def test_axes_out_of_range(axis: int) -> None:
    text = cause_of(f"tl.expand_dims(tl.zeros((), tl.int32), {axis})")
    assert text.startswith(f"invalid axis {axis}")


def test_duplicate_axes() -> None:
    text = cause_of("tl.expand_dims(tl.arange(0, 4), (0, 0))")
    assert "duplicate axes, normalized axes = [0, 0]" in text


def test_program_axis() -> None:
    assert cause_of("tl.program_id(20)") == "program_id axis must be 0, 1, or 2 but got 20"


def test_return_in_a_loop() -> None:
    text = "Cannot have `return` statements inside `while` or `for` statements in triton"
    for loop in ("while n > 0", "for i in range(n)"):
        kernel = kernel_from(f"def kernel(n):\n    {loop}:\n        return\n")
        with pytest.raises(CompilationError, match=text):
            build(kernel, {"n": "i32"}, {}, TRITON)


def test_nested_function() -> None:
    error = fails("def kernel():\n    def inner():\n        pass\n")
    assert "nested function" in str(error)
    assert "StopIteration" not in str(error)


def test_stores_through_const_pointers() -> None:
    kernel = kernel_from("def kernel(p):\n    tl.store(p, 1.0)\n")
    with pytest.raises(CompilationError, match="Cannot store to a constant pointer"):
        build(kernel, {"p": "*kfp32"})


@pytest.mark.parametrize("dtype", ["float8e5", "int8", "int16"])
def test_atomics_on_narrow_types(dtype: str) -> None:
    text = f"def kernel(p):\n    q = p.to(tl.pointer_type(tl.{dtype}))\n    tl.atomic_add(q, 1)\n"
    with pytest.raises(TritonError, match="atomic_add does not support"):
        build(kernel_from(text), {"p": "*fp32"})


def test_notes_of_an_error_survive_pickling() -> None:
    error = fails("def kernel(n):\n    tl.exp(n)\n", 1)
    assert error.error_message == "Expected dtype ['fp32', 'fp64'] but got int32"
    assert error.notes[-1] == "help: use `n.to(tl.float32)`"
    again: Any = pickle.loads(pickle.dumps(error))
    assert (str(again), again.notes) == (str(error), error.notes)
    assert again.__notes__ == error.__notes__
    assert str(CompilationError(None, error.node, "m")) == "at 2:4: <source unavailable>\nm"


def test_a_traceback_shows_the_file_and_the_line_after_the_text() -> None:
    kernel = kernel_from("def kernel(n):\n    m = n\n    tl.exp(m)\n")
    with pytest.raises(CompilationError) as raised:
        build(kernel, {"n": "i32"})
    error = raised.value
    assert error.loc is not None
    line = error.loc.line
    assert linecache.getline(error.loc.file, line) == "    tl.exp(m)\n"
    place = f'  File "{error.loc.file}", line {line}, in kernel\n'
    assert traceback.format_exception_only(error)[-1] == place


def test_notes_of_an_error_follow_its_message() -> None:
    error = fails("def kernel(n):\n    m = n + 1\n    x = m // 2.5\n", 1)
    lines = str(error).split("\n")
    assert lines[lines.index("        ^") + 1] == "TypeError('unexpected type fp32')"
    assert "        ^ m: int32 scalar, from line 2: m = n + 1" in lines


def test_kernels_that_compile_carry_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(kernel_from("def kernel():\n    N: int = 1\n    tl.arange(0, 4) + N\n"))
