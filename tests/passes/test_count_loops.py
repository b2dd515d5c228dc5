"""Loops that count become `for`, and compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.autodiff.harness import Arrays, cleaned, count, forward_module, run_forward
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext
from tilewright.ops.control import For, While
from tilewright.passes.count_loops import count_loops

KERNEL = """
def kernel(x_ptr, y_ptr, n, m):
    i, j = n, m
    x = tl.load(x_ptr)
{body}
    tl.store(y_ptr, x)
    tl.store(y_ptr + 1, i.to(tl.float64))
    tl.store(y_ptr + 2, j.to(tl.float64))
"""
COUNTED = {
    "up": ("i < 9", "x = x * 0.5 + i", "i += 3"),
    "to a bound that is reached": ("i <= n + 4", "x = x * 0.5 + i", "i += m + 3"),
    "by a step that is subtracted": ("9 >= i", "x = x * 0.5 + i", "i -= m - 4"),
    "down": ("i > m", "x = x * 0.5 + i", "i -= 2"),
    "down, to a bound that is reached": ("-3 <= i", "x = x * 0.5 + i", "i -= 2"),
    "with a condition that computes": ("j + i * 0 < n * n", "x = x * i", "j += 1"),
    "with a pointer": ("j < n", "x += tl.load(x_ptr + (j + 12) % 12)", "j += tl.num_programs(0)"),
    "in one that does not": (
        "x < 40.0", "x = x * 2.0", "j = 0", "while j < n:", "    x += 1.0", "    j += 1",
    ),
}  # fmt: skip
OTHERS = {
    "by a step that changes": ("i < 40", "i += i"),
    "in one branch": ("i < 9", "if x > j:", "    i += 1", "else:", "    i += 2", "    x = x + 2.0"),
    "to a bound that changes": ("i < j + 9", "i += 2", "j += 1"),
    "with the other's step": ("i < 9", "i, j = j + 7, i + 1"),
    "away from the bound": ("i != 9", "i += 1"),
    "until a load": ("tl.load(x_ptr + i) < 0.9", "i += 1"),
}  # fmt: skip


def _module(loop: tuple[str, ...]) -> Module:
    condition, *body = loop
    lines = [f"    while {condition}:", *(f"        {line}" for line in body)]
    return forward_module(KERNEL.format(body="\n".join(lines)), _arguments(0, 0), {})


def _arguments(n: int, m: int) -> Arrays:
    return {"x_ptr": np.linspace(0.1, 1, 12), "y_ptr": np.zeros(3), "n": n, "m": m}


@pytest.mark.parametrize("loop", COUNTED.values(), ids=COUNTED)
def test_loops_that_count(loop: tuple[str, ...]) -> None:
    before, after = _module(loop), _module(loop)
    assert count_loops(after.entry, PassContext())
    assert count(after, For) == 1
    assert count(after, While) == count(before, While) - 1
    cleaned(after)
    for n, m in ((5, -1), (12, 1), (0, 0), (9, 3)):
        expected, found = _arguments(n, m), _arguments(n, m)
        run_forward(before, 1, expected)
        run_forward(after, 1, found)
        np.testing.assert_array_equal(found["y_ptr"], expected["y_ptr"])


@pytest.mark.parametrize("loop", OTHERS.values(), ids=OTHERS)
def test_others_stay(loop: tuple[str, ...]) -> None:
    assert not count_loops(_module(loop).entry, PassContext())
