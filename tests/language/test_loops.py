"""Loops over ranges whose step is known at run time only: a step that is not positive is an error
where it is known or checked, and otherwise the loop does not run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import fails
from tests.language.all_targets import run_everywhere
from tilewright.base.diagnostics import DeviceAssertionError
from tilewright.runtime.jit import jit

BOUNDS = [
    (start, stop, step)
    for start, stop in ((0, 7), (7, 0), (-2, 3), (3, 3))
    for step in (3, 1, 0, -1, -3, -(2**31))
]

WHOLE = """
def kernel(out, src, start, stop, step):
    n = 0
    for i in range(start, stop, step):
        tl.store(out + n, i)
        n += 1
"""
WITH_BREAK = """
def kernel(out, src, start, stop, step):
    n = 0
    for i in range(start, stop, step):
        if n > 5:
            break
        tl.store(out + n, i)
        n += 1
"""
LOADING = """
def kernel(out, src, start, stop, step):
    n = 0
    total = tl.zeros((8,), tl.int32)
    lanes = tl.arange(0, 8)
    for i in tl.range(start, stop, step, num_stages=3):
        total += tl.load(src + (i + 2) * 8 + lanes)
        tl.store(out + n, i)
        n += 1
    tl.store(out + 16 + lanes, total)
"""


@pytest.mark.parametrize(("start", "stop", "step"), BOUNDS)
@pytest.mark.parametrize("text", [WHOLE, WITH_BREAK, LOADING], ids=["whole", "break", "loading"])
def test_a_loop_with_a_step_that_is_not_positive_does_not_run(
    text: str, start: int, stop: int, step: int
) -> None:
    src = np.arange(80, dtype=np.int32)
    values = list(range(start, stop, step)) if step > 0 else []
    out = np.full(24, -1, np.int32)
    expected = out.copy()
    stored = values[:6] if text == WITH_BREAK else values
    expected[: len(stored)] = stored
    if text == LOADING:
        expected[16:] = sum((src.reshape(10, 8)[i + 2] for i in values), np.zeros(8, np.int32))
    run_everywhere(text, out, src, start, stop, step)
    assert out.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint32, np.int64])
@pytest.mark.parametrize("step", [0, 2, 200])
def test_steps_of_other_types(dtype: Any, step: int) -> None:
    out, given = np.full(24, -1, np.int32), np.array(step).astype(dtype)[()]
    values = list(range(0, 5, int(given))) if given > 0 else []
    bounds = [dtype(0), dtype(5), given]
    run_everywhere(WHOLE, out, np.zeros(1, np.int32), *bounds)
    assert out.tolist() == values + [-1] * (24 - len(values))


@pytest.mark.parametrize("bounds", [(7, 0, -1), (7, 0, -3), (0, 7, -1), (-3, -9, -4), (2, 2, -1)])
def test_a_negative_constant_step_is_that_of_python(bounds: tuple[int, int, int]) -> None:
    text = """
    def kernel(out, start, stop, STEP: tl.constexpr):
        n = 0
        for i in range(start, stop, STEP):
            tl.store(out + n, i)
            n += 1
    """
    out = np.full(24, -1, np.int32)
    values = list(range(*bounds))
    run_everywhere(text, out, *bounds[:2], constexprs={"STEP": bounds[2]})
    assert out.tolist() == values + [-1] * (24 - len(values))


@pytest.mark.parametrize(
    ("step", "shown"), [("tl.full((), -1, tl.int32)", "-1"), ("0 - tl.num_programs(0)", "in [-")]
)
def test_a_step_that_is_known_not_to_be_positive_is_an_error(step: str, shown: str) -> None:
    error = fails(f"def kernel(n):\n    for i in range(0, n, {step}):\n        pass\n", 5)
    assert f"the step of a loop must be positive; it is {shown}" in str(error)


def steps_through(out, step):
    for i in range(0, 7, step):
        tl.store(out + i, i)


def test_a_step_that_is_not_positive_fails_an_assertion_with_debug() -> None:
    out = np.zeros(8, np.int32)
    kernel = jit(debug=True)(steps_through)
    kernel[(1,)](out, 2)
    assert out.tolist() == [0, 0, 2, 0, 4, 0, 6, 0]
    for step in (0, -2):
        with pytest.raises(DeviceAssertionError, match="the step of a loop must be positive"):
            kernel[(1,)](out, step)


def test_a_step_that_is_a_number_of_programs_needs_no_check() -> None:
    text = """
    def kernel(out, n):
        for i in range(tl.program_id(0), n, tl.num_programs(0)):
            tl.store(out + i, i)
    """
    out = np.zeros(8, np.int32)
    module = run_everywhere(text, out, 8, grid=(3,))
    assert out.tolist() == list(range(8))
    assert not any(op.name == "arith.select" for op in module.entry.walk())
