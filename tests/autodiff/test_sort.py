"""Gradients through sorted tiles: of elements that are selected by their place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.autodiff.harness import check_gradients, cleaned
from tests.frontend.kernels import function_from, kernel_from
from tilewright.base.diagnostics import CompilationError
from tilewright.frontend.build import build_module
from tilewright.frontend.options import FrontendOptions

SORTED = (
    "tl.sort(x) * w", "tl.sort(x, descending=True) * w", "tl.sort(tl.reshape(x, [4, 4])) * w4",
    "tl.sum(tl.topk(x, 4)) * w", "tl.topk(tl.reshape(x, [2, 8]), 2, descending=False) + 0 * w28",
    "tl.topk(tl.reshape(x, [4, 4]), 4) * w4", "tl.bitonic_merge(tl.sort(x)) * w",
    "tl.sum(tl.where(at == 7, tl.sort(x), 0.0)) * w",
)  # fmt: skip


def program(expression: str) -> str:
    return f"""
def kernel(x_ptr, w_ptr, y_ptr):
    at = tl.arange(0, 16)
    x, w = tl.load(x_ptr + at), tl.load(w_ptr + at)
    w4, w28 = tl.reshape(w, [4, 4]), tl.sum(w)
    r = {expression}
    tl.store(y_ptr + tl.arange(0, r.numel), tl.reshape(r, [r.numel]))
"""


@pytest.mark.parametrize("expression", SORTED)
def test_places_have_the_derivatives_of_their_elements(expression: str) -> None:
    rng = np.random.default_rng(1)
    args = {"x_ptr": rng.standard_normal(16), "w_ptr": rng.standard_normal(16)}
    args["y_ptr"] = np.zeros(16)
    signature = dict.fromkeys(args, "*fp64")
    fn = kernel_from(program(expression))
    module = cleaned(build_module(fn, signature, {}, {}, FrontendOptions(derivatives=True)))
    check_gradients(module, 1, args, ("x_ptr", "w_ptr"), ("y_ptr",))


@pytest.mark.parametrize("element", ["float16", "float32", "float64"])
def test_launched_with_equal_elements_and_none_numbers(element: str) -> None:
    """Each place has one element, of equal ones as well; a NaN is last."""
    kernel = tw.jit(function_from(program("tl.sort(x) * w")))
    x = np.array([3, -1, 3, 0, np.inf, -np.inf, -0.0, 3, np.nan, 5, 6, 7, 8, 9, -2, -3], element)
    w, dy = np.arange(1, 17).astype(element), np.ones(16, element)
    y, dx, dw = np.zeros_like(x), np.full_like(x, 9), np.zeros_like(x)
    kernel[(1,)](x, w, y)
    into = {"x_ptr": dx, "w_ptr": dw}
    tw.grad(kernel)[(1,)](x, w, y, grads={"y_ptr": dy}, into=into)
    np.testing.assert_array_equal(dw, np.sort(x))
    assert sorted(dx) == list(w)  # each weight once
    np.testing.assert_array_equal(np.sort(dx[[0, 2, 7]]), w[6:9])
    places = dx[[5, 15, 14, 1, 6, 3, 9, 4, 8]]
    np.testing.assert_array_equal(places, [1, 2, 3, 4, 5, 6, 10, 15, 16])


def _large(more: str) -> Any:
    return tw.jit(
        function_from(f"""
def kernel(x_ptr, y_ptr):
    at = tl.arange(0, 512)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, {more})
""")
    )


def test_the_largest_tiles_are_rejected_where_their_gradient_is_needed() -> None:
    x = np.random.default_rng(0).standard_normal(512)
    y, dx, dy = np.zeros(512), np.zeros(512), np.ones(512)
    launch: dict[str, Any] = {"grads": {"y_ptr": dy}, "into": {"x_ptr": dx}}
    with pytest.raises(CompilationError, match=r"tl\.sort") as info:
        tw.grad(_large("tl.sort(x)"))[(1,)](x, y, **launch)
    assert "tl.store(y_ptr + at, tl.sort(x))" in str(info.value)
    largest = "x * tl.max(tl.sort(tl.stop_gradient(x)))"
    tw.grad(_large(largest))[(1,)](x, y, **launch)
    np.testing.assert_allclose(dx, x.max())
