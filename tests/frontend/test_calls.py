"""Calls of jit functions, constexpr functions and builtins, and the values that are passed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import build, constexpr_function, fails, jit, kernel_from, launch
from tilewright.frontend.ast_to_ir.scope import BUILTIN_NAMES
from tilewright.ir.core import Module
from tilewright.language.core import builtin
from tilewright.ops.control import Call


def run(text: str, *args: Any, n: int = 4, **names: Any) -> list[int]:
    """What a kernel leaves in its first parameter, `n` int32 that start as -1."""
    out = np.full(n, -1, np.int32)
    launch(kernel_from(text, **names), out, *args)
    return out.tolist()


@jit
def add_n(x: Any, n: Any = 2, *, scale: Any = 1) -> Any:
    return (x + n) * scale


@jit
def divmod_(a: Any, b: Any) -> Any:
    return a // b, a % b


@constexpr_function
def half(n: Any) -> Any:
    assert type(n) is int
    return n // 2


def test_arguments_and_results() -> None:
    text = """
    def kernel(out, x):
        tl.store(out, add_n(x))
        tl.store(out + 1, add_n(x, 5, scale=2))
        q, r = divmod_(x, b=4)
        tl.store(out + 2, q)
        tl.store(out + 3, r)
    """
    assert run(text, 10, add_n=add_n, divmod_=divmod_) == [12, 30, 2, 2]


def calls_of(module: Module) -> list[str]:
    return [op.callee for op in module.walk() if isinstance(op, Call)]


def test_function_is_compiled_once_for_equal_types_and_values() -> None:
    text = """
    def kernel(x, y):
        add_n(x)
        add_n(x + 1)
        add_n(y)
        add_n(x, 3)
        add_n(x, 2)
    """
    module = build(kernel_from(text, add_n=add_n), {"x": "i32", "y": "i64"})
    first, second, wide, three, two = calls_of(module)
    assert first == second == two
    assert len({first, wide, three}) == 3
    assert list(module.functions) == ["kernel", first, wide, three]


def test_numbers_of_different_types_are_different_values() -> None:
    text = """
    @jit
    def typed(v):
        return tl.to_tensor(v)

    def kernel():
        tl.static_assert(typed(1).dtype == tl.int32)
        tl.static_assert(typed(1.0).dtype == tl.float32)
        tl.static_assert(typed(True).dtype == tl.int1)
        tl.static_assert(typed(-0.0).dtype == typed(0.0).dtype)
    """
    assert len(set(calls_of(build(kernel_from(text))))) == 5


def test_compile_time_arguments_stay_so_whatever_the_annotation() -> None:
    text = """
    @jit
    def block(n, DTYPE: tl.constexpr, fn):
        return fn(tl.zeros((n,), DTYPE))

    @jit
    def plus(x):
        return x + 1

    def kernel(out):
        x = block(4, tl.int32, plus)
        tl.store(out + tl.arange(0, 4), x)
    """
    assert run(text) == [1, 1, 1, 1]


def test_functions_that_return_nothing() -> None:
    text = """
    @jit
    def put(p, v):
        tl.store(p, v)

    def kernel(out, x):
        r = put(out, x)
        tl.static_assert(r is None)
    """
    assert run(text, 3, n=1) == [3]


def test_functions_as_values() -> None:
    text = """
    def kernel(out, x, FAST: tl.constexpr):
        tl.store(out, (plus if FAST else minus)(x))
        both: tl.constexpr = (plus, minus)
        tl.store(out + 1, both[1](x))
    """
    plus, minus = jit(_plus), jit(_minus)
    out = np.zeros(2, np.int32)
    launch(kernel_from(text, plus=plus, minus=minus), out, 5, FAST=True)
    assert out.tolist() == [6, 4]


def _plus(x: Any) -> Any:
    return x + 1


def _minus(x: Any) -> Any:
    return x - 1


def test_primitive_of_the_language_as_a_compile_time_argument() -> None:
    @jit
    def apply(x, y, OP: tl.constexpr):
        return OP(x, y)

    text = """
    def kernel(out, OP: tl.constexpr):
        i = tl.arange(0, 4)
        tl.store(out + i, apply(i, 2, tl.maximum) + OP(i, 1))
    """
    out = np.zeros(4, np.int32)
    launch(kernel_from(text, apply=apply), out, OP=tl.minimum)
    assert out.tolist() == [2, 3, 3, 4]


def test_unpacked_arguments_and_variable_parameters() -> None:
    text = """
    @jit
    def total(first, *rest):
        for i in tl.static_range(len(rest)):
            first += rest[i]
        return first

    def kernel(out, x):
        pair = (x, x * 2)
        tl.store(out, total(*pair, 100))
        tl.store(out + 1, total(x))
    """
    assert run(text, 3, n=2) == [109, 3]


@jit
def weighted(x: Any, **weights: Any) -> Any:
    return x * weights["a"] + weights["b"] * len(weights)


@jit
def reweighted(x: Any, **weights: Any) -> Any:
    return weighted(x, **weights)


@jit
def ignoring(x: Any, **rest: Any) -> Any:
    return x


def test_named_variable_parameters() -> None:
    text = """
    def kernel(out, x, NAMED: tl.constexpr = {"a": 2, "b": 5}):
        tl.store(out, weighted(x, a=2, b=x))
        tl.store(out + 1, reweighted(x, b=3, a=4))
        tl.store(out + 2, weighted(x, **NAMED))
        tl.store(out + 3, ignoring(x) + ignoring(x, a=x))
    """
    functions = {"weighted": weighted, "reweighted": reweighted, "ignoring": ignoring}
    assert run(text, 10, **functions) == [40, 46, 30, 20]


def test_constexpr_functions_see_plain_values() -> None:
    text = """
    def kernel(out, N: tl.constexpr):
        tl.store(out + tl.arange(0, half(2 * N)), half(N))
        tl.static_assert(pair(3) == (3, 6))
        x = pair(N)[1]
        tl.store(out, x)
        tl.static_assert(dtype_of(tl.arange(0, 4)) == tl.int32)
    """
    names: dict[str, Callable[..., Any]] = {
        "half": half,
        "pair": constexpr_function(_pair),
        "dtype_of": constexpr_function(_dtype_of),
    }
    out = np.zeros(4, np.int32)
    launch(kernel_from(text, **names), out, N=4)
    assert out.tolist() == [8, 2, 2, 2]
    assert half(9) == 4
    assert half(tl.constexpr(9)) == 4


def _pair(n: Any) -> Any:
    return n, 2 * n


def _dtype_of(x: Any) -> Any:
    return x.dtype


@dataclass(frozen=True)
class _Blocking:
    rows: int

    @constexpr_function
    def elements(self, columns: int = 1) -> int:
        return self.rows * columns


def test_methods_of_compile_time_values_may_be_constexpr_functions() -> None:
    text = """def kernel(out, SIZE: tl.constexpr):
    tl.store(out + tl.arange(0, SIZE.elements(columns=2)), SIZE.elements())
