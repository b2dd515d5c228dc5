"""Forward mode through control flow and memory, and what it rejects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import differences, directions, forward_module, jvp
from tilewright.autodiff.forward import forward_mode
from tilewright.base.diagnostics import CompilationError

RECURRENCE = """
def kernel(x_ptr, y_ptr, n, steps):
    at = tl.program_id(0) * 8 + tl.arange(0, 8)
    h = tl.load(x_ptr + at, mask=at < n, other=1.0)
    total = tl.sum(h * 0, 0)
    for i in range(steps):
        h = h * h * 0.5 + 0.1
        total += tl.sum(h, 0)
    tl.store(y_ptr + at, h + total, mask=at < n)
"""
WHILE = """
def kernel(x_ptr, y_ptr, n, steps):
    at = tl.program_id(0) * 8 + tl.arange(0, 8)
    h = tl.load(x_ptr + at, mask=at < n)
    i = 0
    while i < steps:
        h = tl.sin(h) + h
        i += 1
    tl.store(y_ptr + at, h, mask=at < n)
"""
BRANCHES = """
def kernel(x_ptr, y_ptr, n, steps):
    at = tl.program_id(0) * 8 + tl.arange(0, 8)
    x = tl.load(x_ptr + at, mask=at < n)
    if tl.program_id(0) == 1:
        tl.store(y_ptr + at, x * 2, mask=at < n)
        return
    if steps > 2:
        y = x * x
    else:
        y = tl.exp(x)
    tl.store(y_ptr + at, y, mask=at < n)
"""
MASKED = """
def kernel(x_ptr, y_ptr, n, steps):
    at = tl.program_id(0) * 8 + tl.arange(0, 8)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.sum(tl.sqrt(x * x)) + tl.zeros([8], tl.float64), mask=at < n)
"""
IN_PLACE = """
def kernel(x_ptr, y_ptr, n, steps):
    at = tl.program_id(0) * 8 + tl.arange(0, 8)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, x * x, mask=at < n)
    tl.store(y_ptr + at, tl.sin(x), mask=at < n)
"""
SUMMED = """
def kernel(x_ptr, y_ptr, n, steps):
    at = tl.program_id(0) * 8 + tl.arange(0, 8)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.atomic_add(y_ptr + tl.arange(0, 8), x * x, mask=at < n)
"""


def arguments(n: int = 13) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {"x_ptr": rng.uniform(0.1, 1.0, n), "y_ptr": np.zeros(16), "n": n, "steps": 3}


@pytest.mark.parametrize("text", [RECURRENCE, WHILE, BRANCHES, MASKED, SUMMED])
def test_control_flow_and_masks(text: str) -> None:
    args = arguments()
    module = forward_module(text, args, {})
    tangents = directions(np.random.default_rng(4), args, ("x_ptr",))
    found = jvp(module, 2, args, tangents, ("y_ptr",))
    expected = differences(module, 2, args, tangents, ("y_ptr",))
    np.testing.assert_allclose(found["y_ptr"], expected["y_ptr"], rtol=1e-6, atol=1e-8)
    assert np.abs(found["y_ptr"]).max() > 0.01


def test_an_array_in_place_has_tangents_in_place() -> None:
    args = arguments(16)
    module = forward_module(IN_PLACE, args, {})
    t = np.random.default_rng(5).standard_normal(16)
    found = jvp(module, 2, args, {"x_ptr": t}, ("x_ptr", "y_ptr"))
    np.testing.assert_allclose(found["x_ptr"], 2 * args["x_ptr"] * t)
    np.testing.assert_allclose(found["y_ptr"], np.cos(args["x_ptr"]) * t)


def test_an_array_in_place_must_be_input_and_output() -> None:
    module = forward_module(IN_PLACE, arguments(), {})
    with pytest.raises(CompilationError, match=r"loaded here and stored at line 4"):
        forward_mode(module, ("x_ptr",), ("y_ptr",))


def test_a_stored_array_that_is_not_named_is_an_error() -> None:
    module = forward_module(RECURRENCE, arguments(), {})
    with pytest.raises(CompilationError, match="y_ptr is stored here"):
        forward_mode(module, ("x_ptr",), ())
    forward_mode(module, ("x_ptr",), (), ("y_ptr",))


def test_bits_of_a_float_are_an_error_with_the_line() -> None:
    text = RECURRENCE.replace("h + total", "(h.to(tl.int64, bitcast=True) + 1).to(tl.float64)")
    module = forward_module(text, arguments(), {})
    with pytest.raises(CompilationError, match=r"no gradient through arith.bitcast") as info:
        forward_mode(module, ("x_ptr",), ("y_ptr",))
    assert "at 8:" in str(info.value)
    assert "help: use tl.stop_gradient(x)" in str(info.value)


def test_unknown_names_are_an_error() -> None:
    module = forward_module(RECURRENCE, arguments(), {})
    with pytest.raises(ValueError, match="'z', which is not an argument"):
        forward_mode(module, ("z",), ("y_ptr",))
    with pytest.raises(ValueError, match="'n', which is not an array of floats"):
        forward_mode(module, ("n",), ("y_ptr",))
