"""Describe the block of memory that each load and store accesses, or why it is not a block."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from tilewright.analysis.axis_info import AxisMap
from tilewright.analysis.blocks import Block, BlockAxis, BlockFinder, NoBlock, blocks_of
from tilewright.analysis.polynomial import Atom, Iteration, Polynomial
from tilewright.analysis.wraps import wrap_is_needed
from tilewright.ir.core import Function
from tilewright.ir.types import shape_of
from tilewright.ops import memory
from tilewright.passes.access_reasons import Reasons
from tilewright.tools.explain.formatting import plural
from tilewright.tools.explain.sources import SourceMap


@dataclass(frozen=True)
class AccessSummary:
    """The description of an access.

    Attributes:
        text: a summary, such as "loads 64 x 32 elements of `x`"; for accesses that are not blocks,
            with the reason.
        axes: a line for each axis of the block, its offset and its conditions.
        reason: the code of the reason why the access is not a block; "" if it is one.
        lines: as `LocatedRemark.lines`.
    """

    text: str
    axes: tuple[str, ...]
    reason: str
    lines: tuple[int, ...]


def accesses_of(fn: Function, sources: SourceMap) -> list[AccessSummary]:
    """Descriptions of the accesses of a kernel after the tile passes, without duplicates."""
    finder = BlockFinder()
    describer = _Describer(fn, finder)
    found = [describer.summary(block, sources) for block in blocks_of(fn, finder).values()]
    return list(dict.fromkeys(found))


class _Describer:
    """Describes the blocks of a function."""

    def __init__(self, fn: Function, finder: BlockFinder) -> None:
        self.finder = finder
        self.reasons = Reasons(fn, AxisMap())

    def summary(self, found: Block | NoBlock, sources: SourceMap) -> AccessSummary:
        op = found.op
        plain = "loads" if isinstance(op, memory.Load) else "updates"
        verb = "stores" if isinstance(op, memory.Store) else plain
        count = " x ".join(map(str, shape_of(op.ptr.type))) or "1"
        many = f"{verb} {count} element{'s' * (count != '1')}"
        lines = sources.of(op.loc)
        if isinstance(found, NoBlock):
            reason = found.located(attrgetter("line"))
            return AccessSummary(f"{many}, not a block: {reason}", (), found.code.value, lines)
        text = f"{many} of {self.reasons.name(found.base)}"
        return AccessSummary(text, tuple(self._lines(found)), "", lines)

    def _lines(self, block: Block) -> list[str]:
        lines = [self._axis(block, axis) for axis in block.axes]
        if block.offset:
            lines.append(f"offset {self._text(block.offset)}")
        if block.never:
            lines.append("never executed: its mask is false")
        if block.conditions:
            lines.append(f"guarded by {plural(len(block.conditions), 'uniform condition')}")
        if block.residual:
            lines.append("with a mask per element")
        return lines

    def _axis(self, block: Block, axis: BlockAxis) -> str:
        begin, stride = self._text(axis.begin), self._text(axis.stride)
        if axis.tile_axis is None:
            return f"outer axis: at {begin}, stride {stride}"
        parts = [f"axis {axis.tile_axis}: from {begin}", f"stride {stride}"]
        parts += [f"at least {self._text(bound)}" for bound in axis.lower]
        parts += [f"below {self._text(bound)}" for bound in axis.upper]
        if axis.end is not None:
            needed = wrap_is_needed(self.finder, block, axis)
            dropped = "" if needed else " (redundant)"
            what = "from" if axis.wrap is None else "modulo"
            other = "" if axis.other is None else f" on at {self._text(axis.other)}"
            parts.append(f"{what} {self._text(axis.end)}{other}{dropped}")
        return ", ".join(parts)

    def _text(self, polynomial: Polynomial) -> str:
        return polynomial.text(self._name)

    def _name(self, atom: Atom) -> str:
        if isinstance(atom, Iteration):
            loc = atom.loop.loc
            return f"(iteration of line {loc.line})" if loc is not None else "iteration"
        name = self.reasons.name(atom, depth=0)
        return f"({name})" if " " in name else name
