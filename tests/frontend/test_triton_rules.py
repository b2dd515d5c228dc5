"""Rules of the front end that programs written for Triton rely on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.frontend.kernels import build, fails, jit, kernel_from, result_type
from tilewright.base.diagnostics import CompilationError
from tilewright.frontend import dependencies
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.interpret import interpret
from tilewright.ops.debug import Assert

Array = np.ndarray[Any, Any]


def result_of(text: str, *args: Any, count: int = 1, options: Any = None, **names: Any) -> Any:
    """What a kernel of the text stores, by the interpreter."""
    out = np.zeros(count, np.int32)
    kernel = kernel_from(text, **names)
    types = dict(zip(kernel.arg_names, ["*i32", *["i32"] * len(args)], strict=False))
    module = build(kernel, types, options=options)
    interpret(module, (1, 1, 1), [out, *args])
    return out.tolist()


# -- functions under tl.constexpr --------------------------------------------------------------


@tl.constexpr
def doubled(x: Any) -> Any:
    return 2 * x


def tripled(x: Any) -> Any:
    return 3 * x


def test_function_under_constexpr_is_called_on_compile_time_values() -> None:
    text = "def kernel(out):\n    n: tl.constexpr = f(21)\n    tl.store(out, n)\n"
    assert result_of(text, f=doubled) == [42]
    assert result_of(text, f=tl.constexpr(tripled)) == [63]


def test_function_under_constexpr_takes_no_run_time_value() -> None:
    text = "def kernel(n):\n    tl.zeros((f(n),), tl.int32)\n"
    with pytest.raises(CompilationError):
        build(kernel_from(text, f=doubled), {"n": "i32"})


def test_source_of_a_function_under_constexpr_is_part_of_the_key() -> None:
    text = "def kernel(out):\n    tl.store(out, f(1))\n"
    keys = [kernel_from(text, f=f).cache_key for f in (doubled, doubled, tl.constexpr(tripled))]
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]
    assert " at 0x" not in repr(kernel_from(text, f=doubled).used_global_vals)


def test_functions_in_a_tuple_under_constexpr_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[Any] = []
    follow = dependencies._Finder.follow
    monkeypatch.setattr(
        dependencies._Finder,
        "follow",
        lambda finder, fn: (followed.append(fn.fn), follow(finder, fn)),
    )
    text = "def kernel(out):\n    tl.store(out, f[0](1))\n"
    assert kernel_from(text, f=tl.constexpr((tripled,))).cache_key
    assert followed == [tripled]


# -- indexing, annotations, results ---------------------------------------------------------------

INDICES = [
    ("s[:, None]", (1,)),
    ("s[None, :]", (1,)),
    ("s[:]", ()),
    ("s[:, :, None]", (1,)),
    ("s[None, None, :]", (1, 1)),
    ("v[:, :]", (4,)),
    ("v[:, :, None]", (4, 1)),
    ("v[None, :, :]", (1, 4)),
    ("v[:, None, :]", (4, 1)),
    ("p[None, None, :]", (1, 1)),
]


@pytest.mark.parametrize(("index", "shape"), INDICES)
def test_bare_slices_beyond_the_rank_are_ignored(index: str, shape: tuple[int, ...]) -> None:
    text = f"""
    def kernel(p, s):
        v = tl.arange(0, 4)
        x = {index}
        tl.static_assert(len(x.shape) == {len(shape)})
        tl.static_assert(x.shape == {shape})
    """
    build(kernel_from(text), {"p": "*i32", "s": "i32"})


def test_scalar_with_a_new_axis_has_its_value() -> None:
    text = "def kernel(out, n):\n    tl.store((out + tl.arange(0, 1))[:, None], n[:, None])\n"
    assert result_of(text, np.int32(7)) == [7]


def test_run_time_value_annotated_constexpr_is_an_ordinary_value() -> None:
    text = """
    def kernel(out, n):
        X: tl.constexpr = n + 1
        Y: tl.constexpr = 3
        tl.static_assert(Y == 3)
        tl.store(out, X * Y)
    """
    assert result_of(text, np.int32(4)) == [15]
    error = fails("def kernel(n):\n    X: tl.constexpr = n\n    X: tl.constexpr = n\n", 5)
    assert "cannot be reassigned" in str(error)


def test_a_kernel_returns_no_value() -> None:
    for last in ("return n + 1", "return 3", "return n, n", "if n > 3:\n        return n"):
        text = f"def kernel(out, n):\n    tl.store(out, n)\n    {last}\n"
        error = fails(text, np.zeros(1, np.int32), np.int32(4))
        assert "a kernel that is launched returns no value" in str(error)
    for nothing in ("", " None", " tl.store(out, n)"):
        text = f"def kernel(out, n):\n    tl.store(out, n)\n    return{nothing}\n"
        assert result_of(text, np.int32(4)) == [4]


# -- types -----------------------------------------------------------------------------------------


def test_tuple_under_constexpr_keeps_compile_time_elements() -> None:
    text = """def kernel(out):
    sizes = tl.constexpr((2, 4))
    for _ in range(1):
        a, b = sizes
        tl.store(out + tl.arange(0, sizes[1]), b)
