"""Each rule: forward mode against central differences, in fp64, on the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import (
    check_gradients,
    differences,
    directions,
    forward_module,
    jvp,
    vjp,
)
from tilewright.autodiff.reverse import reverse_mode
from tilewright.autodiff.rules_scan import closed
from tilewright.base.diagnostics import CompilationError
from tilewright.ops.reduce import Scan

UNARY = (
    "tl.exp(x)", "tl.exp2(x)", "tl.log(p)", "tl.log2(p)", "tl.sin(x)", "tl.cos(x)", "tl.erf(x)",
    "tl.sqrt(p)", "tl.rsqrt(p)", "tl.sigmoid(x)", "-x", "tl.abs(x)", "tl.floor(x) + x",
    "tl.ceil(x) * x", "x.to(tl.float32).to(tl.float64) * 0 + x", "x.to(tl.int32) * 1.0 + x",
    "tl.clamp(x, -0.5, 0.5)",
)  # fmt: skip
BINARY = (
    "x + y", "x - y", "x * y", "x / p", "tl.maximum(x, y)", "tl.minimum(x, y)", "tl.fma(x, y, p)",
    "tl.where(x < y, x * x, y)", "tl.where(x < 0, 1.0, y) * x", "x % p",
)  # fmt: skip
SHAPES = (
    "tl.sum(x)", "tl.max(x) * y", "tl.min(x) + y", "tl.sum(tl.reshape(x, [4, 4]), axis=1)",
    "tl.trans(tl.reshape(x, [4, 4])) * tl.reshape(y, [4, 4])", "tl.flip(x) * y", "tl.cumsum(x)",
    "tl.cumsum(x, reverse=True)", "tl.join(x, y)", "tl.interleave(x, y)",
    "tl.cat(x, y)", "tl.reshape(x, [4, 4])[:, None, :] * 2.0",
    "tl.sum(tl.reshape(x, [4, 4]) * tl.sum(tl.reshape(y, [4, 4]), 0)[None, :], 1)",
    "tl.gather(x, tl.arange(0, 16) // 2, 0) * y", "tl.gather(x, tl.arange(0, 8) * 3 - 3, 0)",
    "tl.gather(tl.reshape(x, [4, 4]), (tl.reshape(at, [4, 4]) * 5 % 7 - 1).to(tl.int64), 1)",
    "tl.gather(tl.reshape(x, [2, 8]), (tl.reshape(tl.arange(0, 32), [4, 8]) % 3).to(tl.int8), 0)",
    "tl.gather(x, (at // 3).to(tl.uint32), 0) + y",
    "tl.max(tl.reshape(x, [4, 4]), 1)", "tl.dot(tl.reshape(x, [4, 4]), tl.reshape(y, [4, 4]))",
)  # fmt: skip
COMBINED = (
    "tl.cumprod(p)", "tl.cumprod(p, reverse=True)", "tl.associative_scan(x, 0, pick)",
    "tl.associative_scan(x, 0, pick, reverse=True)", "tl.reduce(p, 0, times)",
    "tl.associative_scan(tl.reshape(p, [4, 4]), 0, times)",
    "tl.associative_scan(tl.reshape(p, [4, 4]), 1, times, reverse=True)",
    "tl.reduce(tl.reshape(p, [4, 4]), 0, times)", "tl.reduce(tl.reshape(p, [4, 4]), 1, times)",
    "tl.associative_scan((p, x), 0, gated)[1]", "tl.associative_scan((p, x), 0, gated)[0] * y",
    "tl.associative_scan((p, x), 0, gated, reverse=True)[1] * tl.sin(y)",
    "tl.associative_scan((x, tl.arange(0, 16)), 0, later)[0] * y",
    "tl.associative_scan(x, 0, larger)", "tl.associative_scan((x, y, p, x * y), 0, matrices)[1]",
    "tl.reduce((x, y), 0, complex_product)[0] * 100", "tl.reduce(p, 0, root)",
    "tl.associative_scan((x, x, p, x), 0, matrices)[1]", "tl.reduce((x, x), 0, complex_product)[0]",
    "tl.associative_scan(x, 0, log_add)", "tl.max(x, 0, return_indices=True)[0] * y",
)  # fmt: skip


def program(expression: str) -> str:
    return f"""
@jit
def times(a, b):
    return a * b

@jit
def pick(a, b):
    return a * b + b

@jit
def gated(a, x, b, y):
    return a * b, x * b + y

@jit
def matrices(a, b, c, d, e, f, g, h):
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h

@jit
def complex_product(a, b, c, d):
    return a * c - b * d, a * d + b * c

@jit
def later(a, i, b, j):
    return tl.where(i > j, a, b), tl.maximum(i, j)

@jit
def larger(a, b):
    return tl.where(a > b, a, b)

@jit
def root(a, b):
    return tl.sqrt(a * a + b * b)

