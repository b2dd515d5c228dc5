"""The order of accesses by different pipes, which the compiler establishes and simulators check.

The clock of an instruction has, for each pipe, the number of instructions of that pipe which are
complete before it starts. An instruction is ordered after another one if its clock has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tilewright_npu.instructions import Instruction
from tilewright_npu.machine import PIPES, SCALAR

Clock = dict[str, int]


class Access(NamedTuple):
    """Bytes that an instruction reads or writes.

    Attributes:
        space: ``register``, a memory of the core, or the device's ``memory``.
        low, high: the range.
        writes: whether it writes them.
    """

    space: str
    low: int
    high: int
    writes: bool

    def conflicts(self, other: Access) -> bool:
        """Whether the two must be ordered."""
        return (
            (self.writes or other.writes)
            and self.space == other.space
            and self.low < other.high
            and other.low < self.high
        )


@dataclass
class Event:
    """An instruction with its accesses.

    Attributes:
        pipe, number: the pipe, and the position among its instructions, from 1.
        clock: what is complete when the instruction is.
        accesses: of the instruction.
        what: the instruction.
    """

    pipe: str
    number: int
    clock: Clock
    accesses: list[Access]
    what: Instruction


class Order:
    """The instructions so far, and what each pipe knows to be complete."""

    def __init__(self) -> None:
        self.known: dict[str, Clock] = {pipe: dict.fromkeys(PIPES, 0) for pipe in PIPES}
        self.counts: dict[str, int] = dict.fromkeys(PIPES, 0)
        self.events: list[Event] = []

    def issue(self, pipe: str) -> None:
        """An instruction is issued: what the scalar pipe knows, its pipe knows."""
        merge(self.known[pipe], self.known[SCALAR])

    def unordered(self, pipe: str, accesses: list[Access]) -> list[Event]:
        """The earlier instructions of other pipes that conflict with these accesses, and that the
        pipe does not know to be complete."""
        known = self.known[pipe]
        return [
            event
            for event in self.events
            if event.pipe != pipe
            and event.number > known[event.pipe]
            and any(a.conflicts(b) for a in accesses for b in event.accesses)
        ]

    def add(self, pipe: str, accesses: list[Access], what: Instruction) -> Event:
        """Record an instruction."""
        self.counts[pipe] += 1
        self.known[pipe][pipe] = self.counts[pipe]
        event = Event(pipe, self.counts[pipe], dict(self.known[pipe]), accesses, what)
        self.events.append(event)
        return event

    def wait(self, pipe: str, clock: Clock) -> None:
        """The pipe has waited for an instruction with this clock."""
        merge(self.known[pipe], clock)

    def barrier(self) -> None:
        """All pipes have waited for all others."""
        for pipe in PIPES:
            self.known[pipe] = dict(self.counts)
        self.events.clear()

    @property
    def in_flight(self) -> bool:
        """Whether an instruction of another pipe may be incomplete."""
        return any(event.pipe != SCALAR for event in self.events)


def merge(into: Clock, other: Clock) -> None:
    """Know what `other` knows, too."""
    for pipe, number in other.items():
        into[pipe] = max(into[pipe], number)


def needed(events: list[Event]) -> list[Event]:
    """The events to wait for so that all of `events` are complete: the last one of each pipe,
    except those that another one knows to be complete."""
    last: dict[str, Event] = {}
    for event in events:
        if event.pipe not in last or event.number > last[event.pipe].number:
            last[event.pipe] = event
    return [
        event
        for event in last.values()
        if not any(
            other is not event and other.clock[event.pipe] >= event.number
            for other in last.values()
        )
    ]


def repeat(order: Order, body: list[Event], new_event: Callable[[], int]) -> list[int]:
    """Order the iterations of a loop among each other, by events instead of a barrier.

    Args:
        order: after the first run of the body.
        body: its instructions, in the order of their issue.
        new_event: returns the number of a new event.

    Returns:
        the events by which an iteration waits for an earlier one; they must be set before the loop.
    """
    before: list[int] = []
    clocks = {e: event.clock for event in body for e in event.what.sets}
    while True:
        added = 0
        for event in body:
            instruction = event.what
            order.issue(event.pipe)
            for waited in instruction.waits:
                order.wait(event.pipe, clocks[waited])
            for source in needed(order.unordered(event.pipe, event.accesses)):
                number = new_event()
                source.what.sets.append(number)
                instruction.waits.append(number)
                order.wait(event.pipe, source.clock)
                before.append(number)
                added += 1
            done = order.add(event.pipe, event.accesses, instruction)
            clocks.update(dict.fromkeys(instruction.sets, done.clock))
        if not added:
            return before
