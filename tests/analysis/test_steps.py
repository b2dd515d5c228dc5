"""Bounds of the differences of adjacent elements."""

from math import inf

import pytest

from tilewright.analysis.axis_info import axis_info
from tilewright.analysis.steps import StepBounds
from tilewright.ir.core import Module, Value
from tilewright.ir.parser import parse_module

INDICES = """
func @indices(%p: ptr<fp32>, %n: i32, %t: 128xi32) {
  %i = tile.arange start=0, end=128 : () -> 128xi32
  %c = arith.constant value=251, type=128xi32 : () -> 128xi32
  %m = arith.constant value=3, type=128xi32 : () -> 128xi32
  %f = arith.constant value=255, type=128xi32 : () -> 128xi32
  %b = tile.splat %n, shape=(128,) : i32 -> 128xi32
  %shifted = arith.sub %i, %b : (128xi32, 128xi32) -> 128xi32
  %cyclic = arith.rem %shifted, %c : (128xi32, 128xi32) -> 128xi32
  %short = arith.rem %shifted, %m : (128xi32, 128xi32) -> 128xi32
  %unknown = arith.rem %shifted, %b : (128xi32, 128xi32) -> 128xi32
  %masked = arith.and %shifted, %f : (128xi32, 128xi32) -> 128xi32
  %bits = arith.and %shifted, %c : (128xi32, 128xi32) -> 128xi32
  %clamped = arith.min %shifted, %c, propagate_nan=False : (128xi32, 128xi32) -> 128xi32
  %distance = arith.abs %shifted : 128xi32 -> 128xi32
  %reflected = arith.sub %c, %distance : (128xi32, 128xi32) -> 128xi32
  %falling = arith.neg %clamped : 128xi32 -> 128xi32
  %of_falling = arith.rem %falling, %c : (128xi32, 128xi32) -> 128xi32
  %tripled = arith.mul %clamped, %m : (128xi32, 128xi32) -> 128xi32
  %either = arith.max %tripled, %i, propagate_nan=False : (128xi32, 128xi32) -> 128xi32
  %wide = arith.cast %cyclic, to=i64, rounding="rtne" : 128xi32 -> 128xi64
  %narrow = arith.cast %cyclic, to=i8, rounding="rtne" : 128xi32 -> 128xi8
  %loaded = arith.add %t, %b : (128xi32, 128xi32) -> 128xi32
  %row = tile.expand_dims %wide, axis=0 : 128xi64 -> 1x128xi64
  %rows = tile.broadcast %row, shape=(4, 128) : 1x128xi64 -> 4x128xi64
  %q = tile.splat %p, shape=(4, 128) : ptr<fp32> -> 4x128xptr<fp32>
  %ptr = mem.addptr %q, %rows : (4x128xptr<fp32>, 4x128xi64) -> 4x128xptr<fp32>
  control.return [] : () -> ()
}
"""

NAMES = [
    "i",
    "c",
    "m",
    "f",
    "b",
    "shifted",
    "cyclic",
    "short",
    "unknown",
    "masked",
    "bits",
    "clamped",
    "distance",
    "reflected",
    "falling",
    "of_falling",
    "tripled",
    "either",
    "wide",
    "narrow",
    "loaded",
    "row",
    "rows",
    "q",
    "ptr",
]

UNKNOWN = (-inf, inf)


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("i", (1, 1)),
        ("b", (0, 0)),
        ("shifted", (1, 1)),
        ("cyclic", (-inf, 1)),
        ("short", UNKNOWN),  # begins again within each run
        ("unknown", UNKNOWN),
        ("masked", (-inf, 1)),
        ("bits", UNKNOWN),  # not the lowest ones
        ("clamped", (0, 1)),
        ("distance", (-1, 1)),
        ("reflected", (-1, 1)),
        ("falling", (-1, 0)),
        ("of_falling", UNKNOWN),  # falls, and rises where it begins again
        ("tripled", (0, 3)),
        ("either", (0, 3)),
        ("wide", (-inf, 1)),
        ("narrow", UNKNOWN),  # wraps
        ("loaded", UNKNOWN),
        ("ptr", (-inf, 1)),
    ],
)
def test_bounds_of_steps(name: str, bounds: tuple[float, float]) -> None:
    module = parse_module(INDICES)
    value = _value(module, name)
    found = StepBounds(axis_info(module.entry), 16)
    axis = 1 if name == "ptr" else 0
    assert found.of(value, axis, 24) == bounds
    assert found.are_mostly_one(value, axis) == (bounds[1] == 1)


def test_rows_of_one_index_have_no_steps_between_them() -> None:
    module = parse_module(INDICES)
    assert StepBounds(axis_info(module.entry), 4).of(_value(module, "ptr"), 0, 24) == (0, 0)


def _value(module: Module, name: str) -> Value:
    return list(module.entry.body)[NAMES.index(name)].results[0]
