"""The form of the rules by which elements are computed; see `evaluate`."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from tilewright.ir.core import Value
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.level import Coords


class Need(NamedTuple):
    """An operand that a rule requires at a point; with `offset`, as a 64-bit part of an address."""

    value: Value
    coords: Coords
    offset: bool = False


Rule = Generator[Need, Lanes, Lanes]
"""The computation of a value at a point."""
