"""Counters of `while` loops whose numbers may be extreme are compared by an extremum."""

from __future__ import annotations

import operator
import re

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.targets.nvidia.lowered import ptx_of
from tilewright.targets.nvidia.counters import BY_EXTREMUM

FORMS = (
    "while {test}:\n            {body}",
    "while ({test}) & (x != 7):\n            {body}",
    "while True:\n            if not ({test}):\n                break\n            {body}",
)


def _ptx(init: str, test: str, step: str, form: str = FORMS[0], type: str = "i32") -> str:
    body = f"x = x * 3 + i.to(tl.int64)\n            {step}"
    text = f"""
    def kernel(p, n, m):
        x = tl.load(p)
        i = {init}
        {form.format(test=test, body=body)}
        tl.store(p, x)
    """
    names = {"p": "*i64", "n": type, "m": type}
    return ptx_of(build(kernel_from(text), names), launch_pdl=False)


def _extrema(ptx: str) -> list[str]:
    return re.findall(r"(max|min)\.([su]\d\d)", ptx)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("init", "test", "step", "type", "expected"),
    [
        ("n", "i < m", "i += 4096", "i32", ("max", "s32")),
        ("n", "i + 1 <= 5", "i += 1 << 21", "i32", ("min", "s32")),
        ("n", "i >= m", "i -= 1 << 50", "i64", ("max", "s64")),
        ("0", "i < n", "i += 1 << 28", "i32", ("max", "s32")),
        ("0", "i < n", "i += 2048", "i32", ("max", "s32")),  # which may wrap around at the end
        ("n", "i < m", "i += 4096", "u32", ("max", "u32")),
        ("0", "i < 2147483647", "i += 1 << 24", "i32", ("max", "s32")),
        ("n", "m > i", "i += 1 << 28", "u32", ("min", "u32")),
        ("n", "m > i", "i -= 2", "i32", ("min", "s32")),  # away from the bound
    ],
)
def test_by_an_extremum(
    init: str, test: str, step: str, type: str, expected: tuple[str, str], form: str
) -> None:
    assert _extrema(_ptx(init, test, step, form, type)) == [expected]


def test_those_left_in_their_body() -> None:
    """Whether such a counter goes toward the bound is not derived."""
    assert _extrema(_ptx("n", "i < m", "i += 16", FORMS[2])) == [("max", "s32")]


@pytest.mark.parametrize("form", FORMS)
def test_inequalities_after_unrolled_loops(form: str) -> None:
    found = _extrema(_ptx("n", "i != m", "i += 16", form, "u32"))
    assert sorted(found) == [("max", "u32"), ("min", "u32")]


@pytest.mark.parametrize(
    ("init", "test", "step", "type"),
    [
        ("0", "i < n", "i += 1024", "i32"),
        ("0", "i < (n & 65535)", "i += 4096", "i32"),
        ("tl.program_id(0) * 128", "i < (n & 65535)", "i += 4096", "i32"),
        ("n", "i < m", "i += 1024", "i32"),
        ("n", "i > 0", "i -= 4096", "i32"),
        ("n", "i < m", "i += 1024", "u32"),
        ("n", "i < m", "i += 1 << 40", "i64"),
        ("n", "i < m", "i += m", "i32"),  # the number of iterations is not found
        ("n", "i != m", "i += 1", "u32"),
        ("n", "i != m", "i += 16", "i32"),
    ],
)
def test_others_are_compared(init: str, test: str, step: str, type: str) -> None:
    assert not _extrema(_ptx(init, test, step, type=type))


@pytest.mark.parametrize("type", [np.int32, np.uint32])
def test_extrema_compare(type: type[np.integer]) -> None:
    numbers = np.array([-(2**31), 2**31 - 1, -1, 0, 5], np.int32).view(type)
    x, y = np.meshgrid(numbers, numbers)
    for predicate, (extremum, equality) in BY_EXTREMUM.items():
        found = getattr(np, f"{extremum}imum")(x, y)
        expected = getattr(operator, predicate)(x, y)
        assert np.array_equal(getattr(operator, equality)(found, x), expected)
