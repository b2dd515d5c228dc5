"""Gradients of kernels that load addresses and bounds: from tables that each launch reads."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.base.diagnostics import CompilationError
from tilewright.runtime import derivatives
from tilewright.runtime.derived_launch import elements_of_table


@tw.jit
def squared_segments(x_ptr, starts_ptr, y_ptr, BLOCK: tl.constexpr):
    begin = tl.load(starts_ptr + tl.program_id(0))
    end = tl.load(starts_ptr + tl.program_id(0) + 1)
    at = begin + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < end)
    tl.store(y_ptr + at, x * x, mask=at < end)


@tw.jit
def moved_segments(x_ptr, starts_ptr, y_ptr, BLOCK: tl.constexpr):
    begin = tl.load(starts_ptr + tl.program_id(0))
    tl.debug_barrier()
    tl.store(starts_ptr + tl.program_id(0), begin)
    at = begin + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at))


@tw.jit
def chosen(x_ptr, choice_ptr, places_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    is_chosen = tl.load(choice_ptr + at, mask=at < n, other=0).to(tl.int1)
    place = tl.load(places_ptr + at, mask=at < n, other=0) - 1
    tl.store(y_ptr + place, x * x, mask=is_chosen)


def launch(backward: Any, starts: Any, into: Any = None, x: Any = None) -> Any:
    x = np.linspace(1, 2, 16) if x is None else x
    into = np.full(16, np.nan) if into is None else into
    grid = (len(starts) - 1,)
    backward[grid](
        x, starts, np.empty(16), BLOCK=16, grads={"y_ptr": np.ones(16)}, into={"x_ptr": into}
    )
    return into


def expected(starts: Any) -> Any:
    found = np.zeros(16)
    for begin, end in pairwise(starts):
        found[begin:end] += 2 * np.linspace(1, 2, 16)[begin:end]
    return found


def test_the_gradient_is_that_of_the_elements_of_each_launch() -> None:
    """They change in place; segments that overlap store elements twice, which is an error."""
    backward = tw.grad(squared_segments, deterministic=True, tables=("starts_ptr",))
    starts = np.array([0, 3, 3, 16], np.int32)
    for _ in range(2):
        for changed in ([0, 3, 3, 16], [2, 8, 9, 15], [0, 0, 0, 0]):
            starts[:] = changed
            np.testing.assert_allclose(launch(backward, starts), expected(changed))
        starts[:] = [0, 8, 4, 12]
        with pytest.raises(CompilationError, match="may be stored more than once"):
            launch(backward, starts)


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    backward = tw.grad(squared_segments, deterministic=True, tables=("starts_ptr",))
    x, dx = torch.linspace(1, 2, 16, dtype=torch.float64), torch.empty(16, dtype=torch.float64)
    backward[(2,)](
        x, torch.tensor([0, 5, 16]), torch.empty_like(x), BLOCK=16,
        grads={"y_ptr": torch.ones_like(x)}, into={"x_ptr": dx},
    )  # fmt: skip
    torch.testing.assert_close(dx, 2 * x)


def test_without_tables_nothing_is_known() -> None:
    with pytest.raises(CompilationError, match="it is loaded from an array that is not in tables"):
        launch(tw.grad(squared_segments), np.array([0, 3, 16], np.int32))


def test_an_array_that_the_kernel_stores_is_no_table() -> None:
    backward = tw.grad(moved_segments, tables=("starts_ptr",))
    with pytest.raises(CompilationError, match="starts_ptr is loaded here and stored at line 4"):
        launch(backward, np.array([0, 16], np.int32))


@pytest.mark.parametrize("starts", [np.array([0.0, 3.0, 16.0]), np.arange(6)[::2]])
def test_tables_are_contiguous_integers(starts: Any) -> None:
    backward = tw.grad(squared_segments, tables=("starts_ptr",))
    with pytest.raises(TypeError, match="not a contiguous array of integers"):
        launch(backward, starts)


def test_masks_are_tables() -> None:
    """Elements that a mask chooses are stored one behind the other."""
    backward = tw.grad(chosen, deterministic=True, tables=("choice_ptr", "places_ptr"))
    choice = np.random.default_rng(0).random(40) < 0.5
    x, dx, count = np.linspace(1, 2, 40), np.full(40, np.nan), int(choice.sum())
    args = x, choice, np.cumsum(choice), np.empty(count), 40
    grads = np.linspace(3, 4, count)
    backward[(3,)](*args, BLOCK=16, grads={"y_ptr": grads}, into={"x_ptr": dx})
    expected = np.zeros(40)
    expected[choice] = 2 * x[choice] * grads
    np.testing.assert_allclose(dx, expected)


def test_tables_are_parameters() -> None:
    with pytest.raises(ValueError, match="has no parameter 'begins_ptr'"):
        tw.grad(squared_segments, tables=("begins_ptr",))


def test_loads_from_outside_of_a_table_are_unknown() -> None:
    """Beyond the last element, and before the first one; as NumPy would take it from the end."""
    backward = tw.grad(squared_segments, tables=("starts_ptr",))
    with pytest.raises(CompilationError, match="it is loaded from outside of its array"):
        backward[(2,)](
            np.ones(16), np.array([0, 16], np.int32), np.empty(16), BLOCK=16,
            grads={"y_ptr": np.ones(16)}, into={"x_ptr": np.empty(16)},
        )  # fmt: skip


def test_the_elements_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """With elements of the first launch only, a test above fails."""
    first: list[Any] = []
    monkeypatch.setattr(derivatives, "elements_of_table", lambda name, array: (
        first or first.append(elements_of_table(name, array)) or first
    )[0])  # fmt: skip
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_the_gradient_is_that_of_the_elements_of_each_launch()
