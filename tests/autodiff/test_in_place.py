"""Gradients of kernels that update arrays in place: where no load has what the launch stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontend.kernels import function_from
from tilewright.base.diagnostics import CompilationError

KERNEL = """
def kernel(x_ptr, y_ptr, n):
    at = tl.program_id(0) * 8 + tl.arange(0, 8)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    y = tl.load(y_ptr + at, mask=inside, other=0.0)
    tl.store(y_ptr + at, y * x, mask=inside)
"""
N = 20


def arguments(n: int = N) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {"x_ptr": rng.standard_normal(N), "y_ptr": rng.standard_normal(N), "n": n}


def gradients(
    text: str, args: dict[str, Any], *wrt: str, **more: Any
) -> tuple[Any, dict[str, Any]]:
    """The gradient of y's new values that a launch is given, and what it returns for it."""
    kernel = tw.jit(function_from(text))
    kernel[(3,)](**args)
    dy = np.random.default_rng(2).standard_normal(N)
    into = {name: np.full(N, np.nan) for name in wrt}
    tw.grad(kernel, aux=tuple(args)[3:])[(3,)](**args, grads={"y_ptr": dy}, into=into, **more)
    return dy, into


def test_the_old_values_have_a_gradient() -> None:
    args = arguments()
    dy, into = gradients(KERNEL, args, "y_ptr")
    np.testing.assert_allclose(into["y_ptr"], dy * args["x_ptr"], rtol=1e-14)


def test_what_is_added_has_a_gradient() -> None:
    args, text = arguments(), KERNEL.replace("y * x", "2.0 * y + tl.sin(x)")
    dy, into = gradients(text, args, "x_ptr", "y_ptr")
    np.testing.assert_allclose(into["x_ptr"], dy * np.cos(args["x_ptr"]), rtol=1e-14)
    np.testing.assert_allclose(into["y_ptr"], 2 * dy, rtol=1e-14)


def test_a_stored_value_that_is_needed_is_loaded() -> None:
    text = KERNEL.replace("n):", "n, z_ptr):").replace("y * x, mask=inside)", "s, mask=inside)\n"
        "    tl.store(z_ptr + at, tl.where(inside, s, 0.0) * s, mask=inside)").replace(
        "    tl.store(y_ptr", "    s = tl.save(x + y)\n    tl.store(y_ptr")  # fmt: skip
    args = {**arguments(), "z_ptr": np.zeros(N)}
    kernel = tw.jit(function_from(text))
    kernel[(3,)](**args)
    dy, dz = np.random.default_rng(2).standard_normal((2, N))
    into = {name: np.full(N, np.nan) for name in ("x_ptr", "y_ptr")}
    tw.grad(kernel)[(3,)](**args, grads={"y_ptr": dy, "z_ptr": dz}, into=into)
    for found in into.values():
        np.testing.assert_allclose(found, dy + 2 * args["y_ptr"] * dz, rtol=1e-13)


def test_an_array_in_place_may_have_no_gradient_itself() -> None:
    text = KERNEL.replace("n):", "n, z_ptr):") + "    tl.store(z_ptr + at, tl.sin(x), mask=inside)"
    args = {**arguments(), "z_ptr": np.zeros(N)}
    kernel = tw.jit(function_from(text))
    kernel[(3,)](**args)
    into = {"x_ptr": np.full(N, np.nan)}
    backward = tw.grad(kernel, aux=("y_ptr",))
    backward[(3,)](**args, grads={"z_ptr": np.ones(N)}, into=into)
    np.testing.assert_allclose(into["x_ptr"], np.cos(args["x_ptr"]), rtol=1e-14)


def test_elements_that_are_not_updated_have_the_gradient_of_the_result() -> None:
    with pytest.raises(ValueError, match="y_ptr is updated in place, and the kernel may leave"):
        gradients(KERNEL, arguments(n=19), "y_ptr")
    with pytest.raises(ValueError, match="y_ptr is updated in place, and the kernel may leave"):
        gradients(KERNEL, arguments(n=19), "y_ptr", accumulate=True)


def test_there_is_no_second_derivative() -> None:
    args, ones = arguments(), np.ones(N)
    second = tw.grad(tw.grad(tw.jit(function_from(KERNEL))))
    for into in ({"y_ptr": np.ones(N)}, {}):
        with pytest.raises(ValueError, match="y_ptr is updated in place: its gradient has no"):
            second[(3,)](
                **args, grads={"y_ptr": ones}, directions={"y_ptr": ones}, into=into,
                into_grads={"y_ptr": np.ones(N)},
            )  # fmt: skip


LINEAR = KERNEL.replace("y * x", "y + x")
REJECTED = {
    "the old value is needed": KERNEL,
    "the store is of other elements": LINEAR.replace("y_ptr + at, y", "y_ptr + (at + 1) % n, y"),
    "the store has another mask": LINEAR.replace("y + x, mask=inside", "y + x, mask=at < n - 1"),
    "programs have the same elements": LINEAR.replace("tl.program_id(0) * 8", "0"),
    "the store comes first": LINEAR.replace("    y =", "    tl.store(y_ptr + at, x, mask=inside)\n"
                                            "    y ="),
    "an element is updated twice": LINEAR
    + "    z = tl.load(y_ptr + at, mask=inside)\n    tl.store(y_ptr + at, z + x, mask=inside)",
    "iterations have the same elements": LINEAR.replace("    y =", "    for k in range(n):\n"
                                                        "     y =").replace("    tl.store",
                                                                            "     tl.store"),
    "the load is behind the store": KERNEL[: KERNEL.index("    y =")].replace("n):", "n, z_ptr):")
    + "    tl.store(y_ptr + at, x, mask=inside)\n    y = tl.load(y_ptr + at, mask=inside)\n"
    "    tl.store(z_ptr + at, y, mask=inside)",
    "the load is volatile": LINEAR.replace("(y_ptr + at, mask", "(y_ptr + at, volatile=True, mask"),
    "a neighbour is read": LINEAR.replace("y + x", "y + x + tl.load(y_ptr + at + 1, mask=at < n "
                                          "- 1, other=0.0)"),
    "the store is in a branch": LINEAR.replace("    tl.store", "    if n > 3:\n     tl.store"),
}  # fmt: skip


@pytest.mark.parametrize("why", REJECTED)
def test_it_is_rejected_where_a_load_might_have_a_new_value(why: str) -> None:
    check_rejected(why)


def check_rejected(why: str) -> None:
    args, results = arguments(), ["y_ptr"]
    if "z_ptr" in REJECTED[why]:
        args["z_ptr"] = np.zeros(N)
        results.append("z_ptr")
    backward = tw.grad(tw.jit(function_from(REJECTED[why])))
    with pytest.raises(CompilationError, match="y_ptr is loaded here and stored at line"):
        backward[(3,)](
            **args, grads={name: np.ones(N) for name in results}, into={"x_ptr": np.ones(N)}
        )
