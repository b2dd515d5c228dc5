"""Errors of invalid kernels: message, location, cause, traceback."""

import math
import pickle
import textwrap
import traceback
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import build, fails, jit, kernel_from
from tilewright.base.diagnostics import (
    CompilationError,
    CompileTimeAssertionFailure,
    TritonError,
    UnsupportedLanguageConstruct,
)
from tilewright.frontend.source import SourceFunction

PLACES = [
    ("a += 1", "a is not defined"),
    ("a", "a is not defined"),
    ('0 + "a"', "unsupported operand type(s) for +: 'int' and 'str'"),
    ("-(0, 0)", "AST unary operator '__neg__' is not (currently) implemented on type tuple"),
    ("1.0 << 1", "unsupported operand type(s) for <<: 'float' and 'int'"),
    ("x = 'text'", "cannot convert text of type <class 'str'> to tensor"),
    ("x = tl.load", "to tensor"),
    ("a.b = 1", "Attribute assignment is not supported in triton"),
    ("a[0] = 1", "__setitem__ is not supported in triton"),
    ("a = b = 1", "simultaneous multiple assignment is not supported"),
    ("(*a, b) = (1, 2)", "starred assignment targets are not supported"),
    ("a, b = 1", "cannot unpack non-iterable value"),
    ("a, b = (1,)", "not enough values to unpack (expected 2, got 1)"),
    ("try:\n        pass\n    finally:\n        pass", "unsupported AST node type: Try"),
    ("raise ValueError", "unsupported AST node type: Raise"),
    ("lambda: 1", "unsupported AST node type: Lambda"),
    ("{1: 2}", "unsupported AST node type: Dict"),
    ("{1}", "unsupported AST node type: Set"),
    ("import os", "unsupported AST node type: Import"),
    ("global x", "unsupported AST node type: Global"),
    ("del x", "unsupported AST node type: Delete"),
    ("class C:\n        pass", "unsupported AST node type: ClassDef"),
    ("yield", "unsupported AST node type: Yield"),
    ("def g():\n        pass", "nested function definitions are not allowed inside a @triton.jit"),
    ("tl.load(1, **2)", "`**` takes a compile-time dict"),
    ("1 if 'a' else 2", "conditionals can only accept values of type"),
    ("[i for i in tl.arange(0, 4)]", "only tuple comprehensions are supported"),
    ("[i for i in (1, 2) for j in (1, 2)]", "nested comprehensions are not supported"),
    ("f'{tl.arange(0, 4)}'", "Cannot evaluate f-string containing non-constexpr conversion"),
    ("tl.float32(1)", "is not callable"),
    ("int(tl.arange(0, 4))", "int is a Python function: it takes compile-time values"),
    ("len(tl.arange(0, 4))", "a tensor has no len()"),
    ("abs(1)", "abs is not defined"),
    ("input(1)", "input is not defined"),
    ("round(1)", "round is not defined"),
    ("max(float('nan'), 1)", "don't take NaN"),
    ("min(-0.0, 1)", "don't take -0.0"),
    ("tl.arange(0, 4).no_such()", "has no attribute 'no_such'"),
    ("tl.no_such", "has no attribute 'no_such'"),
    ("(1, 2)[tl.program_id(0)]", "a tuple is indexed by a compile-time integer"),
    ("(1, 2).first", "'tuple' object has no attribute 'first'"),
]


@pytest.mark.parametrize(("statement", "message"), PLACES)
def test_wrong_statement_is_shown_with_its_place(statement: str, message: str) -> None:
    error = fails(f"def kernel():\n    {statement}\n")
    text = str(error)
    assert text.startswith("at 2:")
    assert message in text
    assert error.__cause__ is None
    first = text.split("\n")
    assert first[1] == "def kernel():"
    assert first[2] == f"    {statement}".split("\n")[0]


@pytest.mark.parametrize("statement", ["a += 1", '0 + "a"', "-(0, 0)", "1.0 << 1"])
def test_place_is_that_of_the_operation(statement: str) -> None:
    assert str(fails(f"def kernel():\n    {statement}\n")).startswith("at 2:4:")


def test_text_of_an_error() -> None:
    error = fails("def kernel(x):\n    y = 1\n    z = y + nothing\n", 3)
    assert str(error) == (
        "at 3:12:\ndef kernel(x):\n    y = 1\n    z = y + nothing\n            ^\n"
        "NameError('nothing is not defined')"
    )
    again: Any = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert type(again) is CompilationError


def test_error_in_a_primitive_has_it_as_its_cause() -> None:
    error = fails("def kernel():\n    tl.expand_dims(None, -1)\n")
    assert str(error).startswith("at 2:4:")
    assert error.__cause__ is not None
    assert str(error).endswith(str(error.__cause__))
    assert "shape.py" in "".join(traceback.format_tb(error.__cause__.__traceback__))