@jit
def log_add(a, b):
    m = tl.maximum(a, b)
    return m + tl.log(tl.exp(a - m) + tl.exp(b - m))

@jit
def soft_add(a, b):
    return a + tl.log(1 + tl.exp(b - a))

def kernel(x_ptr, y_ptr, p_ptr, out_ptr):
    at = tl.arange(0, 16)
    x = tl.load(x_ptr + at)
    y = tl.load(y_ptr + at)
    p = tl.load(p_ptr + at)
    r = {expression} + tl.zeros([1], tl.float64)
    flat = tl.reshape(r, [r.numel])
    tl.store(out_ptr + tl.arange(0, r.numel), flat)
"""


def arguments(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal(16), rng.standard_normal(16)
    return {"x_ptr": x, "y_ptr": y, "p_ptr": rng.uniform(0.5, 2.0, 16), "out_ptr": np.zeros(32)}


@pytest.mark.parametrize("expression", [*UNARY, *BINARY, *SHAPES, *COMBINED])
def test_tangents_are_those_of_differences(expression: str) -> None:
    args = arguments(1)
    module = forward_module(program(expression), args, {})
    tangents = directions(np.random.default_rng(2), args, ("x_ptr", "y_ptr", "p_ptr"))
    found = jvp(module, 1, args, tangents, ("out_ptr",))["out_ptr"]
    expected = differences(module, 1, args, tangents, ("out_ptr",))["out_ptr"]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)
    assert np.abs(found).max() > 0.01


@pytest.mark.parametrize("expression", [*UNARY, *BINARY, *SHAPES, *COMBINED])
def test_adjoints_are_the_transpose_of_tangents(expression: str) -> None:
    names = ("x_ptr", "y_ptr", "p_ptr")
    check_gradients(program(expression), 1, arguments(1), names, ("out_ptr",))


def by_doubling(self: Scan, state: Any, *args: Any) -> tuple[Any, ...]:
    """A scan that combines neighbours first."""
    found = [np.moveaxis(a, self.axis, 0) for a in args]
    if self.reverse:
        found = [a[::-1] for a in found]
    step = 1
    while step < len(found[0]):
        ahead = self.apply(state, [a[:-step] for a in found], [a[step:] for a in found])
        found = [np.concatenate([a[:step], b]) for a, b in zip(found, ahead, strict=True)]
        step *= 2
    if self.reverse:
        found = [a[::-1] for a in found]
    return tuple(np.moveaxis(a, 0, self.axis) for a in found)


@pytest.mark.parametrize("expression", [e for e in COMBINED if "pick" not in e])
def test_adjoints_do_not_depend_on_the_order_of_a_scan(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The combine function of the gradient is associative."""
    monkeypatch.setattr(Scan, "execute", by_doubling)
    names = ("x_ptr", "y_ptr", "p_ptr")
    check_gradients(program(expression), 1, arguments(1), names, ("out_ptr",))


