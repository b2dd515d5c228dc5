"""Values that gradient kernels load, or compute again, because the kernel says so."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontend.kernels import function_from
from tilewright.autodiff import saved
from tilewright.base.diagnostics import CompilationError

PRODUCT = """
def kernel(a_ptr, b_ptr, p_ptr, y_ptr, m, n, k):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16), tl.program_id(1) * 16 + tl.arange(0, 16)
    acc = tl.zeros([16, 16], tl.float64)
    for t in range(0, k, 16):
        at = t + tl.arange(0, 16)
        left, right = (i < m)[:, None] & (at < k)[None, :], (at < k)[:, None] & (j < n)[None, :]
        a = tl.load(a_ptr + i[:, None] * k + at[None, :], mask=left, other=0.0)
        b = tl.load(b_ptr + at[:, None] * n + j[None, :], mask=right, other=0.0)
        acc = tl.dot(a, b, acc)
    acc = SAVE(acc)
    place, inside = i[:, None] * n + j[None, :], (i < m)[:, None] & (j < n)[None, :]
    tl.store(p_ptr + place, acc, mask=inside)
    tl.store(y_ptr + place, tl.sin(acc), mask=inside)
"""


def product(mark: str, dtype: Any = np.float64, change: float = 0.0) -> tuple[Any, Any, Any]:
    """The gradients of a product, what they should be, and the gradient; `change` is added to what
    the kernel has stored."""
    rng = np.random.default_rng(0)
    m, n, k = 40, 35, 37
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    dy, y, p = rng.standard_normal((m, n)), np.empty((m, n)), np.empty((m, n), dtype)
    kernel = tw.jit(function_from(PRODUCT.replace("SAVE", mark)))
    kernel[3, 3](a, b, p, y, m, n, k)
    p += dtype(change)
    backward = tw.grad(kernel, aux=("p_ptr",), deterministic=True)
    into = {"a_ptr": np.empty_like(a), "b_ptr": np.empty_like(b)}
    backward[3, 3](a, b, p, y, m, n, k, grads={"y_ptr": dy}, into=into)
    slope = dy * np.cos(a @ b + change)
    return into, {"a_ptr": slope @ b.T, "b_ptr": a.T @ slope}, backward


@pytest.mark.parametrize(("mark", "kernels"), [("tl.save", 2), ("tl.recompute", 3), ("", 3)])
def test_a_saved_result_of_a_loop_needs_no_kernel_that_runs_the_loop(
    mark: str, kernels: int
) -> None:
    into, expected, backward = product(mark)
    for name, value in expected.items():
        np.testing.assert_allclose(into[name], value, rtol=1e-11)
    assert len(backward.kernels) == kernels


def test_what_is_loaded_is_what_the_array_holds() -> None:
    into, expected, _ = product("tl.save", change=0.5)
    np.testing.assert_allclose(into["a_ptr"], expected["a_ptr"], rtol=1e-11)
    into, expected, _ = product("tl.save", np.float16)
    error = np.abs(into["a_ptr"] - expected["a_ptr"]).max() / np.abs(expected["a_ptr"]).max()
    assert 1e-6 < error < 1e-2


LOGARITHM = """
def kernel(x_ptr, y_ptr, lse_ptr, n):
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    m, l = tl.full([4], -float("inf"), tl.float64), tl.zeros([4], tl.float64)
    for k in range(n):
        s = tl.load(x_ptr + i * n + k)
        largest = tl.maximum(m, s)
        l = l * tl.exp(m - largest) + tl.exp(s - largest)
        m = largest
    lse = m + tl.log(l)
    tl.store(lse_ptr + i, MARK(lse))
    tl.store(y_ptr + i, lse * lse)
