"""Stores whose index has no form that is proven are gone through, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.autodiff.harness import counts, forward_module, launch_points
from tests.frontend.kernels import function_from
from tilewright.autodiff import enumerated
from tilewright.autodiff.arrays import arrays_of
from tilewright.autodiff.enumerated import are_distinct
from tilewright.base.diagnostics import CompilationError

KERNEL = """
def kernel(x_ptr, starts_ptr, other_ptr, y_ptr, n):
    p, i = tl.program_id(0), tl.arange(0, 8)
    keep = i < 8
    {body}
        tl.store(y_ptr + at, tl.load(x_ptr + i), mask=keep)
"""
ONCE = {
    "rolled": "at = (p * 8 + i + 3) % (n * 8)",
    "in reversed order of bits": "at = p * 8 + (((i & 1) << 2) | (i & 2) | (i >> 2))",
    "exchanged": "at = (p * 8 + i) ^ 5",
    "tokens of a table": "at = tl.load(starts_ptr + p * 8 + i)",
    "the tokens that there are": "keep = i < 5\n"
    "at = tl.load(starts_ptr + p * 8 + i, mask=keep, other=0)",
    "a number for each row": "at = tl.load(starts_ptr + p) * 8 + i // 2 * 2 + i % 2",
    "of two axes": "at = tl.reshape(tl.trans(tl.reshape(i, [2, 4])), [8]) + p * 8",
    "in reversed order": "at = tl.flip((p * 8 + i) ^ 5)",
    "by the sign": "at = tl.where(i < 4, p * 4 + i, n * 8 - 1 - p * 4 - i + 4)",
    "even programs": "keep = (i < 8) & (p % 2 == 0)\nat = p // 2 * 8 + i",
    "of an outer loop": "at = (p * 8 + i) ^ 5\nfor k in range(n):\n    at += 3",
    "bytes of a table": "bytes = (starts_ptr + p * 8).to(tl.pointer_type(tl.uint64))\n"
    "at = tl.load(bytes + i)",
}
TWICE = {
    "a modulus that is too small": "at = (p * 8 + i + 3) % (n * 8 - 1)",
    "a table with a number twice": "at = tl.load(starts_ptr + p * 4 + i)",
    "halves": "at = p * 8 + i // 2",
    "a mask that is too wide": "keep = i < 6\n"
    "at = tl.load(starts_ptr + p * 8 + i, mask=i < 5, other=0)",
    "0 where nothing is read": "keep = i < 6\nat = tl.load(starts_ptr + p * 8 + i, mask=i < 5)",
    "odd programs, too": "at = p // 2 * 8 + i",
}
UNKNOWN = {
    "loaded from another array": "at = tl.load(other_ptr + p * 8 + i)",
    "computed as a float": "at = (p * 8 + i).to(tl.float32).to(tl.int32)",
    "past the table": "keep = i < 7\nat = tl.load(starts_ptr + p * 8 + i + 1)",
    "of another width": "at = tl.load((starts_ptr + p * 8).to(tl.pointer_type(tl.int16)) + i)",
    "carried": "at = p * 8 + i\nfor k in range(n):\n    at = n * 8 - 1 - at",
}
LOOPS = {
    "iterations": ("for k in range(2):\n", "at = ((p * 2 + k) * 4 + i // 2) * 2 + (i % 2 + 1) % 2"),
    "the same in each iteration": ("for k in range(2):\n", "at = (p * 8 + i) ^ 5"),
}
MOVED = """
def kernel(x_ptr, starts_ptr, other_ptr, y_ptr, n):
    p, i = tl.program_id(0), tl.arange(0, 8)
    by = {by}
    at = ((p * 16 + i + 16) ^ 5).to(tl.int64)
    for k in range(2):
        tl.store(y_ptr + at, tl.load(x_ptr + i))
        at += by
