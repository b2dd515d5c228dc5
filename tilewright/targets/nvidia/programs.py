"""Program indices in blocks that loop over programs: the launch passes the extents of the grid."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from tilewright.lowering.emit import I32, I64
from tilewright.lowering.simt.kernel import PROVIDED, Kernel, Provided, emits
from tilewright.ops.control import NumPrograms
from tilewright.ops.gpu import BlockCount, BlockId
from tilewright.targets.nvidia.name import NAME

EXTENT_BYTES = 8


class GridExtents(NamedTuple):
    """The extents of the requested grid, three 64-bit integers below 2^31.

    Attributes:
        axes: the axes along which blocks loop over programs: 1, x, or all 3. In the latter case
            the launch has blocks along x only.
    """

    axes: int


def looped_axes(provided: Sequence[Hashable]) -> int:
    """The axes along which blocks loop over programs; 0 if there is a block for each."""
    return next((what.axes for what in provided if isinstance(what, GridExtents)), 0)


def _extents(op: BlockId | BlockCount) -> Provided:
    attributes = f'byval([{3 * EXTENT_BYTES} x i8]) align {EXTENT_BYTES} "nvvm.grid_constant"'
    return Provided(GridExtents(op.axes), attributes, last=True)


PROVIDED[BlockId] = _extents
PROVIDED[BlockCount] = _extents


@emits(BlockId, target=NAME)
def emit_block_id(kernel: Kernel, op: BlockId) -> None:
    kernel.bind(op, [kernel.at_entry(lambda b: kernel.hw.program_id(b, 0))])


@emits(BlockCount, target=NAME)
def emit_block_count(kernel: Kernel, op: BlockCount) -> None:
    kernel.bind(op, [kernel.at_entry(lambda b: kernel.hw.num_programs(b, 0))])


@emits(NumPrograms, target=NAME)
def emit_num_programs(kernel: Kernel, op: NumPrograms) -> None:
    extents = next((v for p, v in kernel.provided.items() if isinstance(p.what, GridExtents)), None)
    if extents is None:
        kernel.bind(op, [kernel.at_entry(lambda b: kernel.hw.num_programs(b, op.axis))])
        return
    b = kernel.b
    kernel.bind(op, [b.load(I32, b.gep(I64, extents, op.axis))])
