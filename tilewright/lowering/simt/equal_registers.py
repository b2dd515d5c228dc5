"""Registers of a thread that hold equal numbers: a mask over rows whose length 16 divides is the
same for 16 elements side by side, and need be compared once."""

from __future__ import annotations

from tilewright.analysis.axis_info import AxisMap
from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Value
from tilewright.ir.types import Tile, element_of
from tilewright.layout.linear import REGISTER
from tilewright.ops import arith
from tilewright.ops.memory import Load


def equal_registers(value: Value, infos: AxisMap) -> list[int] | None:
    """For each register of a tile the first that holds the same number; None where all may differ.

    The facts of a tile are also what its divisions are assumed to give, of numbers that are not
    negative. An access needs no more, but a number does: they count where nothing is assumed.
    """
    if value.layout is None or not element_of(value.type).is_int():
        return None
    runs = infos[value].constancy
    if max(runs) == 1 or not _is_sure(value, {}):
        return None
    first: dict[tuple[int, ...], int] = {}
    found: list[int] = []
    for register in range(value.layout.in_size(REGISTER)):
        # What lanes and warps add changes the same bits in all registers, so runs stay runs.
        place = value.layout.coordinates(value.layout.apply_flat(register))
        run = tuple(i // n for i, n in zip(place, runs, strict=True))
        found.append(first.setdefault(run, register))
    return found


def _is_sure(value: Value, known: dict[Value, bool]) -> bool:
    """Whether the facts of a value hold for numbers of either sign."""
    if not isinstance(value.type, Tile):
        return True
    if value not in known:
        known[value] = _found(value, known)
    return known[value]


def _found(value: Value, known: dict[Value, bool]) -> bool:
    op = value.op
    if op is None or isinstance(op, Load):
        return False  # what is carried by a loop, or may change between two accesses
    if not element_of(value.type).is_int():
        return False  # a float on its way to an integer
    if isinstance(op, arith.IntDiv | arith.Rem) and value_range(op.operands[0])[0] < 0:
        return False
    return all(_is_sure(v, known) for v in op.operands)