"""
    out = np.zeros(4, np.int32)
    launch(kernel_from(text), out, SIZE=_Blocking(2))
    assert out.tolist() == [2] * 4
    assert _Blocking(3).elements(4) == 12


def test_error_of_a_constexpr_function_is_the_cause() -> None:
    error = fails("def kernel():\n    half(1.5)\n", half=half)
    assert isinstance(error.__cause__, AssertionError)


class Point(NamedTuple):
    x: Any
    y: Any = 0


def test_named_tuples() -> None:
    text = """
    @jit
    def moved(p, by):
        return Point(p.x + by, y=p.y)

    def kernel(out, p):
        q = moved(p, 3)
        for i in range(2):
            q = Point(q.x * 2, q.y + 1)
        tl.store(out, q.x)
        tl.store(out + 1, q.y)
        tl.static_assert(Point(1).y == 0)
    """
    out = np.zeros(2, np.int32)
    kernel = kernel_from(text, Point=Point)
    module = launch(kernel, out, Point(1, 2))
    assert module.entry.arg_names == ["out", "p.0", "p.1"]
    assert out.tolist() == [16, 4]


def test_tuple_arguments() -> None:
    text = """
    def kernel(out, pair, NONE: tl.constexpr):
        (p, (n, SIZE)) = pair
        tl.static_assert(NONE is None)
        tl.store(out, tl.load(p + n) + SIZE)
    """
    kernel = kernel_from(text)
    signature = {"out": "*i32", "pair": ("*i32", ("i32", "constexpr")), "NONE": "constexpr"}
    module = build(kernel, signature, {(1, 1, 1): 7, "NONE": None})
    assert module.entry.arg_names == ["out", "pair.0", "pair.1.0"]


BUILTINS = [
    ("len((1, 2, 3))", 3),
    ("len(tl.arange(0, 4).shape)", 1),
    ("int(2.5)", 2),
    ("float(2) == 2.0", True),
    ("isinstance(1, int)", True),
    ("isinstance(tl.arange(0, 2), tl.tensor)", True),
    ("isinstance(2, tl.constexpr)", False),
    ("isinstance((1, 2), tl.tuple)", True),
    ("isinstance(tl.arange(0, 2), tl.constexpr)", False),
    ("getattr(tl.float32, 'primitive_bitwidth')", 32),
    ("getattr(tl.float32, 'nothing', 5)", 5),
    ("hasattr(tl.float32, 'nothing')", False),
    ("hasattr(2, 'value')", False),
    ("hasattr(2, 'dtype')", False),
    ("getattr(2, 'value', 5)", 5),
    ("hasattr(tl.arange(0, 2), 'shape')", True),
    ("min(3, 1, 2)", 1),
    ("max((3, 1, 2))", 3),
    ("list((1, 2))[1]", 2),
    ("[x * 2 for x in (1, 2, 3)][2]", 6),
    ("len([x for x in (1, 2, 3) if x > 1])", 2),
    ("[a + b for a, b in ((1, 2), (3, 4))][1]", 7),
    ("(1, 2, 3)[-1]", 3),
    ("(1, 2, 3)[1:][0]", 2),
    ("((1, 2) + (3,))[2]", 3),
    ("len((1, 2) * 3)", 6),
    ("(1, (2, 3)) == (1, (2, 3))", True),
    ("(1, 2) != (1, 2)", False),
    ("(1, *(2, 3))[2]", 3),
    ("2 ** 10", 1024),
    ("-7 // 2", -4),
    ("-7 % 2", 1),
    ("7 / 2 == 3.5", True),
    ("~5", -6),
    ("tl.constexpr(1) is None", False),
    ("None is not None", False),
    ("tl.cdiv(7, 2)", 4),
    ("tl.constexpr(3) + 1", 4),
    ("f'{3:03d}' == '003'", True),
    ("tl.float16.is_floating()", True),
    ("'ab'.upper() == 'AB'", True),
    ("tl.float32 == tl.float32", True),
    ("(y := 3) + 1 > 3", True),
]


@pytest.mark.parametrize(("expression", "expected"), BUILTINS)
def test_compile_time_expression(expression: str, expected: Any) -> None:
    found: list[Any] = []

    def see(value: Any) -> None:
        found.append(value)

    build(kernel_from(f"def kernel():\n    see({expression})\n", see=constexpr_function(see)))
    value = found[0]
    assert (value if not isinstance(value, tl.tensor) else True) == expected


def test_minimum_and_maximum_of_run_time_values() -> None:
    text = """
    def kernel(out, x):
        tl.store(out, min(x, 3, 7))
        tl.store(out + 1, max(x, 3))
    """
    assert run(text, 5, n=2) == [3, 5]


def test_compile_time_numbers_have_the_methods_of_tensors() -> None:
    text = """
    def kernel(out, one):
        wide = one.to(tl.int64)
        tl.static_assert(wide.dtype == tl.int64 and one.dtype == tl.int32)
        tl.store(out, wide + one.cdiv(1))
        tl.static_assert(one.bit_length() == 1)
    """
    out = np.zeros(1, np.int32)
    launch(kernel_from(text), out, one=1)
    assert out.tolist() == [2]


def test_call_sites_are_known_within_combine_functions() -> None:
    text = "def kernel():\n    x = tl.arange(0, 4)\n    tl.reduce(x, 0, larger)\n"
    module = build(kernel_from(text, larger=jit(_larger)))
    inner = next(op for op in module.walk() if op.name == "arith.max")
    assert inner.loc is not None
    assert inner.loc.function == "_larger"
    assert inner.loc.caller is not None
    assert (inner.loc.caller.line, inner.loc.caller.function) == (3, "kernel")


def _larger(a: Any, b: Any) -> Any:
    return tl.maximum(a, b)


def test_functions_of_scalars_may_recurse() -> None:
    text = """
    @jit
    def power(x, n: tl.constexpr):
        if n == 0:
            return 1
        else:
            return x * power(x, n - 1)

    @jit
    def cube_or_square(x):
        return power(x, 3) if x < 3 else power(x, 2)

    def kernel(out):
        i = tl.arange(0, 5)
        tl.store(out + i, tl.map_elementwise(cube_or_square, i))
    """
    out = np.zeros(5, np.int32)
    launch(kernel_from(text), out)
    assert out.tolist() == [0, 1, 8, 9, 16]


class _Scope:
    """A context manager that notes what happens to it."""

    def __init__(self, name: Any, _semantic: Any = None) -> None:
        assert _semantic is not None
        self.name = name.value
        self.seen: list[str] = []
        _SCOPES.append(self)

    def __enter__(self) -> int:
        self.seen.append("enter")
        return 7

    def __exit__(self, *args: Any) -> None:
        self.seen.append("exit")


_SCOPES: list[_Scope] = []


def test_with_enters_and_leaves_at_compile_time() -> None:
    text = """
    def kernel(out, x):
        with scope("first") as a, scope(name="second"):
            tl.store(out, x + a)
        y = x
        with scope("third"):
            y += 1
        tl.store(out + 1, y)
    """
    _SCOPES.clear()
    assert run(text, 1, n=2, scope=tl.constexpr(_Scope)) == [8, 2]
    assert [(s.name, s.seen) for s in _SCOPES] == [
        (name, ["enter", "exit"]) for name in ("first", "second", "third")
    ]
    error = fails("def k():\n    with scope('a'):\n        return\n", scope=tl.constexpr(_Scope))
    assert "Cannot have `return` statements inside `with` statements in triton " in str(error)


def test_print_and_assert_are_primitives_of_the_language(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    @builtin
    def note(*args: Any, _semantic: Any = None, **kwargs: Any) -> None:
        calls.append(([tl.core.unwrap(a) if not isinstance(a, tl.tensor) else a.type for a in args],
                      {k: v.value for k, v in kwargs.items()}))  # fmt: skip

    monkeypatch.setitem(BUILTIN_NAMES, "print", note)
    monkeypatch.setattr(tl, "device_assert", note)
    text = """
    def kernel(x):
        print("x is", x, hex=True)
        assert x > 0, "small"
        assert False
    """
    build(kernel_from(text), {"x": "i32"})
    assert calls == [
        (["x is", tl.int32], {"hex": True}),
        ([tl.int1, "small"], {}),
        ([False, ""], {}),
    ]


def test_minimum_of_tiles_by_python_is_deprecated() -> None:
    with pytest.warns(UserWarning, match="`min` is deprecated for tiles"):
        build(kernel_from("def k():\n    min(tl.arange(0, 4), 2)\n"))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("6 & X", 2), ("4 | X", 7), ("6 ^ X", 5), ("1 << X", 8), ("32 >> X", 4), ("7 % X", 1),
     ("2 ** X", 8), ("7 // X", 2), ("3 / X", 1.0), ("2 - X", -1), ("X + 1", 4), ("5 > X", True)],
)  # fmt: skip
def test_reflected_operators_of_constexpr(expression: str, expected: Any) -> None:
    result = eval(expression, {"X": tl.constexpr(3)})
    assert isinstance(result, tl.constexpr)
    assert result.value == expected
