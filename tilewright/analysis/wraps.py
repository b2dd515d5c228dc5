"""Whether the replaced elements of a load, such as those with an index modulo a length, are dead.

A matrix product may load the rows `(pid * 64 + i) % M`, which are all in bounds, and store only the
rows below M. The results of the wrapped rows are dead, so that it does not matter which memory they
are loaded from, or whether they are loaded. The wrap may then be dropped, and the rows from M on be
filled with any values. The same holds for the limit of ``where(rows < M, rows, 0)``.

    finder = BlockFinder()
    block = finder.of(load)
    wrap_is_needed(finder, block, block.axes[0])     # False

The analysis follows the elements forward from the load to stores, by the index maps of ops. Each op
must map an element of the operand to elements of the result with the same index along the axis:
elementwise ops, views, products along the axes of the result, reductions along another axis. Loops
and branches are followed. Linear in the number of (value, axis) pairs; the IR is not modified.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analysis.blocks import Block, BlockAxis, BlockFinder
from tilewright.analysis.polynomial import Atom, Iteration, Polynomial
from tilewright.ir.core import Op, Value
from tilewright.ir.index_map import Along
from tilewright.ops import control, memory

Place = tuple[Value, int]  # a tile, and its axis along which the elements are followed


def wrap_is_needed(finder: BlockFinder, block: Block, axis: BlockAxis) -> bool:
    """Whether elements with an index of `axis.end` or above are live.

    Args:
        finder: for the blocks of stores.
        block: the block of a load.
        axis: an axis of the block that has a wrap or a limit.
    """
    assert axis.end is not None
    assert axis.tile_axis is not None
    if not isinstance(block.op, memory.Load):
        return True
    limit = axis.end - axis.begin  # the first replaced index within the tile
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
    """The tiles that contain the elements of an operand next; [] if they are dead, None if they may
    be live.

    Args:
        position: the index of the operand.
        axis: the axis of the operand.
    """
    if isinstance(op, memory.Store):
        ends = position == 1 and not _may_store(finder, op, axis, limit)
        return [] if ends else None
    if isinstance(op, control.For | control.Yield):
        return _through_control(op, position, axis, limit)
    stays_within = op.pure or (not op.regions and (op.local or not op.writes_memory))
    if op.no_index_maps or not stays_within:
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


def _may_store(finder: BlockFinder, store: memory.Store, axis: int, limit: Polynomial) -> bool:
    """Whether a store may write an element whose index is the limit or above."""
    block = finder.of(store)
    if not isinstance(block, Block):
        return True
    bounds = [bound - block.axes[axis].begin for bound in block.axes[axis].upper]
    distances = [(limit - bound).constant for bound in bounds]
    return not any(d is not None and d >= 0 for d in distances)


def _through_control(
    op: control.For | control.Yield, position: int, axis: int, limit: Polynomial
) -> list[Place] | None:
    """Follow loop-carried values to the next iteration, and yielded values to results."""
    loop = op if isinstance(op, control.For) else op.parent_op()
    if isinstance(loop, control.If):
        return [(loop.results[position], axis)]
    if not isinstance(loop, control.For) or any(_varies_in(atom, loop) for atom in limit.atoms()):
        return None
    carried = position - 3 if isinstance(op, control.For) else position
    if carried < 0:
        return None
    return [(loop.body.args[carried + 1], axis), (loop.results[carried], axis)]


def _varies_in(atom: Atom, loop: control.For) -> bool:
    """Whether a scalar may vary between iterations of the loop."""
    if isinstance(atom, Iteration):
        return atom.loop is loop or any(inner is atom.loop for inner in loop.walk())
    return loop.contains(atom)
