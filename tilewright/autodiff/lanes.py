"""Propagation of the lanes of a tile along one axis to the accesses that use them.

An op keeps lanes separate if its index map takes the axis to an axis of the result. Reductions and
products along the axis, and scans, mix them.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir.core import Op, Value
from tilewright.ir.index_map import Along
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.control import For, If, Yield
from tilewright.ops.memory import Load, Store


class Lanes(NamedTuple):
    """The destination of the lanes along an axis of a value.

    Attributes:
        uses: the ops that use them in memory accesses: the op, the operand, the axis of it.
        loops: those that carry them from one iteration to another.
    """

    uses: list[tuple[Op, int, int]]
    loops: set[For]


def lanes_of(value: Value, axis: int) -> Lanes | None:
    """The destination of the lanes along an axis; None if they mix with others."""
    found = Lanes([], set())
    seen: set[tuple[Value, int]] = set()
    work = [(value, axis)]
    while work:
        item = work.pop()
        if item in seen:
            continue
        seen.add(item)
        for user in item[0].users:
            for place, operand in enumerate(user.operands):
                if operand is item[0]:
                    following = _following(user, place, item[1], found)
                    if following is None:
                        return None
                    work += following
    return found


def _following(user: Op, place: int, axis: int, found: Lanes) -> list[tuple[Value, int]] | None:
    """The values that lanes of an operand get to."""
    match user:
        case Load() | Store() | AtomicRMW():
            found.uses.append((user, place, axis))
            return []
        case For():
            found.loops.add(user)
            carried = place - (len(user.operands) - len(user.inits))
            if carried < 0:
                return None
            return [(user.body.args[carried + 1], axis), (user.results[carried], axis)]
        case Yield():
            return _yielded(user.parent_op(), place, axis, found)
        case _:
            return _results(user, place, axis)


def _yielded(
    around: Op | None, place: int, axis: int, found: Lanes
) -> list[tuple[Value, int]] | None:
    match around:
        case For():
            found.loops.add(around)
            return [(around.body.args[place + 1], axis), (around.results[place], axis)]
        case If():
            return [(around.results[place], axis)]
        case _:
            return None


def _results(op: Op, place: int, axis: int) -> list[tuple[Value, int]] | None:
    if op.no_index_maps or op.writes() or not op.results:
        return None
    found: list[tuple[Value, int]] = []
    for i, result in enumerate(op.results):
        maps = op.index_maps(i)
        index = maps[place] if place < len(maps) else None
        term = index.axes[axis] if index is not None else None
        if not isinstance(term, Along):
            return None
        found.append((result, term.axis))
    return found
