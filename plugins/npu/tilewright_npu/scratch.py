"""Scratch memory: live ranges of tiles, and their offsets."""

from __future__ import annotations

from tilewright.ir.core import Function, Op, Region, Value
from tilewright_npu.machine import ALIGNMENT


class LiveRanges:
    """The position of the last use of each value. Positions number the ops in pre-order; a use in a
    nested region is a use at the end of the op with the region, as it may be a loop.

    Args:
        fn: the kernel.
        folded: ops that are computed where their results are used.
    """

    def __init__(self, fn: Function, folded: set[Op]) -> None:
        self.start: dict[Op, int] = {}
        self.end: dict[Op, int] = {}
        self.last: dict[Value, int] = {}
        self._number(fn.body)
        for op in fn.walk():
            for value in op.operands:
                self._use(value, op)
                if value.op in folded:
                    for source in value.op.operands:
                        self._use(source, op)

    def _number(self, region: Region) -> None:
        for op in region:
            self.start[op] = len(self.start)
            for nested in op.regions:
                self._number(nested)
            self.end[op] = len(self.start) - 1

    def _use(self, value: Value, op: Op) -> None:
        home = value.region
        at = home.find_ancestor(op) if home is not None else None
        position = self.end[op] if at is None else self.end[at]
        self.last[value] = max(self.last.get(value, -1), position)


class Full(Exception):
    """A memory has no free range of a size."""


class Allocator:
    """Offsets in a memory.

    Args:
        capacity: of the memory, in bytes.
        rotate: whether to search from the end of the last range on, so that memory is reused as
            late as possible: what used it before is complete then. Otherwise the first range that
            fits is taken, so that as little memory as possible is used.

    Attributes:
        size: the bytes that have been in use at a time.
        in_use: the bytes that are in use now.
    """

    def __init__(self, capacity: int, rotate: bool) -> None:
        self.capacity, self.rotate = capacity, rotate
        self.size = self.in_use = 0
        self._used: list[tuple[int, int]] = []  # begin and end, in ascending order
        self._next = 0

    def allocate(self, nbytes: int) -> int:
        """The offset of a free range.

        Raises:
            Full: there is none.
        """
        nbytes = max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
        at = self._from(self._next, nbytes)
        if at is None:
            at = self._from(0, nbytes)
        if at is None:
            raise Full
        self._used.append((at, at + nbytes))
        self._used.sort()
        self._next = at + nbytes if self.rotate else 0
        self.size = max(self.size, at + nbytes)
        self.in_use += nbytes
        return at

    def _from(self, at: int, nbytes: int) -> int | None:
        for begin, end in self._used:
            if at + nbytes <= begin:
                break
            at = max(at, end)
        return at if at + nbytes <= self.capacity else None

    def free(self, at: int) -> None:
        """Release the range at an offset."""
        self.in_use -= sum(end - begin for begin, end in self._used if begin == at)
        self._used = [used for used in self._used if used[0] != at]
