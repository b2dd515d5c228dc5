"""Inputs whose gradients the kernels of other inputs add atomically.

    for each tile of keys:                                  a program for each tile of keys:
        s = dot(q, k[j]); …                      →              for each tile of queries i:
                                                                    s = dot(q[i], k); …
                                                                    k̄ += …
                                                                    atomic_add(q̄[i], …)

The kernel of a `Regrid` runs each iteration of its loops once, in another order. It could compute
the gradient of what the iterations use from outside of the loop as well: a kernel of its own for
that would compute the iterations again. But several programs have a term for each element, so that
they add them atomically, in any order. This is done for the inputs that the user names.

The terms are complete if the loaded values affect results only through iterations of loops that
have one schedule each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tilewright.autodiff.schedules import Added, Regrid
from tilewright.base.record import replace
from tilewright.ir.core import Op, Region, Value
from tilewright.ops.atomic import AnyAtomic
from tilewright.ops.control import For, If, While
from tilewright.ops.memory import Load, Store


def with_added(
    schedules: Sequence[Regrid], inputs: Mapping[str, Sequence[Load]], active: Collection[Value]
) -> list[Regrid]:
    """The schedules with those inputs that can be added by their kernels.

    Args:
        inputs: the loads of each input that may be.
        active: the values that depend on inputs and affect results.
    """
    added: list[dict[str, Added]] = [{} for _ in schedules]
    for name, loads in inputs.items():
        for i, values in (_entries(loads, active, schedules) or {}).items():
            added[i][name] = Added(tuple(loads), frozenset(values))
    return [replace(s, added=by_name) for s, by_name in zip(schedules, added, strict=True)]


def _entries(
    loads: Sequence[Load], active: Collection[Value], schedules: Sequence[Regrid]
) -> dict[int, set[Value]] | None:
    """The values by which an input's loads enter the loops of schedules, by place among these.

    Args:
        loads: all loads of the input.

    Returns:
        None if the gradient of the input is not the sum of these schedules' terms.
    """
    by_loop: dict[Op, list[int]] = {}
    for i, schedule in enumerate(schedules):
        for loop in schedule.loops:
            by_loop.setdefault(loop, []).append(i)
    found: dict[int, set[Value]] = {}
    work, seen = [op.result for op in loads if op.result in active], set[Value]()
    if not all(_is_outside(op, schedules) for op in loads):
        return None
    while work:
        value = work.pop()
        for user in value.users:
            loop = next((around for around in user.ancestors() if around in by_loop), None)
            if loop is not None:
                if len(by_loop[loop]) != 1:
                    return None
                found.setdefault(by_loop[loop][0], set()).add(value)
                continue
            if user.terminator or isinstance(user, For | If | While | Store | AnyAtomic):
                return None
            results = [r for r in user.results if r in active]
            if results and not _is_outside(user, schedules):
                return None
            work += [r for r in results if r not in seen]
            seen.update(results)
    return found or None


def _is_outside(op: Op, schedules: Sequence[Regrid]) -> bool:
    """Whether an op is in the regions around the loops of all schedules, which each iteration's
    program enters."""
    return all(op.parent in _regions(schedule) for schedule in schedules)


def _regions(schedule: Regrid) -> tuple[Region | None, ...]:
    loop = schedule.loops[0]
    nest = schedule.nest
    outermost = nest[0].parent.parent if nest and nest[0].parent is not None else loop.parent
    return outermost, *nest
