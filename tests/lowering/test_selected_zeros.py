"""Selections between a number and zero, which LLVM's back ends take for extrema."""

from __future__ import annotations

import re

import pytest

from tilewright.base.llvm_library import parsed
from tilewright.lowering.selected_zeros import with_selected_zeros

PLUS, MINUS = "0.0", "-0.0"

FUNCTION = """
define {type} @f({type} %x, {type} %y) {{
  %c = fcmp contract {comparison}
  %r = select contract {condition} %c, {type} {a}, {type} {b}
  ret {type} %r
}}
"""


def rewritten(type: str, comparison: str, a: str, b: str) -> str:
    """The comparison after the rewrite, of IR as LLVM prints it."""
    lanes = re.match(r"<(\d+) x ", type)
    condition = f"<{lanes[1]} x i1>" if lanes else "i1"
    text = FUNCTION.format(type=type, comparison=comparison, condition=condition, a=a, b=b)
    with parsed(text) as module:
        printed = str(module)
    text = with_selected_zeros(printed)
    with parsed(text) as module:
        module.verify()
        found = re.search(r"fcmp contract (.*)", str(module))
    assert found is not None
    return found[1].replace("0.000000e+00", "0.0")


# The zero of the comparison and the selection, and whether an instruction would return the other.
@pytest.mark.parametrize(
    ("order", "zero", "wrong"),
    [("olt", PLUS, True), ("ogt", PLUS, False), ("olt", MINUS, False), ("ogt", MINUS, True),
     ("ult", PLUS, True), ("ugt", MINUS, True), ("ole", PLUS, False), ("oeq", PLUS, False)],
)  # fmt: skip
def test_minima_with_positive_and_maxima_with_negative_zeros(
    order: str, zero: str, wrong: bool
) -> None:
    other = MINUS if zero == PLUS else PLUS
    for a, b in (("%x", zero), (zero, "%x")):
        expected = f"{order} float %x, {other if wrong else zero}"
        assert rewritten("float", f"{order} float %x, {zero}", a, b) == expected


def test_zeros_on_the_left() -> None:
    assert rewritten("double", "ogt double 0.0, %x", "%x", "0.0") == "ogt double -0.0, %x"
    assert rewritten("double", "olt double 0.0, %x", "%x", "0.0") == "olt double 0.0, %x"


@pytest.mark.parametrize("type", ["half", "bfloat", "<2 x half>", "<4 x float>", "<2 x bfloat>"])
def test_types(type: str) -> None:
    element = type.strip("<>").split()[-1]
    plus = {"half": "0xH0000", "bfloat": "0xR0000"}.get(element, "0.0")
    minus = {"half": "0xH8000", "bfloat": "0xR8000"}.get(element, "-0.0")
    if type.startswith("<"):
        plus, minus = "zeroinitializer", f"splat ({element} {minus})"
    assert rewritten(type, f"olt {type} %x, {plus}", "%x", plus) == f"olt {type} %x, {minus}"
    assert rewritten(type, f"ogt {type} %x, {minus}", "%x", minus) == f"ogt {type} %x, {plus}"


def test_other_selections() -> None:
    """Of another number, or by another zero, for which LLVM minds the signs."""
    same = "olt float %x, 0.0"
    assert rewritten("float", same, "%y", "0.0") == same
    assert rewritten("float", same, "%x", "-0.0") == same
    assert rewritten("float", same, "%x", "%y") == same


@pytest.mark.parametrize(
    ("type", "number"),
    [("float", "-151.0"), ("<4 x float>", "splat (float -151.0)"),
     ("<4 x float>", "splat (float 1.0)"), ("<2 x half>", "splat (half 0xHC000)"),
     ("<2 x bfloat>", "splat (bfloat 0xR4300)")],
)  # fmt: skip
@pytest.mark.parametrize("order", ["olt", "ogt"])
def test_bounds_other_than_zero_stay(type: str, number: str, order: str) -> None:
    found = rewritten(type, f"{order} {type} %x, {number}", number, "%x")
    same = found.replace("1.510000e+02", "151.0").replace("1.000000e+00", "1.0")
    assert same == f"{order} {type} %x, {number}"
