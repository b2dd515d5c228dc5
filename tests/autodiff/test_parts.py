"""Gradients of which each program stores its part in a row of partial sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.autodiff.harness import (
    check_gradients,
    copied,
    forward_module,
    launch_points,
    parts_vjp,
    run_forward,
    vjp,
)
from tests.frontend.kernels import function_from
from tilewright.analysis.blocks import BlockFinder
from tilewright.autodiff import coarsen
from tilewright.autodiff.arrays import arrays_of

HEAD = """
def kernel(x_ptr, w_ptr, y_ptr, n):
    p, q = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, 4)
"""
SCAN = """
    h = tl.zeros([4], tl.float64)
    for t in range(n):
        x = tl.load(x_ptr + ((q * 3 + p) * n + t) * 4 + i)
        w = tl.load(w_ptr + (q * n + t) * 4 + i)
        h = h * tl.sin(w) + x * w
        tl.store(y_ptr + ((q * 3 + p) * n + t) * 4 + i, h)
"""
BRANCH = """
    x = tl.load(x_ptr + (q * 3 + p) * 4 + i)
    if n > 2:
        x = x * tl.load(w_ptr + q * 4 + i)
    tl.store(y_ptr + (q * 3 + p) * 4 + i, x)
"""
# Not for every program of a row alike: its elements, whether they are loaded, and how often.
VARYING_BRANCH = BRANCH.replace("n > 2", "p < 2")
VARYING_LOOP = """
    x = tl.load(x_ptr + (q * 3 + p) * 4 + i)
    for _ in range(p):
        x = x * 0.5 + tl.load(w_ptr + q * 4 + i)
    tl.store(y_ptr + (q * 3 + p) * 4 + i, x)
"""
CARRIED_ADDRESS = """
    x = tl.load(x_ptr + (q * 3 + p) * 4 + i)
    at = q * 4 * n
    for t in range(n):
        x += tl.load(w_ptr + at % 64 + i)
        at += 4 + p * 4
    tl.store(y_ptr + (q * 3 + p) * 4 + i, x)
"""
IN_WHILE = """
    x = tl.load(x_ptr + (q * 3 + p) * 4 + i)
    t = 0
    while t < n:
        x = x * 0.5 + tl.load(w_ptr + (q * n + t) * 4 + i)
        t += 1
    tl.store(y_ptr + (q * 3 + p) * 4 + i, x)
"""
GRID = (3, 2)


def arguments(n: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(256) for name in ("x_ptr", "w_ptr")}
    return {**arrays, "y_ptr": np.zeros(256), "n": n}


def parts(body: str, most: int = 1 << 20) -> coarsen.Parts | None:
    args = arguments()
    module = forward_module(HEAD + body, args, {})
    shared = [a for a in arrays_of(module.entry).values() if a.name == "w_ptr"]
    points = launch_points(module, GRID, args)
    return coarsen.parts_of(module.entry, shared, points, BlockFinder(), most)


@pytest.mark.parametrize("body", [SCAN, BRANCH], ids=["loop", "branch"])
def test_programs_along_an_axis_have_rows(body: str) -> None:
    found = parts(body)
    assert found is not None
    assert found.axes == {"w_ptr": (0,)}
    assert parts(body, most=2) is None, "there are three programs along the axis"
    taken: dict[str, str] = {}
    check_gradients(HEAD + body, GRID, arguments(), ("x_ptr", "w_ptr"), ("y_ptr",), schedules=taken)
    assert taken["w_ptr"] == "parts of programs"


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("body", [SCAN, BRANCH], ids=["loop", "branch"])
def test_launches_add_up_rows(body: str, accumulate: bool) -> None:
    text, args = HEAD + body, arguments()
    module = forward_module(text, args, {})
    run_forward(module, GRID, args)
    cotangents = {"y_ptr": np.random.default_rng(1).standard_normal(256)}
    wrt = ("x_ptr", "w_ptr")
    expected = vjp(module, GRID, copied(args), cotangents, wrt, atomic=wrt)
    backward = tw.grad(tw.jit(function_from(text)))
    into = {name: np.ones(256) for name in wrt}
    for times in range(1, 4):
        backward[GRID](**copied(args), grads=cotangents, into=into, accumulate=accumulate)
        for name in wrt:
            by_now = 1 + times * expected[name] if accumulate else expected[name]
            np.testing.assert_allclose(into[name], by_now, rtol=1e-9, atol=1e-12)
    if body is SCAN:
        assert "stored by each program along axis 0 in its own row" in backward.explain()


BODIES = {
    "branch": VARYING_BRANCH, "loop": VARYING_LOOP, "address": CARRIED_ADDRESS, "while": IN_WHILE,
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_programs_that_differ_along_an_axis_have_none(body: str) -> None:
    assert parts(body) is None
    check_gradients(HEAD + body, GRID, arguments(), ("x_ptr", "w_ptr"), ("y_ptr",))


@pytest.mark.parametrize("body", [VARYING_BRANCH, VARYING_LOOP], ids=["branch", "loop"])
def test_conditions_and_bounds_must_not_vary(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that condition, gradients are wrong."""
    monkeypatch.setattr(coarsen, "_is_at_times", lambda *args: False)
    require_wrong(body)


