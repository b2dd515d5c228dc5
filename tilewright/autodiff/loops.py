"""Loop-carried values, and their reversal in reverse mode.

A loop-carried value is a *sum* if the loop only adds terms to it that do not depend on it:

    for k in range(n):
        total += f(k)            # also tl.dot(a, b, acc=total), total -= f(k), and inner loops

The adjoint of each f(k) is that of the final total, so that the iterations are independent of each
other in reverse, and no intermediate total is needed. Values that are scaled by a running maximum
on which no result depends are treated as sums, too (`running_maxima.py`). Any other value with a
derivative is a *state*: iterations are reversed one by one, and the value at the start of each is
recorded (`tapes.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from tilewright.autodiff.activity import active_values
from tilewright.autodiff.chains import adds_to, is_only_updated
from tilewright.autodiff.errors import unknown_carried
from tilewright.autodiff.regrid import increment_of
from tilewright.autodiff.running_maxima import FreeMaxima, RunningMaximum
from tilewright.ir.core import Op, Value
from tilewright.ops.control import For


def carried_kinds(
    loop: For, active: Collection[Value], running: RunningMaximum | None
) -> list[int]:
    """The indices of the active values that a loop carries, all of which are sums.

    Args:
        running: the loop's running maximum, if no result depends on that.

    Raises:
        CompilationError: one is not.
    """
    states = states_of(loop, active, running)
    if states:
        raise unknown_carried(loop, states[0])
    return [i for i, arg in enumerate(loop.body.args[1:]) if arg in active]


def states_of(loop: For, active: Collection[Value], running: RunningMaximum | None) -> list[int]:
    """The indices of the active values that a loop carries and that are no sums."""
    found = [
        i
        for i, arg in enumerate(loop.body.args[1:])
        if arg in active and not is_sum_of(loop, i) and (running is None or i not in running.states)
    ]
    return found or (_started_with_inputs(loop, active, running) if running is not None else [])


def _started_with_inputs(
    loop: For, active: Collection[Value], running: RunningMaximum
) -> list[int]:
    """The values scaled by a running maximum whose initial values depend on inputs: another maximum
    would scale them by another number."""
    if running.before is not None:
        return []
    return [i for i in (running.index, *running.states) if loop.inits[i] in active]


class Carried(NamedTuple):
    """A loop-carried value, by its index.

    Attributes:
        sums: what it only adds to, with a derivative.
        states: the other values with a derivative.
        increments: the integers that it moves in steps, and the steps.
        unused: what no other value depends on.
        rest: the other values without a derivative.
    """

    sums: list[int]
    states: list[int]
    increments: dict[int, Value]
    unused: list[int]
    rest: list[int]


def carried_by(loop: For, active: Collection[Value]) -> Carried:
    """The loop-carried values of a loop that is reversed iteration by iteration."""
    found = Carried([], [], {}, [], [])
    for i, arg in enumerate(loop.body.args[1:]):
        by = increment_of(loop, arg)
        if is_sum_of(loop, i):
            found.unused.append(i)
            if arg in active:
                found.sums.append(i)
        elif arg in active:
            found.states.append(i)
        elif by is not None:
            found.increments[i] = by
        else:
            found.rest.append(i)
    return found


def activity(maxima: FreeMaxima, sources: Sequence[Value]) -> tuple[FreeMaxima, set[Value]]:
    """The running maxima that count as constants, and the values with a derivative.

    Args:
        maxima: the maxima on which no result depends.
        sources: the loads whose derivatives are not zero.
    """
    while True:
        active = active_values(sources, maxima.constants)
        kept = _without_states(maxima, active)
        if len(kept.loops) == len(maxima.loops):
            return kept, active
        maxima = kept


def _without_states(maxima: FreeMaxima, active: Collection[Value]) -> FreeMaxima:
    """The running maxima of which all loops in a row have sums only, for the maximum as a constant.
    The maxima of others are differentiated like any value."""
    kept: dict[For, RunningMaximum] = {}
    constants = set(maxima.constants)
    for loop, running in maxima.loops.items():
        row = _row(running)
        if any(states_of(g.loop, active, g) for g in row):
            constants -= {*running.replaced, loop.results[running.index]}
        else:
            kept[loop] = running
    return FreeMaxima(kept, constants)


def _row(running: RunningMaximum) -> list[RunningMaximum]:
    """The maxima of loops that continue each other."""
    while running.before is not None:
        running = running.before
    found = [running]
    while found[-1].after is not None:
        found.append(found[-1].after)
    return found


def recomputed(loop: For, active: Collection[Value], running: RunningMaximum | None) -> list[int]:
    """The indices of the carried values of a loop that its reversal recomputes."""
    replaced = () if running is None else (running.index, *running.states)
    args = loop.body.args[1:]
    return [i for i, arg in enumerate(args) if arg not in active and i not in replaced]


def is_sum_of(loop: For, index: int) -> bool:
    """Whether a carried value is only ever added to; see the module's documentation."""
    return is_only_updated(loop, index, _sum)


def _sum(user: Op, value: Value) -> Value | None:
    """The sum that an op, or a nested loop, adds something to."""
    if isinstance(user, For) and value in user.inits:
        inner = user.inits.index(value)
        return user.results[inner] if is_sum_of(user, inner) else None
    return user.results[0] if adds_to(user, value) else None
