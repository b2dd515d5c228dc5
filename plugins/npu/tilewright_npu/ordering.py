"""The order of the accesses of a core, which the simulator checks.

The vector clock of an instruction has, for each pipe, the number of instructions of that pipe which
are complete before it starts. An instruction is ordered after another one if its clock includes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright_npu.instructions import Access, Instruction
from tilewright_npu.machine import PIPES, SCALAR

Clock = dict[str, int]


class Mark(NamedTuple):
    """An access of an instruction, the instruction's pipe, and its position there, from 1."""

    access: Access
    pipe: str
    number: int
    what: Instruction


class Order:
    """The vector clock of each pipe, and the accesses that may conflict: later ones of the same
    pipe and bytes replace earlier ones."""

    def __init__(self) -> None:
        self.known: dict[str, Clock] = {pipe: dict.fromkeys(PIPES, 0) for pipe in PIPES}
        self.counts: dict[str, int] = dict.fromkeys(PIPES, 0)
        self._reads: dict[str, list[Mark]] = {}
        self._writes: dict[str, list[Mark]] = {}

    def issue(self, pipe: str) -> None:
        """An instruction is issued: its pipe joins the clock of the scalar pipe."""
        merge(self.known[pipe], self.known[SCALAR])

    def unordered(self, pipe: str, accesses: Sequence[Access]) -> Mark | None:
        """An earlier instruction of another pipe that conflicts with these accesses, and is not
        ordered before."""
        known = self.known[pipe]
        for access in accesses:
            kinds = (self._reads, self._writes) if access.writes else (self._writes,)
            for kind in kinds:
                for mark in kind.get(access.space, ()):
                    if (
                        mark.pipe != pipe
                        and mark.number > known[mark.pipe]
                        and access.low < mark.access.high
                        and mark.access.low < access.high
                    ):
                        return mark
        return None

    def add(self, pipe: str, accesses: Sequence[Access], what: Instruction) -> Clock:
        """Record an instruction; returns its clock."""
        self.counts[pipe] += 1
        self.known[pipe][pipe] = number = self.counts[pipe]
        for access in accesses:
            for kind in (self._reads, self._writes) if access.writes else (self._reads,):
                kind[access.space] = [
                    mark
                    for mark in kind.get(access.space, ())
                    if mark.pipe != pipe
                    or mark.access.low < access.low
                    or mark.access.high > access.high
                ]
        for access in accesses:
            kind = self._writes if access.writes else self._reads
            kind[access.space].append(Mark(access, pipe, number, what))
        return dict(self.known[pipe])

    def wait(self, pipe: str, clock: Clock) -> None:
        """The pipe has waited for an instruction with this clock."""
        merge(self.known[pipe], clock)

    def barrier(self) -> None:
        """All pipes have waited for all others."""
        for pipe in PIPES:
            self.known[pipe] = dict(self.counts)

    def forget(self, space: str) -> None:
        """Drop the accesses of a memory so far, after which later ones need not be ordered."""
        self._reads.pop(space, None)
        self._writes.pop(space, None)


def merge(into: Clock, other: Clock) -> None:
    """Join the clock of `other`."""
    for pipe, number in other.items():
        into[pipe] = max(into[pipe], number)