"""


@pytest.mark.parametrize("mark", ["", "tl.save", "tl.recompute"])
def test_a_logarithm_of_a_sum_is_loaded_unless_it_is_to_be_computed(mark: str) -> None:
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((8, 5)), rng.standard_normal(8)
    y, lse, dx = np.empty(8), np.empty(8), np.empty_like(x)
    kernel = tw.jit(function_from(LOGARITHM.replace("MARK", mark)))
    kernel[(2,)](x, y, lse, 5)
    exact = np.log(np.exp(x).sum(1))
    np.testing.assert_allclose(lse, exact)
    if mark == "tl.recompute":
        lse[:] = np.nan  # overwritten
    backward = tw.grad(kernel, aux=("lse_ptr",))
    backward[(2,)](x, y, lse, 5, grads={"y_ptr": dy}, into={"x_ptr": dx})
    expected = (2 * exact * dy)[:, None] * np.exp(x - exact[:, None])
    np.testing.assert_allclose(dx, expected, rtol=1e-11)
    assert ("broadcast_to(lse_ptr" in backward.source()) == (mark != "tl.recompute")


ROWS = """
def kernel(x_ptr, w_ptr, r_ptr, y_ptr, n):
    row, at = tl.program_id(0), tl.arange(0, 8)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    scale = tl.save(tl.rsqrt(tl.sum(x * x) / n + 1e-3))
    tl.store(r_ptr + row, scale)
    y = x * scale * tl.load(w_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + row * n + at, y, mask=at < n)
"""


def test_a_statistic_of_a_row_is_loaded_where_workers_add_up_weights() -> None:
    rng = np.random.default_rng(0)
    x, w, dy = rng.standard_normal((20, 5)), rng.standard_normal(5), rng.standard_normal((20, 5))
    found: list[Any] = []
    for text in (ROWS, ROWS.replace("tl.save", "")):
        kernel, r, y = tw.jit(function_from(text)), np.empty(20), np.empty_like(x)
        kernel[(20,)](x, w, r, y, 5)
        into = {"x_ptr": np.empty_like(x), "w_ptr": np.empty_like(w)}
        backward = tw.grad(kernel, aux=("r_ptr",), deterministic=True)
        backward[(20,)](x, w, r, y, 5, grads={"y_ptr": dy}, into=into)
        found.append(into)
        assert ("r_ptr +" in backward.source()) == ("tl.save" in text)
    for name in into:
        np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-12)


def test_a_second_derivative_computes_it_again() -> None:
    """The tangent of what is saved is not in memory."""
    kernel = tw.jit(function_from(LOGARITHM.replace("MARK", "tl.save")))
    plain = tw.jit(function_from(LOGARITHM.replace("MARK", "")))
    rng = np.random.default_rng(0)
    x, v, dy = rng.standard_normal((8, 5)), rng.standard_normal((8, 5)), rng.standard_normal(8)
    found: list[Any] = []
    for each in (kernel, plain):
        y, lse, gx = np.empty(8), np.empty(8), np.empty_like(x)
        each[(2,)](x, y, lse, 5)
        second = tw.grad(tw.grad(each, aux=("lse_ptr",)))
        second[(2,)](
            x, y, lse, 5, grads={"y_ptr": dy}, directions={"x_ptr": v}, into={"x_ptr": gx}
        )  # fmt: skip
        found.append(gx)
    np.testing.assert_allclose(*found, rtol=1e-11)


# -- conditions ------------------------------------------------------------------------------------

LANES = """
def kernel(x_ptr, w_ptr, r_ptr, y_ptr, n):
    row, at = tl.program_id(0), tl.arange(0, 8)
    x = tl.save(tl.load(x_ptr + row * n + at, mask=at < n, other=2.0))
    tl.store(r_ptr + row * n + at, x, mask=at < n)
    tl.store(y_ptr + row, tl.sum(x * x * x) * tl.sum(x))
"""
MAXIMUM = """
def kernel(x_ptr, w_ptr, r_ptr, y_ptr, n):
    row = tl.program_id(0)
    m, l = tl.full([], -float("inf"), tl.float64), tl.full([], 0.0, tl.float64)
    for k in range(n):
        s = tl.load(x_ptr + row * n + k)
        largest = tl.maximum(m, s)
        p = tl.save(tl.exp(s - largest))
        tl.store(r_ptr + row * n + k, p)
        l = l * tl.exp(m - largest) + p
        m = largest
    tl.store(y_ptr + row, m + tl.log(l))
