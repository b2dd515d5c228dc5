"""Warps that execute the same code: all warps of a program, or those of one role."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from tilewright.base.record import field, record
from tilewright.layout.linear import LANE, REGISTER, LinearLayout
from tilewright.lowering.emit import I32, Builder, V, const

Place = Callable[[Callable[[Builder], V]], V]


@record(eq=False, frozen=False)
class Team:
    """Warps of a program that execute the same code and share a barrier.

    Layouts number lanes and warps within the team, so emitters don't depend on its position.

    Attributes:
        warps: their number, a power of two.
        lanes: threads of a warp.
        first: the index of its first warp in the program.
        barrier: the index of its hardware barrier; 0 is that of the whole program.
        thread, lane, warp: indices of the executing thread within the team (i32).
    """

    warps: int
    lanes: int
    first: int
    barrier: int
    thread: V
    lane: V
    warp: V
    _terms: dict[Hashable, V] = field(default_factory=dict[Hashable, V])

    @property
    def threads(self) -> int:
        """Threads of the team."""
        return self.warps * self.lanes

    @property
    def whole(self) -> bool:
        """Whether the team consists of all warps of the program."""
        return self.barrier == 0

    def once(self, key: Hashable, make: Callable[[Builder], V], place: Place) -> V:
        """A value that depends only on lane and warp, emitted once.

        LLVM's instruction combining examines, for each use of such an index, each branch on it; if
        every op emitted its own comparison, a kernel of n reductions would take n² of that.

        Args:
            key: identifies the value among those of the team.
            make: emits it.
            place: emits code at a position that dominates all code of the team.
        """
        result = self._terms.get(key)
        if result is None:
            result = self._terms[key] = place(make)
        return result

    def index(self, layout: LinearLayout, out_name: str, place: Place) -> V:
        """The contribution of lane and warp to a coordinate, emitted once."""
        return self.once((layout, out_name), lambda b: self._index(b, layout, out_name), place)

    def _index(self, b: Builder, layout: LinearLayout, out_name: str) -> V:
        total = const(I32, 0)
        for move in layout.bit_moves():
            if move.out_name == out_name and move.in_name != REGISTER:
                source = self.lane if move.in_name == LANE else self.warp
                part = b.and_(source, move.mask)
                shifted = b.shl(part, move.shift) if move.shift >= 0 else b.lshr(part, -move.shift)
                total = b.xor(total, shifted)
        return total


def make_team(
    b: Builder, thread: V, lanes: int, warps: int, first: int = 0, barrier: int = 0
) -> Team:
    """The team of `warps` warps from warp `first` on.

    Args:
        thread: the index of the executing thread in the program.
        barrier: not 0 for a team that is a part of the program.
    """
    own = b.sub(thread, first * lanes) if first else thread
    lane = b.and_(own, lanes - 1)
    return Team(warps, lanes, first, barrier, own, lane, b.lshr(own, lanes.bit_length() - 1))
