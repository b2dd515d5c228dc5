"""Scratch memory: live ranges of tiles, and their offsets."""

from __future__ import annotations

from tilewright.ir.core import Function, Op, Region, Value
from tilewright_npu.machine import ALIGNMENT


class LiveRanges:
    """The position of the last use of each value. Positions number the ops in pre-order; a use in a
    nested region counts as one at the end of the op that has the region, as it may be a loop."""

    def __init__(self, fn: Function) -> None:
        self.start: dict[Op, int] = {}
        self.end: dict[Op, int] = {}
        self.last: dict[Value, int] = {}
        self._number(fn.body)
        for op in fn.walk():
            for value in op.operands:
                self._use(value, op)

    def _number(self, region: Region) -> None:
        for op in region:
            self.start[op] = len(self.start)
            for nested in op.regions:
                self._number(nested)
            self.end[op] = len(self.start) - 1

    def _use(self, value: Value, op: Op) -> None:
        home = value.region
        at: Op | None = op
        while at is not None and at.parent is not home:
            at = at.parent_op()
        position = self.end[op] if at is None else self.end[at]
        self.last[value] = max(self.last.get(value, -1), position)


class Allocator:
    """Offsets in scratch memory, first fit.

    Attributes:
        size: the bytes that have been in use at a time.
    """

    def __init__(self) -> None:
        self.size = 0
        self._used: list[tuple[int, int]] = []  # begin and end, in ascending order
        self._recent: list[tuple[int, int]] = []

    @property
    def in_use(self) -> int:
        """The bytes that are in use now."""
        return sum(end - begin for begin, end in self._used)

    def allocate(self, nbytes: int) -> int:
        """The offset of a free range."""
        nbytes = max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
        at = 0
        for begin, end in self._used:
            if at + nbytes <= begin:
                break
            at = end
        self._used.append((at, at + nbytes))
        self._recent.append((at, at + nbytes))
        self._used.sort()
        self.size = max(self.size, at + nbytes)
        return at

    def free(self, at: int) -> None:
        """Release the range at an offset."""
        self._used = [used for used in self._used if used[0] != at]

    def forget(self) -> None:
        """Start a new list of recent ranges."""
        self._recent = []

    def recent_bytes(self) -> int:
        """The bytes of the recent ranges, from the first to the last."""
        return max((e for _, e in self._recent), default=0) - min(
            (b for b, _ in self._recent), default=0
        )

    def hold(self) -> list[tuple[int, int]]:
        """Take the recent ranges that have been released out of use, until `resume`."""
        held: list[tuple[int, int]] = []
        for begin, end in sorted(self._recent):
            for used_begin, used_end in sorted([*self._used, *held]):
                if used_begin <= begin < used_end:
                    begin = used_end
                if begin < used_begin < end:
                    held.append((begin, used_begin))
                    begin = used_end
            if begin < end:
                held.append((begin, end))
        self._used = sorted([*self._used, *held])
        return held

    def resume(self, held: list[tuple[int, int]]) -> None:
        """Put ranges back to use."""
        self._used = [used for used in self._used if used not in held]
