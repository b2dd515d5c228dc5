"""Whether anything needs the elements of a load that an index modulo a length brings in.

A product may load rows `(pid * 64 + i) % M`, so that all of them lie in the matrix, and store only
those below M. The others are computed with for nothing: what they are loaded from does not matter,
and neither does whether they are loaded. Then the wrap may be dropped, and rows from M on be filled
with anything.

    finder = BlockFinder()
    block = finder.of(load)
    wrap_is_needed(finder, block, block.axes[0])     # False

Each op between the load and a store must keep elements of different index apart, which its index
maps say: elementwise ops, changes of shape, products along the axes of the result, reductions along
another axis. Loops and branches pass elements on.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analysis.blocks import Block, BlockAxis, BlockFinder
from tilewright.analysis.polynomial import Atom, Iteration, Polynomial
from tilewright.ir.core import Op, Value
from tilewright.ir.index_map import Along
from tilewright.ops import control, memory

Place = tuple[Value, int]  # a tile, and its axis on which the elements lie


def wrap_is_needed(finder: BlockFinder, block: Block, axis: BlockAxis) -> bool:
    """Whether elements with an index from `axis.wrap` on reach anything that is stored.

    Args:
        block: of a load.
        axis: one of its axes with a wrap.
    """
    assert axis.wrap is not None
    assert axis.tile_axis is not None
    if not isinstance(block.op, memory.Load):
        return True
    limit = axis.wrap - axis.begin  # elements from this place on
    work: list[Place] = [(block.op.result, axis.tile_axis)]
    seen = set(work)
    while work:
        value, along = work.pop()
        for user, position in _uses(value):
            following = _follow(finder, user, position, along, limit)
            if following is None:
                return True
            work += [place for place in following if place not in seen]
            seen.update(following)
    return False


def _uses(value: Value) -> Iterator[tuple[Op, int]]:
    for user in value.users:
        yield from ((user, i) for i, operand in enumerate(user.operands) if operand is value)


def _follow(
    finder: BlockFinder, op: Op, position: int, axis: int, limit: Polynomial
) -> list[Place] | None:
    """Where elements of an operand go, or () where they end; None where they may matter.

    Args:
        position: which operand.
        axis: its axis.
    """
    if isinstance(op, memory.Store):
        ends = position == 1 and not _keeps(finder, op, axis, limit)
        return [] if ends else None
    if isinstance(op, control.For | control.Yield):
        return _through_control(op, position, axis, limit)
    if not op.pure or op.no_index_maps:
        return None
    places: list[Place] = []
    for result in op.results:
        index = op.index_maps(result.index)[position]
        if index is None:
            continue
        term = index.axes[axis]
        if not isinstance(term, Along):
            return None
        places.append((result, term.axis))
    return places


def _keeps(finder: BlockFinder, store: memory.Store, axis: int, limit: Polynomial) -> bool:
    """Whether a store may write an element whose place is the limit or above."""
    block = finder.of(store)
    if not isinstance(block, Block):
        return True
    bounds = [bound - block.axes[axis].begin for bound in block.axes[axis].upper]
    distances = [(limit - bound).constant for bound in bounds]
    return not any(d is not None and d >= 0 for d in distances)


def _through_control(
    op: control.For | control.Yield, position: int, axis: int, limit: Polynomial
) -> list[Place] | None:
    """To the next iteration, and out of a loop or a branch."""
    loop = op if isinstance(op, control.For) else op.parent_op()
    if isinstance(loop, control.If):
        return [(loop.results[position], axis)]
    if not isinstance(loop, control.For) or any(_is_of(atom, loop) for atom in limit.atoms()):
        return None
    carried = position - 3 if isinstance(op, control.For) else position
    if carried < 0:
        return None
    return [(loop.body.args[carried + 1], axis), (loop.results[carried], axis)]


def _is_of(atom: Atom, loop: control.For) -> bool:
    """Whether a scalar may be another one in the next iteration of the loop."""
    if isinstance(atom, Iteration):
        return atom.loop is loop or any(inner is atom.loop for inner in loop.walk())
    return atom.region is not None and atom.region.is_within(loop.body)
