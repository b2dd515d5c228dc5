"""Emission of control flow below a level: counted loops, straight-line code, two-way branches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from tilewright.base.record import record
from tilewright.ir.core import Value
from tilewright.lowering.emit import I64, V, const
from tilewright.targets.cpu.lanes import ZERO, Lanes
from tilewright.targets.cpu.level import Level

LOOP_ALIGNMENT = 64
"""Bytes: a cache line, so that a short loop does not span two. A sum of rows, with a loop of 29
bytes, takes 20.7 µs if it spans two lines, and 16.5 µs in one (Zen 4)."""


@record(frozen=False)
class OpenLoop:
    """A loop under construction.

    Attributes:
        level: its body.
        index: the induction variable (i64).
        carried: the carried values of the current iteration.
        next: those of the next iteration; the user of `loop` must set it, if there are any.
        results: those after the loop, available after the context has ended.
    """

    level: Level
    index: V
    carried: list[V]
    next: list[V]
    results: list[V]


@contextmanager
def loop(
    level: Level,
    start: V,
    stop: V,
    step: int,
    carried: Sequence[V] = (),
    width: int | None = None,
    assumed: dict[Value, bool] | None = None,
) -> Generator[OpenLoop]:
    """A rotated loop over range(start, stop, step) below a level.

    The level's block stays open until the body is complete, so that loop-invariant values can be
    emitted in it while the body is.
    """
    b = level.b
    head = b.block("loop")
    b.at(head)
    index = b.phi(I64)
    phis = [b.phi(c.type) for c in carried]
    child = level.child(head, width, assumed)
    opened = OpenLoop(child, index.value, [p.value for p in phis], [], [])
    yield opened
    assert len(opened.next) == len(carried)
    done = b.block("done")
    b.at(child.block)
    following = b.add(index.value, const(I64, step), "nsw")
    again = b.icmp("slt", following, stop)
    b.cond_br(again, head, done, metadata=b.loop_metadata(align=LOOP_ALIGNMENT))
    index.add(following, child.block)
    for phi, value in zip(phis, opened.next, strict=True):
        phi.add(value, child.block)
    b.at(level.block)
    enter = b.icmp("slt", start, stop)
    always = enter.number == 1
    if always:
        b.br(head)
    else:
        b.cond_br(enter, head, done)
    index.add(start, level.block)
    for phi, value in zip(phis, carried, strict=True):
        phi.add(value, level.block)
    b.at(done)
    if always:
        opened.results = opened.next
    else:
        opened.results = b.merge((level.block, carried), (child.block, opened.next))
    level.block = done


@contextmanager
def straight(
    level: Level, width: int | None = None, assumed: dict[Value, bool] | None = None
) -> Generator[Level]:
    """Straight-line code below a level, with its own width and assumptions."""
    b = level.b
    body = b.block("once")
    b.at(body)
    child = level.child(body, width, assumed)
    yield child
    b.at(level.block)
    b.br(body)
    b.at(child.block)
    level.block = child.block


def either(
    level: Level, condition: V, makes: Sequence[Callable[[Level], Sequence[Sequence[V]]]]
) -> list[list[V]]:
    """A two-way branch below a level: the first body if the condition is true. Returns the merged
    values, in the bodies' groups."""
    b = level.b
    done = b.block("either")
    starts, ends, made = [], [], []
    for make in makes:
        start = b.block("one")
        child = level.child(start)
        b.at(start)
        made.append(make(child))
        b.at(child.block)
        b.br(done)
        starts.append(start)
        ends.append(child.block)
    b.at(level.block)
    b.cond_br(condition, *starts)
    b.at(done)
    merged = [b.merge(*zip(ends, group, strict=True)) for group in zip(*made, strict=True)]
    level.block = done
    return merged


def over_axes(
    level: Level,
    shape: tuple[int, ...],
    axes: list[int],
    body: Callable[[Level, dict[int, Lanes]], None],
    at: dict[int, Lanes] | None = None,
) -> None:
    """Nested loops over `axes` of a shape, the first outermost.

    Args:
        body: emits the innermost body, given its level and the coordinates by axis.
        at: coordinates of other axes, passed to the body as well.
    """
    at = at or {}
    if not axes:
        body(level, at)
        return
    axis, *rest = axes
    if shape[axis] == 1:
        over_axes(level, shape, rest, body, {**at, axis: ZERO})
        return
    with loop(level, const(I64, 0), const(I64, shape[axis]), 1, width=1) as opened:
        here = Lanes(opened.index, 0, opened.level.depth)
        over_axes(opened.level, shape, rest, body, {**at, axis: here})