def require_wrong(body: str) -> None:
    args = arguments()
    args["w_ptr"] = args["w_ptr"][:8]  # no more than the programs load: rows need not be zeroed
    module = forward_module(HEAD + body, args, {})
    run_forward(module, GRID, args)
    cotangents, wrt = {"y_ptr": np.ones(256)}, ("x_ptr", "w_ptr")
    expected = vjp(module, GRID, copied(args), cotangents, wrt, atomic=wrt)
    found = parts_vjp(module, GRID, args, cotangents, wrt)
    assert found is not None
    assert not np.allclose(found["w_ptr"], expected["w_ptr"])


@tw.jit
def decayed(x_ptr, a_ptr, b_ptr, y_ptr, n, width, BLOCK: tl.constexpr):
    """A: for each column, of all sequences; b: for each step of a sequence, of all columns."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at, mask=at < width, other=0.0)
    h = tl.zeros([BLOCK], tl.float64)
    for t in range(n):
        row = tl.program_id(1) * n + t
        x = tl.load(x_ptr + row * width + at, mask=at < width, other=0.0)
        h = h * tl.sin(a) + x * tl.load(b_ptr + row)
        tl.store(y_ptr + row * width + at, h, mask=at < width)


def test_each_array_has_separate_axes() -> None:
    torch = pytest.importorskip("torch")
    batch, n, width = 3, 7, 20
    x, a, b, dy = (
        torch.randn(*shape, dtype=torch.float64)
        for shape in ((batch, n, width), (width,), (batch, n), (batch, n, width))
    )
    y, into = torch.empty_like(x), {}
    for name, array in (("x_ptr", x), ("a_ptr", a), ("b_ptr", b)):
        into[name] = torch.full_like(array, torch.nan)
    backward = tw.grad(decayed)
    for _ in range(3):
        backward[(3, batch)](
            x, a, b, y, n, width, BLOCK=8, grads={"y_ptr": dy}, into=into
        )  # fmt: skip
    assert "a_ptr: stored by each program along axis 1" in backward.explain()
    assert "b_ptr: stored by each program along axis 0" in backward.explain()
    leaves = [t.clone().requires_grad_() for t in (x, a, b)]
    h, rows = torch.zeros(batch, width, dtype=torch.float64), []
    for t in range(n):
        h = h * leaves[1].sin() + leaves[0][:, t] * leaves[2][:, t, None]
        rows.append(h)
    expected = torch.autograd.grad(torch.stack(rows, 1), leaves, dy)
    for found, want in zip(into.values(), expected, strict=True):
        torch.testing.assert_close(found, want)
