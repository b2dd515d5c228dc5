"""The kernels of tests/autodiff, compiled for the CPU: gradients are those of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.autodiff.cases import NAMES, OVERLAPPING, case
from tests.autodiff.harness import copied, forward_module, run_forward, vjp
from tests.frontend.kernels import function_from


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
