"""Finds accesses of different programs to the same bytes that nothing orders.

A load or an atomic races with a store, a store with any access, unless a release and an acquire
order the two: the happens-before order (Lamport, 1978), kept as vector clocks. Of the loads and
atomics of a byte only two are remembered, so a race may be missed; what is reported is one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.core import Op

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]


def bytes_of(offsets: Array, size: int) -> Array:
    """The offset of each byte of each element, one row an element."""
    return offsets[:, None] + np.arange(size)


class History:
    """Per byte: the last store, the last read or atomic, and the last one of another program.

    The numbers are those of accesses, counted over the whole launch from 1; 0 is none.
    """

    def __init__(self, size: int) -> None:
        self.store = np.zeros(size, np.int64)
        self.read = np.zeros(size, np.int64)
        self.read_elsewhere = np.zeros(size, np.int64)


class Races:
    """Which accesses of different programs are ordered, by atomics that release and acquire.

    Programs run one after the other here; on a device they do not. An access is ordered after one
    of another program only if that program, later, released an address that this program acquired
    since, directly or through others: the happens-before order of Lamport (1978), kept as one
    number a program, as vector clocks are.
    """

    def __init__(self, programs: int) -> None:
        self.program = -1
        self.accesses = 0
        self.op_of: list[Any] = [None]
        self.program_of = np.full(1024, -1, np.int64)
        self.seen = np.zeros(programs, np.int64)  # up to which access each program is ordered
        self.released: dict[int, dict[int, int]] = {}

    def begin_program(self, index: int) -> None:
        self.program = index
        self.seen[:] = 0

    def _next(self, op: Op) -> int:
        self.accesses += 1
        self.op_of.append(op)
        if self.accesses == len(self.program_of):
            self.program_of = np.concatenate([self.program_of, np.full_like(self.program_of, -1)])
        self.program_of[self.accesses] = self.program
        return self.accesses

    def record(
        self, op: Op, plain_store: bool, history: History, touched: Array
    ) -> tuple[int, int, Op] | None:
        """Note an access to bytes of a history, given in rows, one an element.

        A load and an atomic race with a store only; a store races with all that are not ordered.
        Returns (row, program, op) of an earlier access that races with this one.
        """
        earlier = [history.store[touched]]
        if plain_store:
            earlier += [history.read[touched], history.read_elsewhere[touched]]
        for numbers in earlier:
            programs = self.program_of[numbers]
            unordered = (numbers > self.seen[programs]) & (programs != self.program)
            if unordered.any():
                i, k = (int(x[0]) for x in np.nonzero(unordered))
                return i, int(programs[i, k]), self.op_of[int(numbers[i, k])]
        number = self._next(op)
        if plain_store:
            history.store[touched] = number
        else:
            last = history.read[touched]
            elsewhere = (last > 0) & (self.program_of[last] != self.program)
            kept = history.read_elsewhere[touched]
            history.read_elsewhere[touched] = np.where(elsewhere, last, kept)
            history.read[touched] = number
        return None

    def acquire(self, addresses: list[int]) -> None:
        """What was released at the addresses happened before all that this program does now."""
        clocks = {id(c): c for a in addresses if (c := self.released.get(a)) is not None}
        for clock in clocks.values():
            for program, number in clock.items():
                self.seen[program] = max(self.seen[program], number)

    def release(self, addresses: list[int], *, acquired: bool) -> None:
        """All that this program did, or has seen, happened before a later acquire there.

        With `acquired` the program has just acquired the same addresses, and so has seen what
        was released there.
        """
        mine = {int(p): int(self.seen[p]) for p in np.flatnonzero(self.seen)}
        mine[self.program] = self.accesses
        for address in addresses:
            before = None if acquired else self.released.get(address)
            self.released[address] = mine if before is None else _join(before, mine)


def _join(a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
    return {p: max(a.get(p, 0), b.get(p, 0)) for p in a.keys() | b.keys()}
