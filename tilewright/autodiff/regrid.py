"""Gradients of arrays that programs share in loops, without atomics: another grid.

    for k in range(0, K, BK):                       # program (i, j)
        acc += A[i, k] @ B[k, j]
    C[i, j] = f(acc)

All programs of a row i load the same tile of A. Its gradient is computed by a separate kernel, with
a program for each tile of A: the iteration k becomes an axis of the grid, and the axis j a loop.

    Ā[i, k] = sum over j:  ācc[i, j] @ B[k, j]ᵀ     # program (i, k)

Each program stores its tile once. Values of the original program that an iteration uses (the
adjoint of `acc`, and a running maximum) are recomputed if that takes no loop; otherwise the kernel
on the forward grid saves them, in a row for each program: see `saved_adjoints.py`.

A launch uses this schedule if it is proven correct for its arguments: the coordinates of programs
and iterations fill a box; the address and the mask depend only on some coordinates and the
iteration; and the tiles of different programs of the new grid are disjoint.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

import numpy as np

from tilewright.analysis.blocks import BlockFinder
from tilewright.autodiff.arrays import Array
from tilewright.autodiff.coordinates import Coordinates, coordinates_of, linear
from tilewright.autodiff.distinct import distinct_after_projection
from tilewright.autodiff.joined_loops import joined
from tilewright.autodiff.points import Array as Numbers
from tilewright.autodiff.points import Points, UnknownNumber
from tilewright.autodiff.schedules import Part, Regrid
from tilewright.base.record import replace
from tilewright.ir.core import Function, Value
from tilewright.ir.types import dtype_of, is_float, is_int
from tilewright.ops.arith import Add, Cast, IntDiv, constant_value
from tilewright.ops.control import Condition, For, If, While, Yield
from tilewright.ops.memory import Load


def regrids(
    fn: Function, shared: Sequence[Array], points: Points, finder: BlockFinder
) -> list[Regrid]:
    """Schedules for all loads of some of the arrays that programs share."""
    loops = [_loop_around(op) for array in shared for op in array.loads]
    for outer in dict.fromkeys(_outer_loop(loop) for loop in loops if loop is not None):
        try:
            here = points.inside(outer.body.terminator)[0] if outer is not None else points
        except UnknownNumber:
            continue
        for coordinates in coordinates_of(fn, outer, here) if here.count else ():
            found = _in_coordinates(shared, coordinates, points, finder)
            if found:
                return found
    return []


def _in_coordinates(
    shared: Sequence[Array], coordinates: Coordinates, points: Points, finder: BlockFinder
) -> list[Regrid]:
    found: dict[tuple[tuple[For, ...], tuple[int, ...]], Regrid] = {}
    for array in shared:
        made = _of_array(array, coordinates, points, finder)
        for regrid in made or ():
            key = regrid.loops, regrid.kept
            if key in found:
                found[key].loads.update(regrid.loads)
                found[key].verdicts.update(regrid.verdicts)
            else:
                found[key] = regrid
    return [replace(regrid, number=i) for i, regrid in enumerate(joined(list(found.values())))]


def _of_array(
    array: Array, coordinates: Coordinates, points: Points, finder: BlockFinder
) -> list[Regrid] | None:
    """A schedule for each load of an array; None if there is none for one of them."""
    found: list[Regrid] = []
    for op in array.loads:
        loop = _loop_around(op)
        if loop is None or any(loop in r.loops for r in found):
            return None
        if _outer_loop(loop) is not coordinates.outer:
            return None
        regrid = _of_load(array.name, op, loop, coordinates, points, finder)
        if regrid is None:
            return None
        found.append(regrid)
    return found


def _loop_around(op: Load) -> For | None:
    """The innermost loop around an op, if there are branches and one loop around it at most."""
    loop = next((outer for outer in op.ancestors() if not isinstance(outer, If)), None)
    if not isinstance(loop, For):
        return None
    around = list(loop.ancestors())
    loops = sum(isinstance(outer, For) for outer in around)
    known = all(isinstance(outer, For | If) for outer in around)
    return loop if known and loops <= 1 else None


def _outer_loop(loop: For) -> For | None:
    """The loop around a loop."""
    return next((op for op in loop.ancestors() if isinstance(op, For)), None)


def _of_load(
    name: str, op: Load, loop: For, coordinates: Coordinates, points: Points,
    finder: BlockFinder,
) -> Regrid | None:  # fmt: skip
    every = range(len(coordinates.extents))
    kept = tuple(i for i in every if op.ptr in varying_in(loop, coordinates, (i,)))
    reduced = [i for i in every if i not in kept]
    varying = varying_in(loop, coordinates, reduced)
    if not reduced or op.ptr in varying or op.mask in varying or loop.step in varying:
        return None
    try:
        here, surely = points.inside(loop.body.terminator)
        if here.count == 0 or not _is_known(surely):
            return None
        counter = here.value(loop.body.args[0]).astype(np.int64)
        steps, starts = here.value(loop.step), here.value(loop.start)
    except UnknownNumber:
        return None
    first, step = int(counter.min()), int(steps[0])
    if np.any(steps != step) or step < 1 or np.any((counter - first) % step):
        return None
    turn = (counter - first) // step
    trips = int(turn.max()) + 1
    every_number = coordinates.numbers(here)
    numbers = [every_number[i] for i in kept]
    extents = [coordinates.extents[i] for i in kept]
    # Adjacent programs have adjacent iterations: they read the same tiles of everything else.
    place = linear([turn, *numbers], [trips, *extents])
    places, chosen, inverse = np.unique(place, return_index=True, return_inverse=True)
    if trips * prod(extents) > MAX_PLACES:
        return None
    verdict = distinct_after_projection(op, here, chosen, inverse, finder)
    if not verdict.distinct:
        return None
    uniform = _have_all_iterations(here, coordinates.points, trips)
    bounds = None if uniform else _bounds(coordinates, reduced, every_number, inverse)
    begins = _all_begin_with(first, starts)
    return Regrid(
        (Part(loop, {name: op}, begins, uniform, places, bounds),),
        coordinates, kept, first, step, trips,
        None if _fills_grid(len(places), trips * prod(extents)) else places.astype(np.int32),
        {name: verdict},
    )  # fmt: skip


def _bounds(
    coordinates: Coordinates, reduced: Sequence[int], numbers: Sequence[Numbers], places: Numbers
) -> Numbers | None:
    """See `Regrid`. `numbers` and `places` are of each iteration of each program."""
    position = linear(
        [numbers[i] for i in reduced], [coordinates.extents[i] for i in reduced]
    ).astype(np.int32)
    count = np.bincount(places)
    first = np.full(len(count), np.iinfo(np.int32).max, np.int32)
    last = np.zeros(len(count), np.int32)
    np.minimum.at(first, places, position)
    np.maximum.at(last, places, position + 1)
    return np.concatenate([first, last]) if _are_consecutive(first, last, count) else None


def _are_consecutive(first: Numbers, last: Numbers, count: Numbers) -> bool:
    return bool(np.all(last - first == count))


MAX_PLACES = 1 << 31


def _is_known(surely: bool) -> bool:
    """Whether the programs that run the loop are known: common subexpressions of these are computed
    once, and would otherwise also be computed where no program runs the loop."""
    return surely


def _all_begin_with(first: int, starts: Numbers) -> bool:
    """Whether loops that start with these numbers all start with the first of them."""
    return bool(np.all(starts == first))


def _fills_grid(places: int, programs: int) -> bool:
    """Whether each position in the new grid is an iteration of some program of the kernel."""
    return places == programs


def _have_all_iterations(here: Points, points: Points, trips: int) -> bool:
    """Whether each program has all iterations that any program has."""
    return here.count == points.count * trips


# -- dataflow -------------------------------------------------------------------------------------


def varying_in(loop: For, coordinates: Coordinates, chosen: Collection[int]) -> set[Value]:
    """The values that may change with some of the coordinates. The induction variable of the loop
    is given, as are values with a constant increment (`increment_of`), if their start is."""
    found: set[Value] = set()
    given = set(coordinates.independent(chosen))
    work = coordinates.dependent(chosen)
    while work:
        value = work.pop()
        if value in found or value in given:
            continue
        found.add(value)
        for user in value.users:
            if user is loop:
                work += loop.results
                work += [arg for arg in loop.body.args[1:] if _moves(loop, arg, value)]
            elif isinstance(user, Yield | Condition) and user.parent is loop.body:
                place = user.operands.index(value)
                work += [loop.results[place], loop.body.args[place + 1]]
            elif isinstance(user, Yield | Condition | For | While | If):
                around = user if isinstance(user, For | While | If) else user.parent_op()
                if around is not None:
                    work += around.results
                    work += [arg for region in around.regions for arg in region.args]
            else:
                around = user.parent_op()
                work += user.results
                if around is not None and around is not loop:
                    work += around.results
    return found


def _moves(loop: For, arg: Value, value: Value) -> bool:
    """Whether a carried value may change with an operand of the loop."""
    if value in (loop.start, loop.step) or increment_of(loop, arg) is None:
        return True
    return loop.inits[arg.index - 1] is value


def increment_of(loop: For, arg: Value) -> Value | None:
    """The loop-invariant increment of a carried integer in each iteration, if there is one."""
    if is_float(arg.type) or arg.index == 0:
        return None
    match loop.body.terminator.operands[arg.index - 1].op:
        case Add(lhs, rhs) if lhs is arg and not loop.contains(rhs):
            return rhs
        case Add(lhs, rhs) if rhs is arg and not loop.contains(lhs):
            return lhs
        case _:
            return None


def is_turn(loop: For, op: IntDiv) -> bool:
    """Whether a quotient in a loop is how many of its iterations come before: the counter's
    distance from a start that is known, and not negative, over the step. Then all of them fit into
    the type of the counter."""
    first, step = constant_value(loop.start), constant_value(loop.step)
    if first is None or step is None or first < 0 or step < 1 or constant_value(op.rhs) != step:
        return False
    counter = loop.body.args[0]
    distance = _before_casts(op.lhs, counter)
    match distance.op:
        case Add(lhs, rhs) if first > 0:
            return constant_value(rhs) == -first and _before_casts(lhs, counter) is counter
        case _:
            return first == 0 and distance is counter


def _before_casts(value: Value, narrowest: Value) -> Value:
    """The operand of a chain of casts between integers that are as wide as another one."""
    least = dtype_of(narrowest.type).primitive_bitwidth
    while isinstance(value.op, Cast) and is_int(value.op.src.type):
        if dtype_of(value.type).primitive_bitwidth < least:
            break
        value = value.op.src
    return value
