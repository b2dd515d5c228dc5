"""Kernels whose compilation would not terminate raise an error."""

import sys
import time

import pytest

from tests.frontend.kernels import build, fails, function_from, jit, kernel_from
from tilewright.frontend.ast_to_ir import stmt

ENDLESS = [
    ("for i in tl.static_range(10**12):\n        x += i", "more than 200000 statements"),
    ("for i in (1,) * 10**6:\n        x += i", "more than 200000 statements"),
    ("y: tl.constexpr = 10 ** 10**9", "the value of `**` is too large for a compile-time value"),
    ("y: tl.constexpr = 1 << 10**12", "the value of `<<` is too large for a compile-time value"),
    ("y: tl.constexpr = 'y' * 10**12", "the value of `*` is too large for a compile-time value"),
    ("forever(x, 0)", "calls are nested more than 40 deep"),
    ("again(x)", "again calls itself with the same compile-time values and types"),
    (
        "for i in tl.static_range(500):\n        x += i\n        if x > 9:\n            break",
        "nested more than 128 deep. Each `elif` nests one",
    ),
    (
        "if x == 0:\n        y = 1"
        + "".join(f"\n    elif x == {i}:\n        y = {i}" for i in range(150)),
        "nested more than 128 deep. Each `elif` nests one: divide a long chain in halves",
    ),
]
FUNCTIONS = """
@jit
def forever(x, N: tl.constexpr):
    return forever(x, N + 1)

@jit
def again(x):
    return again(x)

"""


def deepest(error: BaseException) -> BaseException:
    """The first cause of an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@pytest.mark.parametrize(("statement", "message"), ENDLESS)
def test_endless_compilation_is_reported(statement: str, message: str) -> None:
    start = time.process_time()
    error = fails(f"{FUNCTIONS}def k(x):\n    {statement}\n", 1)
    assert message in str(deepest(error))
    assert time.process_time() - start < 30


def test_functions_that_are_nested_too_deeply() -> None:
    """Their key, which launches compute first, is not limited by Python's recursion."""
    function = jit(function_from("def f(x):\n    return x + 1"))
    for _ in range(100):
        function = jit(function_from("def f(x):\n    return g(x) * 2", g=function))
    kernel = kernel_from("def kernel(x):\n    g(x)", g=function)
    limit = sys.getrecursionlimit()
    assert len(kernel.cache_key) == 64
    assert sys.getrecursionlimit() == limit
    error = fails("def kernel(x):\n    g(x)", 1, g=function)
    assert "calls are nested more than 40 deep" in str(deepest(error))


def test_recursion_that_branches_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stmt, "MAX_STATEMENTS", 2000)
    text = """
    @jit
    def tree(x, PATH: tl.constexpr):
        return tree(x, PATH * 2) + tree(x, PATH * 2 + 1) if PATH < 2**{depth} else x

    def kernel(x):
        tree(x, 1)
    """
    build(kernel_from(text.replace("{depth}", "4")), {"x": "i32"})
    error: BaseException = fails(text.replace("{depth}", "20"), 1)
    while error.__cause__ is not None:
        error = error.__cause__
    assert "a function calls itself too often" in str(error)
