"""What tiles hold in rows, columns and batches that are not stored reaches no gradient: 0 · NaN is
NaN in a product, which adds up a whole axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.autodiff.harness import check_gradients, cleaned, forward_module, run_forward, vjp
from tests.frontend.kernels import function_from
from tests.lowering.simt.harness import run_emulated
from tilewright.autodiff.reverse import reverse_mode

INPUTS = ("x_ptr", "w_ptr", "u_ptr")

KERNEL = """
@jit
def times(a, b):
    return a * b
def kernel(x_ptr, w_ptr, u_ptr, y_ptr, m):
    i, j = tl.arange(0, 4), tl.arange(0, 4)
    at, whole = i[:, None] * 4 + j[None, :], (i < 4)[:, None] & (j < 4)[None, :]
    rows = (i < m)[:, None] & (j < 4)[None, :]
    inside = rows
    w, u = tl.load(w_ptr + at), tl.load(u_ptr + at)
    x = tl.load(x_ptr + at, mask=rows, other=0.0)
{compute}
    tl.store(y_ptr + at, y, mask=inside)
"""
PRODUCTS = {
    "of a quotient": "y = tl.dot(w / x, u)",
    "of a quotient, transposed": "y = tl.trans(tl.dot(tl.trans(u), tl.trans(w / x)))",
    "in columns": "inside = tl.trans(rows)\ny = tl.dot(u, w / tl.trans(x))",
    "of normalised rows": "y = tl.dot(x / tl.sqrt(tl.sum(x * x, 1))[:, None], u)",
    "of a row's function": "y = tl.dot(w * tl.log(tl.sum(x, 1))[:, None], u)",
    "of what is loaded as NaN": "v = tl.load(x_ptr + at, mask=rows, other=float('nan'))\n"
    "y = tl.dot(v, u) + tl.dot(w, u)",
    "of what is loaded without a mask": "v = tl.load(x_ptr + at)\ny = tl.dot(v, u)",
    "of what is loaded under a wider mask": "v = tl.load(x_ptr + at, mask=(i < m + 1)[:, None])\n"
    "y = tl.dot(v, u)",
    "of a product": "y = tl.dot(tl.dot(w / x, u), w)",
    "in a loop": "y = tl.zeros([4, 4], tl.float64)\nfor k in range(2):\n"
    "    y = tl.dot(tl.sin(w / x) + k, u, y)",
    "of what a loop carries": "y = w\nfor k in range(2):\n    y = tl.dot(tl.sin(y / x), u)",
    "of what a loop scales": "y = w\nfor k in range(2):\n    y = tl.sin(y / x) * tl.sum(u * w)",
    "stored under a mask of both axes": "inside = at < m * 4 - 2\ny = tl.dot(w / x, u)",
    "stored where a value is positive": "inside = rows & (u > 0.2)\ny = tl.dot(w / x, u)",
    "stored twice": "tl.store(z_ptr + at, tl.dot(w / x, u), mask=(i < m - 1)[:, None])\n"
    "y = tl.dot(w / x, u)",
    "of two masks": "y = tl.where((j < 2)[None, :], tl.dot(w / x, u), 0.0) + "
    "tl.where((i < 2)[:, None], tl.dot(w / x, w), 0.0)",
    "in a branch": "y = w\nif m > 1:\n    y = tl.dot(w / x, u)",
    "of a running sum": "y = tl.dot(tl.cumsum(w / x, 1), u)",
    "of a running product": "y = tl.dot(tl.associative_scan(w / x, 1, times), u)",
    "with a row that all share": "y = tl.dot(w / x, u) * tl.sum(u, 0)[None, :]",
    "in batches": "a, b = tl.broadcast_to((w / x)[:, None, :], [4, 4, 4]), "
    "tl.broadcast_to(u[None, :, :], [4, 4, 4])\ny = tl.sum(tl.dot(a, b), 1)",
}


# Elements of an array with two uses, of which one is not stored in all rows.
SUMS = {
    "a quotient and a product": "tl.store(z_ptr + at, w * 2.0)\ny = w / x",
    "a quotient and a product, with a shared row": "v = w + tl.sum(u, 0)[None, :]\n"
    "tl.store(z_ptr + at, v * 2.0)\ny = v / x",
    "two quotients": "tl.store(z_ptr + at, w / tl.trans(x), mask=tl.trans(rows))\ny = w / x",
    "a product and a factor": "tl.store(z_ptr + at, tl.dot(u, w))\ny = w / x",
}
KINDS = {**PRODUCTS, **SUMS}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_not_stored_reach_no_gradient(kind: str) -> None:
    text, args = kernel_of(kind)
    check_gradients(text, 1, args, INPUTS, outputs_of(args))


@pytest.mark.parametrize("kind", ["of a quotient", "of what a loop carries", *SUMS])
def test_nor_when_they_are_launched(kind: str) -> None:
    text, args = kernel_of(kind)
    run_forward(forward_module(text, args, {}), 1, args)
    into = {name: np.full((4, 4), np.nan) for name in INPUTS}
    grads = {name: np.ones((4, 4)) for name in outputs_of(args)}
    tw.grad(tw.jit(function_from(text)))[(1,)](**args, grads=grads, into=into)
    assert all(np.isfinite(gradient).all() for gradient in into.values())


@pytest.mark.parametrize("kind", ["of a quotient", "in batches", "two quotients"])
def test_nor_on_an_emulated_gpu(kind: str) -> None:
    text, args = kernel_of(kind)
    module = forward_module(text, args, {})
    grads = {name: np.ones((4, 4)) for name in outputs_of(args)}
    expected = vjp(module, 1, args, grads, INPUTS, atomic=INPUTS)
    derived = reverse_mode(module, INPUTS, tuple(grads), atomic=INPUTS)
    found = {name: np.zeros((4, 4)) for name in INPUTS}
    of = {"argument": args, "cotangent": grads, "gradient": found}
    values = [of[role.kind][role.name] for role in derived.roles]
    run_emulated(cleaned(derived.module), (1, 1, 1), values, warps=1, lanes=4)
    for name in INPUTS:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12)
        assert np.isfinite(found[name]).all()


# What is computed where it is not chosen is NaN there, and so is its derivative.
CHOICES = {
    "a logarithm": "y = tl.where(x > 0, tl.log(x) * w, 0.0)",
    "a root, otherwise": "y = tl.where(x <= 0, w, tl.sqrt(x))",
    "a logarithm and a product": "y = tl.where(x > 0, tl.log(x), 0.0) + x * w",
    "one in another": "y = tl.where(x > 0, tl.where(w > 0.7, tl.log(x), x), w)",
    "two that exclude each other": "y = tl.where(x > 0, tl.log(x), tl.log(-x))",
    "with a row that all share": "y = tl.where(x > 0, tl.sqrt(x) * tl.sum(u, 0)[None, :], w)",
    "in a product": "y = tl.dot(tl.where(x > 0, tl.log(x), 0.0), u)",
    "in a running sum": "y = tl.cumsum(tl.where(x > 0, tl.log(x), w), 1)",
}


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("kind", CHOICES)
def test_what_is_not_chosen_reaches_no_gradient(kind: str, masked: bool) -> None:
    text = KERNEL.format(compute="    " + CHOICES[kind])
    if not masked:
        text = text.replace("(i < m)", "(i < 4)").replace(", mask=rows, other=0.0", "")
        text = text.replace(", mask=inside", "")
    rng = np.random.default_rng(0)
    args: dict[str, Any] = {f"{name}_ptr": rng.uniform(0.5, 1, (4, 4)) for name in "xwu"}
    args["x_ptr"] *= rng.choice([-1.0, 1.0], (4, 4))
    check_gradients(text, 1, {**args, "y_ptr": np.zeros((4, 4)), "m": 3}, INPUTS, ("y_ptr",))


def outputs_of(args: dict[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in ("y_ptr", "z_ptr") if name in args)


def kernel_of(kind: str) -> tuple[str, dict[str, Any]]:
    """A kernel that stores three rows of four, the fourth of which is NaN or infinite."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1, (4, 4))
    x[3] = np.nan
    lines = "\n".join("    " + line for line in KINDS[kind].splitlines())
    args: dict[str, Any] = {"x_ptr": x}
    args |= {f"{name}_ptr": rng.uniform(0.5, 1, (4, 4)) for name in "wu"}
    args |= {f"{name}_ptr": np.zeros((4, 4)) for name in "yz" if f"{name}_ptr" in lines + "y_ptr"}
    text = KERNEL.format(compute=lines)
    return text.replace("y_ptr,", "y_ptr, z_ptr,") if "z_ptr" in args else text, {**args, "m": 3}
