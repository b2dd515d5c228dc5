"""The interpreter's race detector: conflicting accesses of different programs without an order.

Two accesses to a byte conflict if at least one is a non-atomic store. They race unless one happens
before the other (Lamport, 1978), which is determined with vector clocks that release and acquire
operations update. There are no false positives. Races may be missed, because only the last two
loads or atomics of each byte by different programs are recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.core import Op

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]


def bytes_of(offsets: Array, size: int) -> Array:
    """The offsets of the bytes of each element, one row per element."""
    return offsets[:, None] + np.arange(size)


class History:
    """For each byte: the last store, the last read or atomic, and the last read or atomic of a
    different program than the latter.

    Accesses are numbered from 1 over the whole launch; 0 means none.
    """

    def __init__(self, size: int) -> None:
        self.store = np.zeros(size, np.int64)
        self.read = np.zeros(size, np.int64)
        self.read_elsewhere = np.zeros(size, np.int64)


class Races:
    """The happens-before order of accesses.

    The interpreter runs programs sequentially, but a device does not. An access of one program
    happens before one of another program only if a release by the first program after its access
    synchronises, directly or transitively, with an acquire by the second program before its access.
    `seen` is the vector clock of the current program: for each program, the last of its accesses
    that happened before the current point.
    """

    def __init__(self, programs: int) -> None:
        self.program = -1
        self.accesses = 0
        self.op_of: list[Any] = [None]
        self.program_of = np.full(1024, -1, np.int64)
        self.seen = np.zeros(programs, np.int64)
        self.released: dict[int, dict[int, int]] = {}  # vector clocks by address

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
        """Record an access to the bytes `touched`, one row per element.

        Returns (row, program, op) of an earlier access that races with this one, or None.
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
        """Synchronise with the releases at these addresses: join their clocks into `seen`."""
        clocks = {id(c): c for a in addresses if (c := self.released.get(a)) is not None}
        for clock in clocks.values():
            for program, number in clock.items():
                self.seen[program] = max(self.seen[program], number)

    def release(self, addresses: list[int], *, acquired: bool) -> None:
        """Publish this program's clock at the addresses, for later acquires.

        Args:
            acquired: whether the program has just acquired the same addresses, so that its clock
                already includes theirs.
        """
        mine = {int(p): int(self.seen[p]) for p in np.flatnonzero(self.seen)}
        mine[self.program] = self.accesses
        for address in addresses:
            before = None if acquired else self.released.get(address)
            self.released[address] = mine if before is None else _join(before, mine)


def _join(a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
    return {p: max(a.get(p, 0), b.get(p, 0)) for p in a.keys() | b.keys()}
