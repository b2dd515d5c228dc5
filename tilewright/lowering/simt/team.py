"""Warps that run the same code: all of a program, or those of one role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.layout.linear import LANE, REGISTER, LinearLayout
from tilewright.lowering.emit import I32, Builder, V, const


@dataclass(eq=False, slots=True)
class Team:
    """Warps of a program that run the same code and wait for each other.

    Layouts count lanes and warps within the team, so the code of an op is the same in each.

    Attributes:
        warps: how many there are, a power of two.
        lanes: threads of a warp.
        first: the number in the program of its first warp.
        barrier: which of the hardware's barriers is the team's; 0 is that of the whole program.
        thread, lane, warp: indices of the running thread within the team.
    """

    warps: int
    lanes: int
    first: int
    barrier: int
    thread: V
    lane: V
    warp: V
    _terms: dict[tuple[LinearLayout, str], V] = field(
        default_factory=dict[tuple[LinearLayout, str], V]
    )

    @property
    def threads(self) -> int:
        """Threads of the team."""
        return self.warps * self.lanes

    @property
    def whole(self) -> bool:
        """Whether these are all warps of the program, whose barrier is the program's."""
        return self.barrier == 0

    def index(
        self, layout: LinearLayout, out_name: str, place: Callable[[Callable[[Builder], V]], V]
    ) -> V:
        """What lane and warp contribute to a coordinate, computed once.

        Args:
            place: emits where the value reaches all of the team's code.
        """
        key = layout, out_name
        found = self._terms.get(key)
        if found is None:
            found = self._terms[key] = place(lambda b: self._index(b, layout, out_name))
        return found

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
    """The team of so many warps from `first` on.

    Args:
        thread: the index of the running thread in the program.
        barrier: not 0 for a team that is a part of the program.
    """
    own = b.sub(thread, first * lanes) if first else thread
    lane = b.and_(own, lanes - 1)
    return Team(warps, lanes, first, barrier, own, lane, b.lshr(own, lanes.bit_length() - 1))
