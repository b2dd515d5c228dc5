"""Gradients of arrays that programs share, without atomics: workers and partial sums.

    w = tl.load(w_ptr + columns)          # the same elements for each row
    tl.store(y_ptr + row * stride + columns, x * w)

The gradient of `w` is a sum over programs. The gradient kernel is launched on fewer programs, the
*workers*. Each worker runs a range of the kernel's programs in a loop, accumulates the gradient of
`w` in registers, and stores its partial sum once, in its own row:

    worker  0   1   2   3               of the kernel's programs
    loop    ▒▒▒ ▒▒▒ ▒▒▒ ▒▒▒             each stores its part of the gradient of x
            ↓   ↓   ↓   ↓
    partial ─── ─── ─── ───             one row each, summed at the end

The loop runs over one or more axes of the grid. This requires arrays whose addresses and masks do
not depend on these axes, and are distinct along the remaining axes of the grid. The gradients of
other small arrays, whose addresses depend on the program or are in a loop, are accumulated in
memory, in the worker's row. The order of additions is fixed in either case, so results are
deterministic.

If arrays are loaded in loops, and programs share their elements along axes with few programs, there
are no workers: each program stores its *part* of the gradient in the row of partial sums of its
indices along these axes. In a selective scan, B of a sequence is loaded by all programs of
channels, in each step of the loop; each of them has a row, in which sequences have disjoint
elements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from math import prod

from tilewright.analysis.blocks import BlockFinder
from tilewright.autodiff.arrays import Array
from tilewright.autodiff.distinct import Verdict, distinct, lanes_are_distinct
from tilewright.autodiff.points import Points, UnknownNumber
from tilewright.base.record import record
from tilewright.ir.core import Function, Op, Value
from tilewright.ops.control import Condition, For, If, ProgramId, While, Yield


@record
class Coarsening:
    """The axes of the grid that workers loop over, and the arrays whose gradients they add up.

    Attributes:
        verdicts: by array that is added up in registers, how it is accessed by the programs at the
            origin of these axes.
        rows: the arrays that are added up in the worker's row of partial sums.
    """

    axes: tuple[int, ...]
    verdicts: dict[str, Verdict]
    rows: tuple[str, ...] = ()

    @property
    def arrays(self) -> tuple[str, ...]:
        return (*self.verdicts, *self.rows)


@record
class Parts:
    """Gradients of which each program stores its part in a row of partial sums.

    Attributes:
        axes: by array those of the grid along which programs share elements; there is a row for
            each place along them.
        verdicts: by array, how it is accessed by the programs of one row.
    """

    axes: dict[str, tuple[int, ...]]
    verdicts: dict[str, Verdict]


def varying_values(fn: Function, axes: Sequence[int]) -> set[Value]:
    """The values that may differ between programs that differ along these axes."""
    return reached_by(_programs(fn, axes))


def _programs(fn: Function, axes: Sequence[int]) -> list[Value]:
    return [op.result for op in fn.walk() if isinstance(op, ProgramId) and op.axis in axes]


def reached_by(values: Iterable[Value], *, by_place: bool = False) -> set[Value]:
    """The values that depend on any of these, themselves included.

    Args:
        by_place: whether what a loop carries depends on what it is in the iteration before, by
            place, and its counter on the bounds only. Otherwise all that a loop carries, and its
            counter, depend on each of them.
    """
    found: set[Value] = set()
    work = list(values)
    while work:
        value = work.pop()
        if value not in found:
            found.add(value)
            for user in value.users:
                here = _reached_by_place(value, user) if by_place else None
                work += _reached(user) if here is None else here
    return found


def _reached_by_place(value: Value, user: Op) -> list[Value] | None:
    """The value that depends on one that a loop takes or a region yields; None if the user does
    neither."""
    loop = user.parent_op() if isinstance(user, Yield) else user
    if not isinstance(loop, For):
        return None
    if user is loop and value in (loop.start, loop.stop, loop.step):
        return _all_of(loop)
    carried = user.operands if isinstance(user, Yield) else loop.inits
    places = [i for i, operand in enumerate(carried) if operand is value]
    return [v for i in places for v in (loop.results[i], loop.body.args[i + 1])]


def _reached(user: Op) -> list[Value]:
    """The values that depend on an operand of an op, those in its regions included."""
    if isinstance(user, Yield | Condition):
        around = user.parent_op()
        return [] if around is None else _all_of(around)
    if isinstance(user, For | While | If):
        return _all_of(user)
    around = user.parent_op()
    return [*user.results, *(around.results if around is not None else ())]


def _is_at_times(op: Op, varying: set[Value]) -> bool:
    """Whether an op runs under a condition, or in a loop with bounds, that varies."""
    for around in op.ancestors():
        bounds = [around.start, around.stop, around.step] if isinstance(around, For) else None
        if isinstance(around, While) or varying.intersection(bounds or around.operands):
            return True
    return False


def _all_of(op: Op) -> list[Value]:
    return [*op.results, *(arg for region in op.regions for arg in region.args)]


def coarsening(
    fn: Function, shared: Sequence[Array], points: Points, finder: BlockFinder,
    small: Collection[str] = (), summed: Collection[str] = (),
) -> Coarsening | None:  # fmt: skip
    """How workers can add up the gradients of the most of the shared arrays; None if of none.

    Args:
        small: the arrays of which each worker may have a row of its own in memory.
        summed: those of which lanes that have the same element are added up first.
    """
    used = tuple(axis for axis in range(3) if points.grid[axis] > 1)
    best: Coarsening | None = None
    for size in range(1, len(used) + 1):
        for axes in combinations(used, size):
            found = _in_registers(fn, shared, axes, points, finder)
            if found.verdicts and (best is None or len(found.arrays) > len(best.arrays)):
                best = found
    if best is not None and len(best.arrays) == len(shared):
        return best
    # A row belongs to one worker only if all of the grid is shared out among workers.
    whole = _in_registers(fn, shared, used, points, finder) if used else None
    rest = [a for a in shared if whole and a.name in small and a.name not in whole.verdicts]
    rows = [a.name for a in rest if a.name in summed or lanes_are_distinct(a.loads, points, finder)]
    if whole is not None and rows:
        whole = Coarsening(used, whole.verdicts, tuple(rows))
        return whole if best is None or len(whole.arrays) > len(best.arrays) else best
    return best


def parts_of(
    fn: Function, shared: Sequence[Array], points: Points, finder: BlockFinder, most: int
) -> Parts | None:
    """How programs can store parts of the gradients of all shared arrays, in at most so many rows
    of each; None if they cannot."""
    used = tuple(axis for axis in range(3) if points.grid[axis] > 1)
    found = Parts({}, {})
    for array in shared:
        for axes in (a for size in range(len(used), 0, -1) for a in combinations(used, size)):
            if prod(points.grid[axis] for axis in axes) > most:
                continue
            varying = reached_by(_programs(fn, axes), by_place=True)
            verdict = _at_origin(fn, array, axes, varying, points, finder, in_loops=True)
            if verdict is not None:
                found.axes[array.name], found.verdicts[array.name] = axes, verdict
                break
        else:
            return None
    return found


def _in_registers(
    fn: Function, shared: Sequence[Array], axes: tuple[int, ...], points: Points,
    finder: BlockFinder,
) -> Coarsening:  # fmt: skip
    varying = varying_values(fn, axes)
    return Coarsening(
        axes,
        {
            array.name: verdict
            for array in shared
            if (verdict := _at_origin(fn, array, axes, varying, points, finder)) is not None
        },
    )


def _at_origin(
    fn: Function, array: Array, axes: Sequence[int], varying: set[Value], points: Points,
    finder: BlockFinder, in_loops: bool = False,
) -> Verdict | None:  # fmt: skip
    """How an array is accessed by the programs at the origin of axes; None if others do not have
    the same elements there, or one has an element several times.

    Args:
        in_loops: whether loads may be in loops and branches.
    """
    for op in array.loads:
        if not in_loops and op.parent is not fn.body:
            return None
        if op.ptr in varying or op.mask in varying or _is_at_times(op, varying):
            return None
    try:
        verdict = distinct(fn, array.loads, points.at_origin(axes), finder)
    except UnknownNumber:
        return None
    return verdict if verdict.distinct else None
