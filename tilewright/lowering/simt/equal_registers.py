"""Registers of a thread that hold equal integers, from axis information.

For example, a mask of rows whose length is divisible by 16 is constant over 16 adjacent elements,
so a thread that holds all of them computes it once.
"""

from __future__ import annotations

from tilewright.analysis.axis_info import AxisMap
from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Value
from tilewright.ir.types import Tile, element_of
from tilewright.layout.linear import REGISTER
from tilewright.ops import arith
from tilewright.ops.memory import Load


def equal_registers(value: Value, infos: AxisMap, known: dict[Value, bool]) -> list[int] | None:
    """For each register of a tile, the first that holds the same integer; None if all may differ.

    Args:
        known: what was found of values before; one dictionary for a function.

    Axis information assumes that offsets do not overflow and that divisors are positive. That is
    sufficient for the addresses and masks of accesses, but not for values in general, so constancy
    that depends on these assumptions is not used here (`is_sure`).
    """
    if value.layout is None or not element_of(value.type).is_int():
        return None
    runs = infos[value].constancy
    if max(runs) == 1 or not is_sure(value, known):
        return None
    first: dict[tuple[int, ...], int] = {}
    found: list[int] = []
    for register in range(value.layout.in_size(REGISTER)):
        # Runs are aligned powers of two, and lane and warp flip the same bits of the coordinates in
        # all registers: two registers of one run in thread 0 share a run in every thread.
        place = value.layout.coordinates(value.layout.apply_flat(register))
        run = tuple(i // n for i, n in zip(place, runs, strict=True))
        found.append(first.setdefault(run, register))
    return found


def is_sure(value: Value, known: dict[Value, bool]) -> bool:
    """Whether the constancy of a value holds for operands of either sign.

    Memoised in `known`, and without recursion, as kernels have long chains of ops.
    """
    pending = [value]
    while pending:
        operands = _operands(pending[-1])
        missing = [v for v in operands or () if v not in known]
        if missing:
            pending += missing
        else:
            known[pending.pop()] = operands is not None and all(known[v] for v in operands)
    return known[value]


def _operands(value: Value) -> list[Value] | None:
    """The values on whose constancy that of a value depends; None if it does not hold."""
    if not isinstance(value.type, Tile):
        return []
    op = value.op
    if op is None or isinstance(op, Load):
        return None  # carried by a loop; or loads, whose memory may change between two accesses
    if not element_of(value.type).is_int():
        return None  # axis information does not describe floats, nor integers cast from them
    if isinstance(op, arith.IntDiv | arith.Rem) and value_range(op.operands[0])[0] < 0:
        return None
    return op.operands
