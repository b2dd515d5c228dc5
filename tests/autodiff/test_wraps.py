"""Loads whose indices wrap around, or are replaced, beyond a limit at which nothing is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import (
    check_gradients,
    cleaned,
    copied,
    forward_module,
    launch_points,
    run_forward,
)
from tilewright.autodiff import wraps
from tilewright.ir.core import Module
from tilewright.ir.types import Tile, is_int
from tilewright.ops.arith import Rem, Select

KERNEL = """
def kernel(x_ptr, y_ptr, m, k):
    row = tl.program_id(0)
    i, j = row * 4 + tl.arange(0, 4), tl.arange(0, 4)
    at = {index}
    acc = tl.zeros([4, 4], tl.float64)
    for t in range(3):
        x = tl.load(x_ptr + at[:, None] * k + t * 4 + j[None, :]{more})
        acc += {term}
    tl.store(y_ptr + i[:, None] * 4 + j[None, :], {value}, mask={mask})
"""
GIVEN = {
    "index": "i % m",
    "more": "",
    "term": "tl.sin(x)",
    "value": "acc",
    "mask": "(i < m)[:, None]",
}
UNUSED = (
    {},
    {"index": "tl.where(i < m, i, 0)"},
    {"mask": "(i < m)[:, None] & (j < 3)[None, :]"},
    {"mask": "(i <= m - 1)[:, None]"},
    {"mask": "(m > i)[:, None]"},
    {"mask": "(i < m - 1)[:, None]"},
    {"term": "tl.sin(x % 0.3)"},
    {"term": "tl.dot(x, tl.trans(tl.load(x_ptr + j[:, None] * k + j[None, :])))"},
    {"value": "tl.cumsum(acc, 1) * tl.sum(acc, 1)[:, None]"},
)
USED = (
    {"mask": "(i < m + 1)[:, None]"},
    {"mask": "(j < m)[None, :]"},
    {"mask": "(i < m)[:, None] | (j < 1)[None, :]"},
    {"mask": "(i * 2 < m)[:, None]", "value": "tl.flip(acc, 0)"},
    {"value": "acc + tl.sum(acc, 0)[None, :]"},
    {"value": "tl.cumsum(acc, 0)"},
    {"term": "tl.dot(tl.trans(x), x)"},
    {"index": "(i + 1) % m"},
    {"index": "i % (m - 1)"},
    {"index": "i * 2 % m"},
    {"index": "(i - 24) % m + 9"},
    {"index": "(i + j % 3) % m"},
    {"index": "i % (13 - 4 * j)"},
    {"more": ", mask=(j < 3)[None, :], other=1.5"},
    {"value": "acc + tl.sum(at, 0)"},
    {"value": "acc + at[:, None]"},
    {"mask": "None"},
    {"mask": "(i + 2147483640 < 2147483647)[:, None]"},
    {"mask": "(i != m + 5)[:, None]"},
    {"mask": "(m - i < 4)[:, None]"},
    {"mask": "(i - j % 3 < m)[:, None]"},
    {"mask": "(i < m + j)[:, None]"},
)


def _modules(change: dict[str, str]) -> tuple[Module, Module, dict[str, Any]]:
    """The kernel before and after."""
    rng = np.random.default_rng(0)
    args: dict[str, Any] = {"x_ptr": rng.uniform(-1, 1, 160), "y_ptr": np.zeros((12, 4))}
    args |= {"m": 10, "k": 12}
    before = forward_module(KERNEL.format(**{**GIVEN, **change}), args, {})
    after = before.clone()
    wraps.remove_wraps(after.entry, launch_points(after, 3, args))
    return before, cleaned(after), args


def _replaced(module: Module) -> int:
    """How many indices are replaced."""
    kinds = (op.results[0].type for op in module.walk() if isinstance(op, Rem | Select))
    return sum(isinstance(type, Tile) and is_int(type) for type in kinds)


@pytest.mark.parametrize("change", UNUSED, ids=str)
def test_what_is_not_stored_is_masked_off(change: dict[str, str]) -> None:
    before, after, _ = _modules(change)
    assert _replaced(before) == 1
    assert _replaced(after) == 0
    check_unchanged(change)


def check_unchanged(change: dict[str, str]) -> None:
    """The results are the same with and without replaced indices, and the gradients are theirs."""
    before, after, args = _modules(change)
    results: list[Any] = []
    for module in (before, after):
        given = copied(args)
        run_forward(module, 3, given)
        results.append(given["y_ptr"])
    np.testing.assert_array_equal(*results)
    check_gradients(after, 3, args, ("x_ptr",), ("y_ptr",))


@pytest.mark.parametrize("change", USED, ids=str)
def test_what_is_stored_is_loaded_as_before(change: dict[str, str]) -> None:
    before, after, _ = _modules(change)
    assert _replaced(before) == _replaced(after) > 0


def test_a_mask_of_another_iteration_does_not_count() -> None:
    """What a loop carries is stored by the next iteration, under a limit further on."""
    text = """
def kernel(x_ptr, y_ptr, m):
    j = tl.arange(0, 4)
    last = tl.zeros([4], tl.float64)
    for t in range(3):
        i = t * 4 + j
        tl.store(y_ptr + i, last, mask=i < m)
        last = tl.load(x_ptr + (i + 4) % (m + 4))
"""
    args = {"x_ptr": np.ones(16), "y_ptr": np.zeros(12), "m": 7}
    module = forward_module(text, args, {})
    wraps.remove_wraps(module.entry, launch_points(module, 1, args))
    assert _replaced(module) == 1


MUTATIONS: tuple[tuple[str, Any, dict[str, str]], ...] = (
    ("_is_at_most", lambda *given: True, {"mask": "(i < m + 1)[:, None]"}),
    ("_is_excluded", lambda *given: True, {"mask": "(j < m)[None, :]"}),
)


@pytest.mark.parametrize(("name", "mutant", "change"), MUTATIONS)
def test_without_a_condition_a_result_changes(
    name: str, mutant: Any, change: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wraps, name, mutant)
    with pytest.raises(AssertionError):
        check_unchanged(change)