def test_traceback_hides_the_translation() -> None:
    for text in ("a += 1", "tl.expand_dims(None, -1)", "tl.arange(0, 3) + b"):
        error = fails(f"def kernel():\n    {text}\n")
        shown = "".join(traceback.format_exception(error))
        assert "ast_to_ir" not in shown
        assert "is not defined" in shown or "cause" in shown


def test_traceback_is_complete_for_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_FRONT_END_DEBUGGING", "1")
    with pytest.raises(NameError) as info:
        build(kernel_from("def kernel():\n    a += 1\n"))
    assert "ast_to_ir" in "".join(traceback.format_exception(info.value))


def test_error_in_a_called_function_is_the_cause_of_one_at_the_call() -> None:
    text = """
@jit
def inner():
    a += 1

@jit
def middle(x):
    return inner() + x

def kernel(x):
    y = x
    middle(y)
"""
    error = fails(text, 1)
    assert type(error) is CompilationError
    assert str(error).startswith("at 3:4:")
    assert error.error_message is None
    middle = error.__cause__
    assert str(middle).startswith("at 2:11:")
    assert middle is not None
    assert str(middle.__cause__).startswith("at 2:4:")
    assert "a is not defined" in str(middle.__cause__)


def test_static_assertion() -> None:
    error = fails("def kernel():\n    tl.static_assert(isinstance(0, tl.tensor), 'no tensor')\n")
    assert type(error) is CompileTimeAssertionFailure
    assert error.__cause__ is None
    assert str(error).startswith("at 2:4:")
    assert str(error).endswith("no tensor")
    assert "<source unavailable>" not in str(error)
    error = fails("def kernel(x):\n    tl.static_assert(x > 0)\n", 1)
    assert isinstance(error.__cause__, NotImplementedError)
    assert "Assertion condition could not be determined at compile-time" in str(error)


def test_static_assertion_in_a_called_function_stays_one() -> None:
    text = """
@jit
def f(N: tl.constexpr):
    tl.static_assert(N > 3, f"N is {N}, {N=}, {N:>4}")

def kernel():
    f(2)
"""
    error = fails(text)
    assert isinstance(error, CompileTimeAssertionFailure)
    assert str(error.__cause__).endswith("N is 2, N=2,    2")


def test_static_print(capsys: pytest.CaptureFixture[str]) -> None:
    text = "def k(N: tl.constexpr):\n    tl.static_print('N', N, tl.float32, (1, N), sep='|')\n"
    build(kernel_from(text), {}, {"N": 4})
    assert capsys.readouterr().out == "N|4|fp32|(1, 4)\n"


GLOBALS = [("LIMIT", 42), ("TABLE", [1, 2]), ("FUNCTION", str.upper)]


@pytest.mark.parametrize(("name", "value"), GLOBALS)
def test_plain_global_is_rejected(name: str, value: Any) -> None:
    error = fails(f"def kernel():\n    {name}\n", **{name: value})
    assert f"Cannot access global variable {name} from within @jit'ed function" in str(error)
    assert "tl.constexpr(value)" in str(error)


def test_annotation_of_a_global_is_not_enough() -> None:
    text = "LIMIT: tl.constexpr = 42\n\ndef kernel():\n    LIMIT\n"
    assert "Cannot access global variable" in str(fails(text))


def test_plain_globals_can_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", "1")
    build(kernel_from("def kernel():\n    tl.arange(0, LIMIT)\n", LIMIT=4))


def test_globals_that_kernels_may_read() -> None:
    text = """
LIMIT = tl.constexpr(4)
POINTER = tl.pointer_type(tl.float32)
MODE = tl.PropagateNan.ALL
NOTHING = None

def kernel(x, d=LIMIT):
    tl.arange(0, LIMIT)
    tl.static_assert(x.to(POINTER).dtype == POINTER)
    tl.maximum(1.0, 2.0, MODE)
    tl.static_assert(NOTHING is None)
    tl.static_assert(math.pi > 3 and math.ceil(2.5) == 3)
    tl.static_assert(d == 4)
"""
    build(kernel_from(text, math=math), {"x": "i64"})


def test_plain_function_of_a_module_is_rejected() -> None:
    error = fails("def kernel():\n    text.dedent('a')\n", text=textwrap)
    assert "Unsupported function referenced" in str(error)


def test_argument_errors_are_those_of_python() -> None:
    text = "@jit\ndef f(a, b):\n    return a\n\ndef kernel():\n    f(1)\n"
    assert "f() missing a required argument: 'b'" in str(fails(text))
    error = fails("def kernel():\n    tl.arange(0)\n")
    assert isinstance(error.__cause__, TypeError)
    assert "arange" in str(error.__cause__)