"""
PLACES = """
def kernel(x_ptr, w_ptr, r_ptr, y_ptr, n):
    row, at = tl.program_id(0), tl.arange(0, 8)
    w = tl.save(tl.sin(tl.load(w_ptr + at, mask=at < n, other=0.0)))
    tl.store(r_ptr + row * n + at, w, mask=at < n)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(tl.where(at < n, w * w * x, 0.0)))
"""
TWICE = LANES.replace("r_ptr + row * n", "r_ptr + row // 2 * n")
UNSTORED = LANES.replace("r_ptr + row * n + at, x,", "r_ptr + row * n + at, x * 2,")
BRANCH = LANES.replace("tl.store(r_ptr", "if n > 2:\n        tl.store(r_ptr")
REJECTED = {
    "lanes": (LANES, "masked-off lanes of the store are used at line 5"),
    "running maximum": (MAXIMUM, "depends on the running maximum of the loop at line 4"),
    "places": (PLACES, "several programs compute the same value"),
    "twice": (TWICE, "elements of r_ptr may be stored more than once"),
    "not stored": (UNSTORED, "but is not stored"),
    "stored in a branch": (BRANCH, "but is not stored"),
}


def gradient(text: str) -> tuple[Any, Any]:
    x = np.random.default_rng(0).standard_normal((6, 5))
    y, r, into = np.empty(6), np.zeros((6, 5)), {"x_ptr": np.empty_like(x)}
    kernel = tw.jit(function_from(text))
    kernel[(6,)](x, x[0], r, y, 5)
    backward = tw.grad(kernel, aux=("r_ptr",))
    backward[(6,)](x, x[0], r, y, 5, grads={"y_ptr": np.ones(6)}, into=into)
    return into["x_ptr"], x


@pytest.mark.parametrize("name", REJECTED)
def test_what_cannot_be_loaded_is_an_error(name: str) -> None:
    text, message = REJECTED[name]
    with pytest.raises(CompilationError, match=message):
        gradient(text)


@pytest.mark.parametrize(
    ("name", "condition"), [("lanes", "_require_lanes"), ("running maximum", "_require_fixed")]
)
def test_without_a_condition_the_gradient_is_wrong(
    name: str, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, _ = REJECTED[name]
    expected, _ = gradient(text.replace("tl.save", ""))
    monkeypatch.setattr(saved, condition, lambda *args: None)
    found, _ = gradient(text)
    assert np.abs(found - expected).max() > 1e-3


def test_lanes_that_are_replaced_are_not_used() -> None:
    text = LANES.replace("tl.sum(x * x * x) * tl.sum(x)", "tl.sum(tl.where(at < n, x * x * x, 0))")
    found, x = gradient(text)
    np.testing.assert_allclose(found, 3 * x * x)


def test_programs_that_compute_the_same_must_be_one() -> None:
    """A value that does not vary along an axis, along which it is stored in different places."""
    text = """
def kernel(x_ptr, p_ptr, y_ptr):
    j = tl.arange(0, 4)
    v = tl.save(tl.sin(tl.load(x_ptr + j)))
    tl.store(p_ptr + tl.program_id(0) * 4 + j, v)
    tl.store(y_ptr + tl.program_id(0) * 4 + j, v * v)
"""
    x = np.array([0.1, 0.2, 0.3, 0.4])
    kernel = tw.jit(function_from(text))
    backward = tw.grad(kernel, aux=("p_ptr",))
    for programs in (1, 2):
        p, y, dx = np.zeros(4 * programs), np.zeros(4 * programs), np.full(4, np.nan)
        kernel[(programs,)](x, p, y)
        launch: Any = partial(backward[(programs,)], x, p, y, grads={"y_ptr": y * 0 + 1})
        if programs == 2:
            with pytest.raises(CompilationError, match="several programs compute the same value"):
                launch(into={"x_ptr": dx})
        else:
            launch(into={"x_ptr": dx})
            np.testing.assert_allclose(dx, 2 * np.sin(x) * np.cos(x))
