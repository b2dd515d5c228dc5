"""Loops that load the same tiles have their gradient added up by one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import check_gradients, launch_points, regrid_vjp
from tilewright.analysis.blocks import BlockFinder
from tilewright.autodiff import joined_loops
from tilewright.autodiff.arrays import arrays_of
from tilewright.autodiff.regrid import regrids
from tilewright.ir.core import Module
from tilewright.ops.control import For
from tilewright.ops.memory import Store


def kernel(
    first: str, second: str, offset: str = "0", mask: str = "i < 7", third: str = "0"
) -> str:
    return f"""
def kernel(x_ptr, z_ptr, y_ptr, n):
    r, c = tl.program_id(0) // 2, tl.program_id(0) % 2
    i = tl.arange(0, 8)
    acc = tl.zeros([8], tl.float64)
    for k in range({first}):
        x = tl.load(x_ptr + r * 40 + k * 8 + i, mask=i < 7, other=0.0)
        acc += x * tl.load(z_ptr + c * 8 + i)
    for k in range({second}):
        x = tl.load(x_ptr + r * 40 + k * 8 + {offset} + i, mask={mask}, other=0.0)
        acc += tl.sin(x) * tl.load(z_ptr + c * 8 + 16 + i)
    for k in range({third}):
        x = tl.load(x_ptr + r * 40 + k * 8 + i, mask=i < 7, other=0.0)
        acc += x * x * tl.load(z_ptr + c * 8 + 32 + i)
    tl.store(y_ptr + r * 16 + c * 8 + i, acc)
"""


ARGS: Any = {"z_ptr": np.random.default_rng(1).uniform(0.5, 1, 64), "n": 10}


def arguments() -> dict[str, Any]:
    return {"x_ptr": np.random.default_rng(0).uniform(0.5, 1, 80), **ARGS, "y_ptr": np.zeros(32)}


def agrees(text: str) -> Module:
    """The gradient of x, by programs of its own, is that of the kernel."""
    module = check_gradients(text, 4, arguments(), ("x_ptr",), ("y_ptr",))
    found, _ = regrid_vjp(module, 4, arguments(), {"y_ptr": np.ones(32)}, ("x_ptr",))
    assert list(found) == ["x_ptr"]
    return module


def loops_of_schedules(text: str) -> list[int]:
    module = agrees(text)
    points = launch_points(module, (4, 1, 1), arguments())
    arrays = [a for a in arrays_of(module.entry).values() if a.name == "x_ptr"]
    found = regrids(module.entry, arrays, points, BlockFinder())
    return [len(schedule.loops) for schedule in found]


JOINED = {
    "the same iterations": ("0, 4", "0, 4"),
    "the first of them": ("0, 2", "0, 4"),
    "the last of them": ("0, 4", "2, 4"),
    "others of each program": ("0, 2 + c", "0, 4"),
    "a diagonal": ("0, 1 + c", "1 + c, 3 + c"),
    "in larger steps": ("0, 5, 2", "2, 5, 2"),
}
NOT_JOINED = {
    "other tiles": ("0, 2", "0, 2", "16"),
    "some of the same tiles": ("0, 3", "1, 5"),
    "neither has all tiles": ("0, 1 + c", "1 + c, 4"),
    "another mask": ("0, 2", "0, 2", "0", "i < 6"),
    "steps that never meet": ("0, 4, 2", "1, 4, 2"),
    "steps of another size": ("0, 4", "0, 4, 2"),
}


@pytest.mark.parametrize("case", JOINED)
def test_one_program_accumulates_the_contributions_of_loops(case: str) -> None:
    text = kernel(*JOINED[case])
    joined = 1 if case != "a diagonal" else None
    assert joined is None or loops_of_schedules(text) == [2]
    module = agrees(text)
    _, kernels = regrid_vjp(module, 4, arguments(), {"y_ptr": np.ones(32)}, ("x_ptr",))
    if joined:
        (only,) = kernels
        assert sum(isinstance(op, For) for op in only.walk()) == 2
        assert sum(isinstance(op, Store) for op in only.walk()) == 1


@pytest.mark.parametrize("case", NOT_JOINED)
def test_other_tiles_have_separate_schedules(case: str) -> None:
    assert loops_of_schedules(kernel(*NOT_JOINED[case])) == [1, 1]


def test_three_loops() -> None:
    assert loops_of_schedules(kernel("0, 2", "1, 4", third="0, 5")) == [3]
    assert loops_of_schedules(kernel("0, 5", "1 + c, 4", third="2, 3 + c")) == [3]
    assert loops_of_schedules(kernel("0, 2", "0, 4", third="0, 5")) == [3]


@pytest.mark.parametrize(
    ("condition", "case"),
    [
        ("_have_equal_loads", "other tiles"),
        ("_have_equal_loads", "another mask"),
        ("_has_all", "some of the same tiles"),
    ],
)
def test_each_condition_is_needed(
    condition: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = kernel(*NOT_JOINED[case])
    agrees(text)
    monkeypatch.setattr(joined_loops, condition, lambda *given: True)
    with pytest.raises((AssertionError, IndexError)):
        agrees(text)
