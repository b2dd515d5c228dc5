"""Every kernel that has a gradient has tangents: compiled for the CPU, those of the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.autodiff.cases import NAMES, OVERLAPPING, Case, case
from tests.autodiff.harness import copied, directions, forward_module, jvp, run_forward
from tests.autodiff.recurrences import LOOPS, arguments, kernel
from tests.frontend.kernels import function_from


def named(name: str) -> Case:
    if name in LOOPS:
        return kernel(LOOPS[name]), 2, arguments(5), ("x_ptr", "w_ptr"), ("y_ptr",), {}
    return case(name)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*NAMES, OVERLAPPING, *LOOPS])
def test_tangents_equal_those_of_the_interpreter(name: str) -> None:
    text, grid, args, wrt, outputs, constexprs = named(name)
    module = forward_module(text, args, constexprs)
    tangents = directions(np.random.default_rng(0), args, wrt)
    expected = jvp(module, grid, args, tangents, outputs)
    results = copied(args)
    run_forward(module, grid, results)
    both = tw.jvp(tw.jit(function_from(text)))[grid if isinstance(grid, tuple) else (grid,)]
    for _ in range(2):  # the first in Python, the other in native code
        given = copied(args)
        into: dict[str, Any] = {n: np.zeros_like(args[n]) for n in outputs}
        both(**given, **constexprs, tangents=tangents, into=into)
        for n in outputs:
            np.testing.assert_allclose(into[n], expected[n], rtol=1e-10, atol=1e-13)
            np.testing.assert_allclose(given[n], results[n], rtol=1e-10, atol=1e-13)
