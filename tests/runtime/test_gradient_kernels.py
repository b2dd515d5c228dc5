"""The kernels of tests/autodiff, compiled for the CPU: gradients are those of the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.autodiff.cases import NAMES, OVERLAPPING, case
from tests.autodiff.harness import copied, forward_module, run_forward, vjp
from tests.frontend.kernels import function_from
from tilewright.base.diagnostics import CompilationError


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*NAMES, OVERLAPPING])
def test_gradients_equal_those_of_the_interpreter(name: str) -> None:
    text, grid, args, wrt, outputs, constexprs = case(name)
    module = forward_module(text, args, constexprs)
    run_forward(module, grid, args)
    rng = np.random.default_rng(0)
    cotangents = {n: rng.standard_normal(args[n].shape) for n in outputs}
    expected = vjp(module, grid, copied(args), cotangents, wrt)
    into = {n: np.full_like(args[n], np.nan) for n in wrt}
    tables = tuple(name for name in args if name.startswith("starts"))
    backward = tw.grad(tw.jit(function_from(text)), deterministic=True, tables=tables)
    launch = backward[grid if isinstance(grid, tuple) else (grid,)]
    launch(**copied(args), **constexprs, grads=cotangents, into=into)
    for key, value in expected.items():
        np.testing.assert_allclose(into[key], value, rtol=1e-10, atol=1e-13)
    once = {key: value.copy() for key, value in into.items()}
    launch(**copied(args), **constexprs, grads=cotangents, into=into)
    for key, value in once.items():
        np.testing.assert_array_equal(into[key], value)


TWO_LOOPS = """
def kernel(x_ptr, y_ptr):
    row, head = tl.program_id(0), tl.program_id(1)
    total = tl.full((), 0.0, tl.float64)
    for j in range(0, row):
        total += tl.load(x_ptr + j)
    for j in range(row, row + 1):
        total += 3.0 * tl.load(x_ptr + j)
    tl.store(y_ptr + head * 2 + row, total)
"""


def test_gradient_of_loads_in_two_loops_has_both() -> None:
    """A grid of the first loop's tiles has few programs, one of the second loop's enough: it was
    taken for both. The form is that of causal attention."""
    x, y, into = np.ones(2), np.empty((4, 2)), {"x_ptr": np.empty(2)}
    grads = np.arange(8.0).reshape(4, 2)
    backward = tw.grad(tw.jit(function_from(TWO_LOOPS)))
    backward[2, 4](x, y, grads={"y_ptr": grads}, into=into)
    first, second = grads.sum(0)
    assert into["x_ptr"].tolist() == [3 * first + second, 3 * second]


SINGLE_ROWS = """
def kernel(x_ptr, y_ptr, rows):
    head, row, column = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i, j = row * 2 + tl.arange(0, 2), tl.arange(0, 4)
    at = ((column * 2 + head) * rows + i)[:, None] * 4 + j[None, :]
    x = tl.load(x_ptr + at, mask=(i < rows)[:, None], other=0.0)
    tl.store(y_ptr + at, x * x, mask=(i < rows)[:, None])
"""


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_heads_of_few_rows_each_are_stored_without_atomics(rows: int) -> None:
    """A dimension of length 1 has the stride of the next one, as in attention of one query."""
    x = np.random.default_rng(0).standard_normal((2, 2, rows, 4))
    into = {"x_ptr": np.full_like(x, np.nan)}
    backward = tw.grad(tw.jit(function_from(SINGLE_ROWS)), deterministic=True)
    grid = (2, tw.cdiv(rows, 2), 2)
    backward[grid](x, np.empty_like(x), rows, grads={"y_ptr": np.ones_like(x)}, into=into)
    np.testing.assert_allclose(into["x_ptr"], 2 * x)


SINK = """
def kernel(x_ptr, k_ptr, sink_ptr, y_ptr, n):
    row = tl.program_id(0)
    i, d = row * 4 + tl.arange(0, 4), tl.arange(0, 4)
    x = tl.load(x_ptr + i[:, None] * 4 + d[None, :])
    peak = tl.zeros([4], tl.float64) + tl.load(sink_ptr)
    total = tl.full([4], 1.0, tl.float64)
    acc = tl.zeros([4, 4], tl.float64)
    for start in range(0, n, 4):
        j = start + tl.arange(0, 4)
        k = tl.load(k_ptr + j[:, None] * 4 + d[None, :], mask=(j < n)[:, None], other=0.0)
        s = tl.where((j < n)[None, :], tl.dot(x, tl.trans(k)), -float("inf"))
        largest = tl.maximum(peak, tl.max(s, 1))
        p, shrink = tl.exp(s - largest[:, None]), tl.exp(peak - largest)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None] + tl.dot(p, k)
        peak = largest
    tl.store(y_ptr + i[:, None] * 4 + d[None, :], acc / total[:, None])