"""
BY = {
    "a number": ("8", True, True),
    "too little": ("4", False, False),
    "back": ("-8", True, True),
    "numbers of a table": ("tl.load(starts_ptr + i) // 32 + 8", True, True),
    "what is not read": ("tl.load(starts_ptr + i, mask=i < 5, other=0) // 32 + 8", True, True),
    "what is 0 where it is not read": ("tl.load(starts_ptr + i, mask=i < 5) + 8", False, False),
    "what another array has": ("tl.load(other_ptr + p) // 32 + 8", False, True),
}


def kernel_of(body: str, around: str = "") -> str:
    lines = around.splitlines() or ["if n > 0:"]
    depth = "    " * len(lines)
    text = "\n    ".join([*lines, *(depth + line for line in body.splitlines())])
    return KERNEL.format(body=text)


def arguments() -> dict[str, Any]:
    order = np.random.default_rng(0).permutation(32)
    args = {"x_ptr": np.zeros(8), "starts_ptr": order, "other_ptr": order.copy()}
    return {**args, "y_ptr": np.zeros(256), "n": 4}


def found(text: str) -> tuple[bool, bool]:
    """Whether elements are known to be stored once, and whether they are."""
    args = arguments()
    module = forward_module(text, args, {})
    (array,) = (a for a in arrays_of(module.entry).values() if a.name == "y_ptr")
    known = are_distinct(array.stores, launch_points(module, 4, args))
    return known, int(counts(module, "y_ptr", 4, args, stores=True).max()) == 1


@pytest.mark.parametrize("name", ONCE)
def test_elements_that_are_stored_once(name: str) -> None:
    assert found(kernel_of(ONCE[name])) == (True, True)


@pytest.mark.parametrize("name", TWICE)
def test_elements_that_are_stored_twice(name: str) -> None:
    assert found(kernel_of(TWICE[name])) == (False, False)


@pytest.mark.parametrize("name", UNKNOWN)
def test_indices_that_are_not_known(name: str) -> None:
    args = arguments()
    module = forward_module(kernel_of(UNKNOWN[name]), args, {})
    (array,) = (a for a in arrays_of(module.entry).values() if a.name == "y_ptr")
    assert not are_distinct(array.stores, launch_points(module, 4, args))


@pytest.mark.parametrize(
    ("name", "once"), [("iterations", True), ("the same in each iteration", False)]
)
def test_elements_of_iterations(name: str, once: bool) -> None:
    around, body = LOOPS[name]
    assert found(kernel_of(body, around)) == (once, once)


@pytest.mark.parametrize("name", BY)
def test_elements_that_iterations_move_on_from(name: str) -> None:
    by, known, once = BY[name]
    assert found(MOVED.format(by=by)) == (known, once)


def test_more_elements_than_are_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumerated, "AT_ONCE", 8)
    assert found(kernel_of(ONCE["rolled"])) == (True, True)
    args = arguments()
    module = forward_module(kernel_of(ONCE["rolled"]), args, {})
    (array,) = (a for a in arrays_of(module.entry).values() if a.name == "y_ptr")
    points = launch_points(module, 4, args)
    assert are_distinct(array.stores, points, 32)
    assert not are_distinct(array.stores, points, 31)


def test_a_table_is_read_at_each_launch() -> None:
    text = """
def kernel(x_ptr, place_ptr, y_ptr, n):
    at = tl.program_id(0) * 4 + tl.arange(0, 4)
    place = tl.load(place_ptr + at)
    tl.store(y_ptr + place, 2.0 * tl.load(x_ptr + at))
"""
    backward = tw.grad(tw.jit(function_from(text)), tables=("place_ptr",))
    x, y, dy, dx = np.zeros(8), np.zeros(8), np.arange(8.0), np.zeros(8)
    for place in (np.arange(8)[::-1].copy(), np.array([1, 0, 3, 2, 5, 4, 7, 6])):
        backward[(2,)](x, place, y, 8, grads={"y_ptr": dy}, into={"x_ptr": dx})
        np.testing.assert_array_equal(dx, 2 * dy[place])
    twice = np.array([1, 0, 3, 2, 5, 4, 7, 1])
    with pytest.raises(CompilationError, match="may be stored more than once"):
        backward[(2,)](x, twice, y, 8, grads={"y_ptr": dy}, into={"x_ptr": dx})
