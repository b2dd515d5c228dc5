"""Registers of a thread that hold equal integers, from axis information.

For example, a mask of rows whose length is divisible by 16 is constant over 16 adjacent elements,
so a thread that holds all of them computes it once. The same applies to the channel of adjacent
pixels, `i // PIXELS % CHANNELS`, to loads from its address, and to values computed from these.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.axis_info import AxisMap
from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import Tile, element_of
from tilewright.layout.linear import REGISTER, LinearLayout
from tilewright.ops import arith
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.view import View


class EqualRegisters:
    """The registers of a function's tiles that hold equal integers.

    Axis information assumes that offsets do not overflow and that divisors are positive. That is
    sufficient for the addresses and masks of accesses, but not for values in general: of others
    than these, constancy that depends on these assumptions is not used (`is_sure`).
    """

    def __init__(self, fn: Function, infos: AxisMap) -> None:
        self._infos = infos
        self._addresses = _only_for_accesses(fn)
        self._sure: dict[Value, bool] = {}

    def of(self, value: Value) -> list[int] | None:
        """For each register of a tile, the first that holds the same integer; None if all may
        differ."""
        if value.layout is None or not element_of(value.type).is_int():
            return None
        runs = self._infos[value].constancy
        if max(runs) == 1:
            return None
        sure = value in self._addresses or self.is_sure(value)
        return _first_of_runs(value.layout, runs) if sure else None

    def is_place(self, value: Value) -> bool:
        """Whether a value is an integer that serves only as an address or mask of accesses."""
        return value in self._addresses and element_of(value.type).is_int()

    def is_sure(self, value: Value) -> bool:
        """Whether the constancy of a value holds for operands of either sign."""
        return _is_sure(value, self._sure)


def _first_of_runs(layout: LinearLayout, runs: Sequence[int]) -> list[int]:
    first: dict[tuple[int, ...], int] = {}
    result: list[int] = []
    for register in range(layout.in_size(REGISTER)):
        # Runs are aligned powers of two, and lane and warp flip the same bits of the coordinates in
        # all registers: two registers of one run in thread 0 share a run in every thread.
        place = layout.coordinates(layout.apply_flat(register))
        run = tuple(i // n for i, n in zip(place, runs, strict=True))
        result.append(first.setdefault(run, register))
    return result


def _only_for_accesses(fn: Function) -> set[Value]:
    """The values that are used only as addresses and masks of loads and stores, or to compute
    these."""
    result: set[Value] = set()
    # The users of a value follow it in this order, also those in nested regions.
    for op in reversed(list(fn.walk())):
        for value in op.results:
            if value.users and all(_only_accesses(user, value, result) for user in value.users):
                result.add(value)
    return result


def _only_accesses(user: Op, value: Value, found: set[Value]) -> bool:
    """Whether a user of a value is an access that does not store or return it, or an op whose
    results serve only for accesses."""
    if isinstance(user, Load | Store):
        return value is not (user.other if isinstance(user, Load) else user.value)
    passes = user.elementwise or isinstance(user, AddPtr | View)
    return passes and all(result in found for result in user.results)


def _is_sure(value: Value, known: dict[Value, bool]) -> bool:
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