"""
    assert result_of(text, count=4) == [4] * 4


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ok = 0 < n < 4", "simultaneous multiple comparison is not supported"),
        ("one = n in (1, 2)", "AST comparison operator 'In' is not"),
        ("one = 1 not in (1, 2)", "AST comparison operator 'NotIn' is not"),
        ("pair = (*(n, n), n)", "unsupported AST node type: Starred"),
        ("tl.store(out, (m := n) + m)", "unsupported AST node type: NamedExpr"),
        ("tl.static_assert(4)", "Assertion condition could not be determined at compile-time"),
    ],
)
def test_syntax_beyond_triton_is_rejected_on_request(line: str, words: str) -> None:
    kernel = kernel_from(f"def kernel(out, n):\n    {line}\n")
    build(kernel, {"out": "*i32", "n": "i32"})
    strict = replace(FrontendOptions(), strict_triton=True)
    with pytest.raises(CompilationError, match=words):
        build(kernel, {"out": "*i32", "n": "i32"}, options=strict)


def test_types_of_compile_time_values_are_compared_in_kernels() -> None:
    text = """
    def kernel(out):
        n: tl.constexpr = 10
        tl.static_assert(n.type == tl.constexpr_type(10))
        tl.static_assert(n.type != tl.constexpr_type(11))
    """
    build(kernel_from(text), {"out": "*i32"})


def test_dtype_is_the_class_of_all_types_in_memory_and_takes_a_name() -> None:
    for value in (tl.int8, tl.pointer_type(tl.int8), tl.block_type(tl.int8, [4])):
        assert isinstance(value, tl.dtype)
    assert not isinstance(tl.constexpr_type(1), tl.dtype)
    assert tl.dtype("uint8") is tl.uint8
    assert tl.dtype("fp16") is tl.float16
    assert tl.dtype.SINT_TYPES == ["int8", "int16", "int32", "int64"]
    with pytest.raises(ValueError, match="'half' is not an element type; they are int1, int8"):
        tl.dtype("half")
    assert tl.float32.codegen_name() == "float32"
    assert tl.float32.with_element_ty(tl.int8) is tl.int8
    assert tl.block_type(tl.float32, [4]).with_element_ty(tl.int8) == tl.block_type(tl.int8, [4])
    assert result_type("a.to(tl.dtype('int8'))", np.ones(1, np.int32)).element is tl.int8


KEYWORDS = [
    "tl.ravel(x=v)",
    "tl.unsqueeze(x=v, dim=0)",
    "tl.squeeze(x=v[None], dim=0)",
    "tl.to_tensor(x=3)",
    "tl.extra.libdevice.abs(arg0=v)",
    "tl.extra.libdevice.mulhi(v, arg1=v)",
    "tl.extra.libdevice.mulhi(arg1=v, arg0=v)",
]


@pytest.mark.parametrize("call", KEYWORDS)
def test_parameters_have_the_names_of_triton(call: str) -> None:
    build(kernel_from(f"def kernel():\n    v = tl.arange(0, 4)\n    {call}\n"))


@pytest.mark.parametrize("call", ["mulhi(v, arg0=v)", "abs(arg1=v)", "abs(x=v)", "abs(v, arg1=v)"])
def test_wrong_keywords_of_libdevice_are_rejected(call: str) -> None:
    fails(f"def kernel():\n    v = tl.arange(0, 4)\n    tl.extra.libdevice.{call}\n")


def test_must_use_result_takes_the_function_and_a_text() -> None:
    def f() -> None: ...

    for made in (tw.must_use_result(f, "why"), tw.must_use_result("why")(f)):
        assert made is f
        assert f._must_use_result == "why"  # pyright: ignore[reportFunctionMemberAccess]
    assert tw.must_use_result(f)._must_use_result is True


@tl.core._aggregate
class Size:
    value: tl.constexpr

    @staticmethod
    def padded(n: Any, to: Any = 16) -> Any:
        return -(-n // to) * to


def test_plain_static_method_of_an_aggregate_computes_at_compile_time() -> None:
    text = "def kernel(out):\n    n: tl.constexpr = Size.padded(17)\n    tl.store(out, n)\n"
    assert result_of(text, Size=Size) == [32]
    error = fails("def kernel(n):\n    Size.padded(n)\n", 7, Size=Size)
    assert "takes compile-time values" in str(error)


# -- debugging -------------------------------------------------------------------------------------


def test_assertions_in_combine_functions_are_left_out() -> None:
    text = """
    @jit
    def combine(a, b):
        tl.device_assert(a > 100, "not checked")
        return a + b

    def kernel(out):
        tl.store(out, tl.reduce(tl.arange(0, 4), 0, combine))
    """
    assert result_of(text, options=FrontendOptions(debug=True)) == [6]


@pytest.mark.parametrize("element", ["uint8", "uint32", "int16"])
def test_overflow_of_signed_and_of_unsigned_integers_is_checked(element: str) -> None:
    def asserts(expression: str) -> int:
        text = f"def kernel(n):\n    x = n.to(tl.{element})\n    y = {expression}\n"
        module = build(kernel_from(text), {"n": "i32"}, options=FrontendOptions(debug=True))
        return sum(isinstance(op, Assert) for op in module.walk())

    assert asserts("x + x") == asserts("x - x") == asserts("x * x") == 1
    assert asserts("tl.add(x, x, sanitize_overflow=False)") == 0
    assert asserts("tl.rand(0, x)") == 0, "its arithmetic wraps on purpose"


def test_difference_of_unsigned_below_zero_is_an_overflow() -> None:
    text = "def kernel(out, n):\n    x = n.to(tl.uint32)\n    tl.store(out, (x - 5).to(tl.int32))\n"
    assert result_of(text, np.int32(7), options=FrontendOptions(debug=True)) == [2]
    with pytest.raises(Exception, match="uint32 overflow detected for operation sub"):
        result_of(text, np.int32(3), options=FrontendOptions(debug=True))


# -- numbers that functions return -----------------------------------------------------------------


def half() -> Any:
    return 0.5


def ceil_half(x: Any) -> Any:
    return (x + 1) // 2


def same(x: Any) -> Any:
    return x


def added(x: Any, y: Any) -> Any:
    return x + y


def pair(x: Any) -> Any:
    return x, (0.5, 1)


RETURNED = [
    ("x + half()", "fp16", tl.float32),
    ("x + 0.5", "fp16", tl.float16),
    ("half() * x", "fp16", tl.float32),
    ("x + -half() * 2", "bf16", tl.float32),
    ("x + same(0.5)", "fp16", tl.float32),
    ("x + same(same(half()))", "fp16", tl.float32),
    ("x + pair(0.5)[0]", "fp16", tl.float32),
    ("x + pair(1)[1][0]", "fp16", tl.float32),
    ("x + same(1)", "fp16", tl.float16),
    ("tl.where(x > 0, x, half())", "fp16", tl.float32),
    ("tl.fma(x, x, half())", "fp16", tl.float32),
    ("x + tl.cdiv(7, 2)", "i8", tl.int32),
    ("x + 4", "i8", tl.int8),
    ("x + ceil_half(7)", "i8", tl.int32),
    ("x + ceil_half(7) * 2", "i16", tl.int32),
    ("x + same(2**40)", "i8", tl.int64),
    ("x + tl.cdiv(7, 2)", "i64", tl.int64),
    ("x + same(3)", "u32", tl.uint32),
    ("x * half()", "i32", tl.float32),
    ("x + half()", "fp64", tl.float64),
]


@pytest.mark.parametrize(("text", "given", "expected"), RETURNED)
def test_numbers_that_functions_return_have_types(text: str, given: str, expected: Any) -> None:
    """They are tensors in Triton, and these are the types of Triton 3.6."""
    functions = {f.__name__: jit(f) for f in (half, ceil_half, same, pair)}
    lines = f"def kernel(x):\n    tl.static_assert(({text}).dtype == {expected!r})\n"
    build(kernel_from(lines.replace("triton.language", "tl"), **functions), {"x": given})


def test_numbers_that_functions_return_are_compile_time_values() -> None:
    """Beyond Triton, where the language requires one."""
    functions = {f.__name__: jit(f) for f in (ceil_half, same)}
    text = (
        "def kernel(out):\n"
        "    n: tl.constexpr = tl.cdiv(13, 8) * same(2)\n"
        "    i = tl.arange(0, ceil_half(7))\n"
        "    for k in tl.static_range(n):\n"
        "        tl.store(out + i, i + k)\n"
    )
    assert result_of(text, count=4, **functions) == [3, 4, 5, 6]


@pytest.mark.parametrize("text", ["tl.cdiv(13, 8)", "ceil_half(7)", "pair(8)[0]"])
def test_numbers_that_functions_return_are_tensors_in_strict_triton(text: str) -> None:
    functions = {f.__name__: jit(f) for f in (ceil_half, pair)}
    lines = f"def kernel(out):\n    tl.store(out, {text} + 1)\n    tl.zeros(({text},), tl.int32)\n"
    kernel = kernel_from(lines, **functions)
    build(kernel, {"out": "*i32"})
    with pytest.raises(CompilationError):
        build(kernel, {"out": "*i32"}, options=FrontendOptions(strict_triton=True))


def test_functions_are_compiled_for_typed_and_untyped_numbers() -> None:
    """A function that is called with 0.5 is another one if a function has returned the 0.5."""
    functions = {"half": jit(half), "added": jit(added)}
    text = (
        "def kernel(x):\n"
        "    tl.static_assert(added(x, 0.5).dtype == tl.float16)\n"
        "    tl.static_assert(added(x, half()).dtype == tl.float32)\n"
        "    tl.static_assert(added(x, 0.5).dtype == tl.float16)\n"
    )
    build(kernel_from(text, **functions), {"x": "fp16"})


def test_boundary_check_of_0_is_none() -> None:
    text = """def kernel(out):
    tl.store(out + tl.arange(0, 2), tl.load(out, boundary_check=(0)) + 3, boundary_check=(0))
"""
    assert result_of(text, count=2) == [3, 3]
    with pytest.raises(CompilationError, match="boundary_check"):
        build(kernel_from(text.replace("(0)", "(0,)")), {"out": "*i32"})


def test_compile_time_numbers_convert_to_python_floats() -> None:
    assert float(tl.constexpr(1.5)) == 1.5
    assert float(tl.constexpr(2)) == 2.0
