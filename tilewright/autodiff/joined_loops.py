"""Joint schedules of loops that load the same tiles.

    for j in range(diagonal):                       # causal attention, program i
        acc += p(q[i], k[j]) @ v[j]
    for j in range(diagonal, end):
        acc += masked(p(q[i], k[j])) @ v[j]

The gradient of a tile of keys has contributions from both loops. One program sums them: it loads
the tile once, and stores its gradient once, without rounding in between.

The tiles are the same if the iterations of one loop are among those of the other, and both compute
the addresses and masks of their loads from the induction variable by the same ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.autodiff.points import Array as Numbers
from tilewright.autodiff.schedules import Part, Regrid
from tilewright.base.record import replace
from tilewright.ir.core import Value
from tilewright.ops.control import For


def joined(schedules: Sequence[Regrid]) -> list[Regrid]:
    """The schedules, with one instead of several of the same tiles."""
    found: list[Regrid] = []
    for schedule in sorted(schedules, key=lambda schedule: -schedule.programs):
        for i, other in enumerate(found):
            made = _joined(other, schedule)
            if made is not None:
                found[i] = made
                break
        else:
            found.append(schedule)
    return found


def _joined(a: Regrid, b: Regrid) -> Regrid | None:
    """The schedule of both, if the second has some of the tiles of the first one."""
    same = a.loads.keys() == b.loads.keys() and a.kept == b.kept and a.nest == b.nest
    if not same or a.step != b.step or (a.first - b.first) % a.step or not _have_equal_loads(a, b):
        return None
    first = min(a.first, b.first)
    trips = max(s.trips + (s.first - first) // s.step for s in (a, b))
    moved = [_moved(s, first, trips) for s in (a, b)]
    positions = [np.unique(np.concatenate([p.positions for p in s.parts])) for s in moved]
    if not _has_all(*positions):
        return None
    places = positions[0]
    every = trips * prod(a.coordinates.extents[i] for i in a.kept)
    programs = prod(a.coordinates.extents[i] for i in a.reduced)
    parts = [_with_bounds(part, places, programs) for s in moved for part in s.parts]
    chosen = None if len(places) == every else places.astype(np.int32)
    return replace(moved[0], parts=tuple(parts), places=chosen)


def _has_all(positions: Numbers, others: Numbers) -> bool:
    """Whether some positions are among others. Different positions of either are known to have no
    element in common, so those of both have none if one has all."""
    return bool(np.isin(others, positions).all())


def _moved(schedule: Regrid, first: int, trips: int) -> Regrid:
    """A schedule with other numbers of iterations."""
    before = (schedule.first - first) // schedule.step

    def positions(part: Part) -> Numbers:
        turn, rest = part.positions % schedule.trips, part.positions // schedule.trips
        return turn + before + rest * trips

    parts = tuple(
        replace(part, positions=positions(part), begins=part.begins and not before)
        for part in schedule.parts
    )
    return replace(schedule, parts=parts, first=first, trips=trips)


def _with_bounds(part: Part, places: Numbers, programs: int) -> Part:
    """A part whose bounds are for these positions, some of which it may not have."""
    if len(part.positions) == len(places) or (part.bounds is None and not part.uniform):
        return part
    count = len(part.positions)
    first, last = np.zeros(len(places), np.int32), np.zeros(len(places), np.int32)
    at = np.searchsorted(places, part.positions)
    first[at] = 0 if part.bounds is None else part.bounds[:count]
    last[at] = programs if part.bounds is None else part.bounds[count:]
    return replace(part, positions=places, bounds=np.concatenate([first, last]), uniform=False)


# -- addresses ------------------------------------------------------------------------------------


def _have_equal_loads(a: Regrid, b: Regrid) -> bool:
    """Whether the loads of two loops have the same addresses and masks in the same iteration."""
    return all(
        _are_equivalent(a.loads[name].operands, b.loads[name].operands, a.loops[0], b.loops[0])
        and a.loads[name].attributes == b.loads[name].attributes
        for name in a.loads
    )


def _are_equivalent(ours: Sequence[Value], theirs: Sequence[Value], loop: For, other: For) -> bool:
    """Whether values are computed by the same ops, from the counters of two loops and from values
    outside of these."""
    if loop.start.type != other.start.type or len(ours) != len(theirs):
        return False
    known = {(loop.body.args[0], other.body.args[0])}
    work = list(zip(ours, theirs, strict=True))
    while work:
        a, b = work.pop()
        if (a is b and not loop.contains(a)) or (a, b) in known:
            continue
        known.add((a, b))
        left, right = a.op, b.op
        if left is None or right is None or type(left) is not type(right) or a.index != b.index:
            return False
        repeatable = left.pure and not left.regions and left.attributes == right.attributes
        if not repeatable or a.type != b.type or len(left.operands) != len(right.operands):
            return False
        work += zip(left.operands, right.operands, strict=True)
    return True
