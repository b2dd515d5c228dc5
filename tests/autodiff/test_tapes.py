"""Loops that carry a state: each iteration is reversed with what it started with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import Arrays, forward_module, launch_points, tape_plan, vjp
from tests.autodiff.recurrences import LOOPS, arguments, check, kernel
from tilewright.autodiff.reverse import reverse_mode
from tilewright.autodiff.tapes import TapePlan
from tilewright.base.diagnostics import CompilationError, DeviceAssertionError
from tilewright.ops.memory import Store


@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("name", LOOPS)
def test_gradients(name: str, n: int) -> None:
    check(LOOPS[name], n)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("every", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 5, 8])
def test_gradients_from_checkpoints(every: int, n: int) -> None:
    for name in ("a recurrent network", "a gated sum, and a sum of its squares", "in a loop"):
        for loop in ("for t in range(n)", "for u in range(t)"):
            before, _, after = LOOPS[name].partition(loop)
            checkpoints = f"for t in tl.range(0, n, ad_checkpoint={every})"
            if "u in" in loop:
                checkpoints = f"for u in tl.range(0, t, ad_checkpoint={every})"
            check(before + (checkpoints + after if after else ""), n)


def gradients(body: str, n: int, most_bytes: int = 1 << 30) -> Arrays:
    args = arguments(n)
    module = forward_module(kernel(body), args, {})
    tape = TapePlan(launch_points(module, 2, args), 2, most_bytes)
    cotangents = {"y_ptr": np.random.default_rng(1).standard_normal(128)}
    return vjp(module, 2, args, cotangents, ("x_ptr", "w_ptr"), tape=tape)


@pytest.mark.parametrize("most", [300, 600, 1100])
def test_a_loop_that_runs_more_often_than_there_are_slots(most: int) -> None:
    """2, 4 and 7 checkpoints for 4 iterations, and as many iterations between two of them."""
    expected = gradients(LOOPS["while"], 4)
    found = gradients(LOOPS["while"], 4, most)
    for name, gradient in expected.items():
        np.testing.assert_array_equal(found[name], gradient)


def test_a_tape_that_is_too_small_for_the_iterations_is_an_error() -> None:
    """9 iterations with 2 checkpoints and 2 slots between them."""
    with pytest.raises(
        DeviceAssertionError, match="the tape of the loop at line 6 is too small: increase"
    ):
        gradients(LOOPS["while"], 9, 300)


@pytest.mark.parametrize(
    ("body", "often"),
    [
        (LOOPS["a recurrent network"], "(32 bytes) at 9 iterations in each of 2 programs"),
        (LOOPS["while"], "(36 bytes) at an unknown number of iterations in each of 2 programs"),
    ],
)
def test_a_tape_that_takes_too_much_memory_is_an_error(body: str, often: str) -> None:
    module = forward_module(kernel(body), arguments(9), {})
    plan = TapePlan(launch_points(module, 2, arguments(9)), 2, 100)
    with pytest.raises(CompilationError) as info:
        reverse_mode(module, ("x_ptr",), ("y_ptr",), tapes=plan)
    assert f"the tape of this loop has its carried values {often}" in str(info.value)
    assert "more than tape_bytes=100" in str(info.value)
    assert ("ad_checkpoint=k" in str(info.value)) == ("unknown" not in often)
    assert "^" in str(info.value)


@pytest.mark.parametrize(
    ("name", "stores"),
    [
        ("a decaying sum", 2),
        ("a recurrent network", 3),
        ("a gated sum, and a sum of its squares", 3),
    ],
)
def test_only_what_is_needed_is_stored(name: str, stores: int) -> None:
    """The gradients of x and w; of a state only if its value is needed on the way back."""
    args: Any = arguments(5)
    module = forward_module(kernel(LOOPS[name]), args, {})
    plan = tape_plan(launch_points(module, 2, args))
    derived = reverse_mode(module, ("x_ptr", "w_ptr"), ("y_ptr",), tapes=plan)
    assert sum(isinstance(op, Store) for op in derived.module.walk()) == stores
    assert len(derived.tapes) == stores - 2


def test_long_loops_are_recorded_from_checkpoints() -> None:
    """About twice the square root of the iterations, where all would take half of the memory."""
    args = arguments(1 << 22)
    module = forward_module(kernel(LOOPS["a recurrent network"]), args, {})
    plan = TapePlan(launch_points(module, 2, args), 2, most_bytes=1 << 28)
    derived = reverse_mode(module, ("x_ptr",), ("y_ptr",), tapes=plan)
    assert derived.numbers == {("slots", "0"): 4096, ("checkpoints", "0"): 2048}
