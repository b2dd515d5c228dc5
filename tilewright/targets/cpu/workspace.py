"""Offsets of buffers in a program's workspace, which is reused as buffers die."""

from __future__ import annotations

from bisect import insort


class Workspace:
    """Blocks of memory, packed by best fit.

        workspace = Workspace()
        first = workspace.take(4096)
        workspace.give_back(first, 4096)
        assert workspace.take(1024) == first

    Attributes:
        bytes: the size of the workspace: the end of the highest block that was ever taken.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._free: list[tuple[int, int]] = []  # offsets and sizes, ascending, never adjacent

    def take(self, size: int) -> int:
        """The offset of a block: in the smallest free one that is large enough, or at the end."""
        fitting = [(free, start) for start, free in self._free if free >= size]
        if fitting:
            free, start = min(fitting)
            self._free.remove((start, free))
            if free > size:
                insort(self._free, (start + size, free - size))
            return start
        start = self.bytes
        if self._free and sum(self._free[-1]) == start:
            start, _ = self._free.pop()  # the last block, extended
        self.bytes = start + size
        return start

    def give_back(self, start: int, size: int) -> None:
        """Free a block, and merge it with adjacent free ones."""
        end = start + size
        for other in [free for free in self._free if free[0] == end or sum(free) == start]:
            self._free.remove(other)
            start, end = min(start, other[0]), max(end, sum(other))
        insort(self._free, (start, end - start))