def test_products_of_matrices_have_separate_entries() -> None:
    assert closed({(0, 1), (1, 2)}) == [(0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize("operator", ["maximum", "minimum"])
def test_a_tie_is_shared_by_halves(operator: str) -> None:
    args = arguments(1)
    args["y_ptr"][::2] = args["x_ptr"][::2]
    module = forward_module(program(f"tl.{operator}(x, y)"), args, {})
    ones = {"out_ptr": np.ones(32)}
    found = vjp(module, 1, args, ones, ("x_ptr", "y_ptr"))
    np.testing.assert_array_equal(found["x_ptr"][::2], 0.5)
    np.testing.assert_array_equal(found["y_ptr"][::2], 0.5)
    np.testing.assert_array_equal((found["x_ptr"] + found["y_ptr"])[1::2], 1.0)


def test_the_maximum_of_a_row_is_shared_evenly() -> None:
    args = arguments(1)
    args["x_ptr"][:4] = 9.0
    module = forward_module(program("tl.max(x)"), args, {})
    found = vjp(module, 1, args, {"out_ptr": np.ones(32)}, ("x_ptr",))["x_ptr"]
    np.testing.assert_array_equal(found, [0.25] * 4 + [0.0] * 12)


@pytest.mark.parametrize(
    ("expression", "limits"),
    [
        ("tl.sigmoid(x)", (0, 0)), ("x * tl.sigmoid(x)", (0, 1)), ("x * tl.sigmoid(-x)", (1, 0)),
        ("1 / (1 + tl.exp2(-x))", (0, 0)), ("2.0 * tl.sigmoid(2 * x) - 1.0", (0, 0)),
        ("tl.where(x > 20, x, tl.log(1 + tl.exp(x)))", (0, 1)),
        ("1.0 / tl.exp(x.to(tl.float32)).to(tl.float64)", (None, 0)),
        ("tl.log(1 + tl.exp(x))", (0, 1)), ("tl.log2(1 + tl.exp2(x))", (0, 1)),
        ("tl.log(tl.exp(-x) + 3.0)", (-1, 0)), ("tl.log(tl.exp(x))", (None, 1)),
        ("tl.extra.libdevice.log1p(tl.exp(x))", (0, 1)),
        ("tl.log(1 + tl.exp(x.to(tl.float32)))", (0, 1)),
        ("1 / tl.sqrt(1 + tl.exp(-x))", (0, 0)), ("tl.exp(-tl.exp(x))", (0, 0)),
        ("1 / (tl.exp(x) + tl.exp(-x))", (0, 0)), ("tl.exp(x) + tl.sigmoid(-x)", (0, np.inf)),
    ],
)  # fmt: skip
def test_exponentials_that_overflow(expression: str, limits: tuple[float | None, ...]) -> None:
    """The gradient far to the left and to the right, where a function is finite, or may be."""
    for side, limit in zip((-1e4, 1e4), limits, strict=True):
        if limit is None:
            continue
        args = arguments(1)
        args["x_ptr"][:] = side
        module = forward_module(program(expression), args, {})
        found = vjp(module, 1, args, {"out_ptr": np.ones(32)}, ("x_ptr",))
        np.testing.assert_array_equal(found["x_ptr"], limit)


@pytest.mark.parametrize(
    "expression",
    ["tl.sqrt(1 + tl.exp(x))", "tl.log(tl.exp(x) + tl.exp(-x))", "tl.log(1 + y + tl.exp(x))"],
)
def test_gradients_that_are_not_known_are_no_numbers(expression: str) -> None:
    """The kernel's own result is infinite, and the limit of the gradient is not 0."""
    args = arguments(1)
    args["x_ptr"][:] = 1e4
    module = forward_module(program(expression), args, {})
    found = vjp(module, 1, args, {"out_ptr": np.ones(32)}, ("x_ptr",))
    assert np.isnan(found["x_ptr"]).all()


@pytest.mark.parametrize(
    "expression",
    [
        "tl.log(1 + tl.exp(x) + 0.001)", "tl.log(2.0 + (1.0 + tl.exp(x)))",
        "tl.log(1 + tl.exp(x)) * 3 - tl.log(tl.exp(x) + 1.0) * 2", "tl.log(1e-300 + tl.exp(x))",
        "tl.log(1 + tl.exp(x.to(tl.float32) * 0.2).to(tl.float64)) * 5",
        "tl.log(1e160 + tl.exp(x)) + x - tl.log(1e160 + tl.exp(x))",
        "tl.log(1 + tl.exp(x)) * 2 - tl.log(tl.sqrt(tl.exp(x) + 1)) * 2",
    ],
)  # fmt: skip
def test_exponentials_that_are_great(expression: str) -> None:
    """In both modes, where a power is finite and the derivative is 1."""
    assert_slope_is_one(expression, np.full(16, 400.0))


def test_exponentials_that_are_great_in_a_combine_function() -> None:
    assert_slope_is_one("tl.associative_scan(x, 0, soft_add)", 400.0 * np.arange(16))


def assert_slope_is_one(expression: str, x: Any) -> None:
    args = {**arguments(1), "x_ptr": x}
    module = forward_module(program(expression), args, {})
    found = vjp(module, 1, args, {"out_ptr": np.ones(32)}, ("x_ptr",))["x_ptr"]
    tangent = jvp(module, 1, args, {"x_ptr": np.ones(16)}, ("out_ptr",))["out_ptr"][:16]
    np.testing.assert_allclose(found, 1.0, rtol=1e-6)
    np.testing.assert_allclose(tangent, 1.0, rtol=1e-6)


def test_gathers_of_many_elements_are_rejected() -> None:
    text = """
def kernel(x_ptr, y_ptr):
    at = tl.arange(0, 512)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.gather(x, at // 2, 0))
"""
    module = forward_module(text, {"x_ptr": np.ones(512), "y_ptr": np.ones(512)}, {})
    with pytest.raises(CompilationError, match="262144 pairs of an element and an index"):
        reverse_mode(module, ("x_ptr",), ("y_ptr",))


def test_operand_of_stop_gradient_is_constant() -> None:
    args = arguments(1)
    module = forward_module(program("x * tl.stop_gradient(tl.exp(y) * x)"), args, {})
    found = vjp(module, 1, args, {"out_ptr": np.ones(32)}, ("x_ptr", "y_ptr"))
    np.testing.assert_allclose(found["x_ptr"], np.exp(args["y_ptr"]) * args["x_ptr"])
    np.testing.assert_array_equal(found["y_ptr"], 0.0)
    tangents = {"x_ptr": np.ones(16), "y_ptr": np.ones(16)}
    forward = jvp(module, 1, args, tangents, ("out_ptr",))["out_ptr"][:16]
    np.testing.assert_allclose(forward, found["x_ptr"])