RECURSION = """
@jit
def forever(x, N: tl.constexpr):
    return forever(x, {next})

def kernel(x):
    forever(x, 1)
"""


def test_recursion_that_does_not_end_is_reported() -> None:
    error: Any = fails(RECURSION.format(next="N"), 1)
    chain = [str(error)]
    while error.__cause__ is not None:
        error = error.__cause__
        chain.append(str(error))
    assert "forever calls itself with the same compile-time values" in chain[-1]
    error = fails(RECURSION.format(next="N + 1"), 1)
    while error.__cause__ is not None:
        error = error.__cause__
    assert "calls are nested more than" in str(error)


def test_recursion_that_ends_is_compiled() -> None:
    text = """
    @jit
    def factorial(N: tl.constexpr):
        if N <= 1:
            return 1
        return N * factorial(N - 1)

    def kernel():
        tl.static_assert(factorial(5) == 120)
    """
    build(kernel_from(text))


def test_dropped_result() -> None:
    text = """
@tl.core.must_use_result("Use it.")
@tl.core.builtin
def cube(x, _semantic=None):
    return x

def kernel(x):
    y = cube(x)
    cube(x)
"""
    error = fails(text, 1)
    assert str(error).split("\n")[-1] == "The result of cube is not being used. Use it."
    assert str(error).startswith("at 3:4:")


def test_constexpr_is_bound_once() -> None:
    error = fails("def kernel():\n    c: tl.constexpr = 1\n    c: tl.constexpr = 2\n")
    assert "c is already defined. constexpr cannot be reassigned." in str(error)
    error = fails("def kernel():\n    for i in tl.static_range(2):\n        c: tl.constexpr = i\n")
    assert "c is already defined" in str(error)
    text = """
    def kernel(n):
        a: tl.constexpr
        a = 4
        b: tl.constexpr = ""
        N: int = 1
        for i in range(n):
            c: tl.constexpr = 2
            tl.arange(0, a * c)
    """
    build(kernel_from(text), {"n": "i32"})


def test_noinline_function_takes_scalars() -> None:
    helper = SourceFunction(function := jit(_identity).fn, noinline=True)
    error = fails("def kernel():\n    helper(tl.arange(0, 4))\n", helper=helper)
    assert "Function _identity is marked noinline, but was called with non-scalar" in str(error)
    assert function.__name__ == "_identity"
    module = build(kernel_from("def kernel(x):\n    helper(x)\n", helper=helper), {"x": "i32"})
    assert [f.attrs for f in module.functions.values()] == [{}, {"noinline": True}]


def _identity(x: Any) -> Any:
    return x


def test_constexpr_parameter_must_be_specialised() -> None:
    kernel = SourceFunction(_with_constexpr, do_not_specialize=["N"])
    with pytest.raises(CompilationError, match="N marked as constexpr and listed in"):
        build(kernel, {}, {"N": 1})


def _with_constexpr(N: tl.constexpr) -> Any:
    pass


def test_errors_have_a_common_base() -> None:
    for kind in (CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct):
        assert issubclass(kind, TritonError)


def test_missing_type_or_value_of_a_parameter() -> None:
    kernel = kernel_from("def kernel(x, N: tl.constexpr):\n    pass\n")
    with pytest.raises(CompilationError, match="no type is given for the parameter x"):
        build(kernel, {}, {"N": 1})
    with pytest.raises(CompilationError, match="no value is given for the compile-time param"):
        build(kernel, {"x": "i32"})


def test_primitive_outside_a_kernel() -> None:
    with pytest.raises(ValueError, match=r"Did you forget to add @triton\.jit"):
        tl.arange(0, 4)
    with pytest.raises(RuntimeError, match=r"can only be used in @triton\.jit'd functions"):
        next(iter(tl.range(4)))
    with pytest.raises(RuntimeError, match=r"Cannot call @triton\.jit'd outside of the scope"):
        jit(_identity)(np.ones(1))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("0 + 'a'", "unsupported operand type(s) for +: 'int' and 'str'"),
        ("'a' + 0", "unsupported operand type(s) for +: 'str' and 'int'"),
        ("1.0 << 1", "unsupported operand type(s) for <<: 'float' and 'int'"),
        ("1 < 'a'", "unsupported operand type(s) for <: 'int' and 'str'"),
        ("tl.float32 + 1", "unsupported operand type(s) for +: 'DType' and 'int'"),
        ("None * x", "unsupported operand type(s) for *: 'NoneType' and 'int32'"),
    ],
)
def test_operands_of_unrelated_kinds(expression: str, message: str) -> None:
    error = fails(f"def k(x):\n    {expression}\n", 1)
    assert isinstance(error, UnsupportedLanguageConstruct)
    assert error.__cause__ is None
    assert str(error).startswith("at 2:4:")
    assert error.error_message == message