"""


def test_attention_with_a_learned_sink() -> None:
    """With the sink's gradient, the loop carries states. The keys' gradient cannot be computed on a
    grid of its own then: nothing saves what an iteration starts with for it."""
    rng = np.random.default_rng(0)
    x, k, sink = rng.standard_normal((8, 4)), rng.standard_normal((6, 4)), rng.standard_normal(1)
    dy, step = rng.standard_normal(x.shape), 1e-6
    into = {"x_ptr": np.empty_like(x), "k_ptr": np.empty_like(k), "sink_ptr": np.empty(1)}
    backward = tw.grad(tw.jit(function_from(SINK)))
    backward[(2,)](x, k, sink, np.empty_like(x), 6, grads={"y_ptr": dy}, into=into)

    def loss(x: Any, k: Any, sink: Any) -> float:
        scores = np.exp(x @ k.T)
        return float(np.sum(dy * (scores @ k) / (scores.sum(1) + np.exp(sink))[:, None]))

    for name, value in (("x_ptr", x), ("k_ptr", k), ("sink_ptr", sink)):
        along = rng.standard_normal(value.shape)
        moved = {n: step * along if n == name else 0.0 for n in into}
        high = loss(x + moved["x_ptr"], k + moved["k_ptr"], sink + moved["sink_ptr"])
        low = loss(x - moved["x_ptr"], k - moved["k_ptr"], sink - moved["sink_ptr"])
        assert np.sum(into[name] * along) == pytest.approx((high - low) / (2 * step), rel=1e-6)


CONSTANT_SIZES = """
def kernel(x_ptr, y_ptr, ROWS: tl.constexpr, DISTANCE: tl.constexpr):
    head, column = tl.program_id(0), tl.program_id(1)
    for start in range(0, ROWS, 4):
        i, j = start + tl.arange(0, 4), column * 4 + tl.arange(0, 4)
        at = head * DISTANCE + i[:, None] * 8 + j[None, :]
        x = tl.load(x_ptr + at, mask=(i < ROWS)[:, None], other=0.0)
        tl.store(y_ptr + at, x * x, mask=(i < ROWS)[:, None])
"""


def launch_of_constant_sizes(distance: int) -> None:
    """Heads of 10 rows each of 8 columns, so many elements apart."""
    x = np.random.default_rng(0).standard_normal(400)
    into = {"x_ptr": np.full_like(x, np.nan)}
    backward = tw.grad(tw.jit(function_from(CONSTANT_SIZES)), deterministic=True)
    launch = backward[(3, 2)]
    launch(x, np.empty_like(x), 10, distance, grads={"y_ptr": np.ones_like(x)}, into=into)
    loaded = np.zeros(400, bool)
    for head in range(3):
        loaded[head * distance : head * distance + 80] = True
    np.testing.assert_allclose(into["x_ptr"], np.where(loaded, 2 * x, 0))


@pytest.mark.parametrize("distance", [80, 88, 96])
def test_heads_with_sizes_known_at_compile_time_are_stored(distance: int) -> None:
    """The whole begin of a tile is that of one axis, as no stride is an argument."""
    launch_of_constant_sizes(distance)


@pytest.mark.parametrize("distance", [72, 76, 77])
def test_heads_that_overlap_are_not_stored(distance: int) -> None:
    with pytest.raises(CompilationError, match="may be stored more than once"):
        launch_of_constant_sizes(distance)


KEPT_COLUMNS = """
def kernel(x_ptr, y_ptr, rows, n):
    i = tl.program_id(0) * 2 + tl.arange(0, 2)
    peak = tl.full([2, 1], -float("inf"), tl.float64)
    total = tl.zeros([2, 1], tl.float64)
    for start in range(0, n, 4):
        j = start + tl.arange(0, 4)
        inside = (i < rows)[:, None] & (j < n)[None, :]
        x = tl.load(x_ptr + i[:, None] * n + j[None, :], mask=inside, other=-1e9)
        largest = tl.maximum(peak, tl.max(x, 1, keep_dims=True))
        total = total * tl.exp(peak - largest) + tl.sum(tl.exp(x - largest), 1, keep_dims=True)
        peak = largest
    for start in range(0, n, 4):
        j = start + tl.arange(0, 4)
        inside = (i < rows)[:, None] & (j < n)[None, :]
        x = tl.load(x_ptr + i[:, None] * n + j[None, :], mask=inside, other=-1e9)
        tl.store(y_ptr + i[:, None] * n + j[None, :], tl.exp(x - peak) / total, mask=inside)
"""


def test_maxima_that_are_kept_as_a_column_need_no_tape() -> None:
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((5, 11)), rng.standard_normal((5, 11))
    into, y = {"x_ptr": np.empty_like(x)}, np.empty_like(x)
    kernel = tw.jit(function_from(KEPT_COLUMNS))
    kernel[(3,)](x, y, 5, 11)
    backward = tw.grad(kernel, deterministic=True)
    backward[(3,)](x, y, 5, 11, grads={"y_ptr": dy}, into=into)
    np.testing.assert_allclose(into["x_ptr"], y * (dy - (y * dy).sum(1, keepdims=True)), atol=1e-12)
    assert "what it carries is stored" not in backward.explain()
