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
