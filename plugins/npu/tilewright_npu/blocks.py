"""Accesses that the DMA engine executes: rectangular blocks whose bounds the scalar pipe knows."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analysis.blocks import Block, BlockFinder
from tilewright.analysis.polynomial import Iteration, Polynomial
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import Tile
from tilewright.ops import arith, memory, shape
from tilewright_npu.machine import DMA_AXES


def dma_blocks(fn: Function) -> dict[Op, Block]:
    """The loads and stores of tiles that are one copy each."""
    finder = BlockFinder()
    found: dict[Op, Block] = {}
    for op in fn.walk():
        if isinstance(op, memory.Load | memory.Store) and isinstance(op.ptr.type, Tile):
            block = finder.of(op)
            if isinstance(block, Block) and _is_one_copy(block):
                found[op] = block
    return found


def _is_one_copy(block: Block) -> bool:
    scalars = [*block.conditions, *(a for a in atoms_of(block) if isinstance(a, Value))]
    return (
        block.is_rectangle
        and len(block.axes) <= DMA_AXES
        and not any(isinstance(value.type, Tile) for value in scalars)
        and (block.other is None or fill_of(block) is not None)
    )


def polynomials_of(block: Block) -> Iterator[Polynomial]:
    """All polynomials of a block."""
    yield block.offset
    for axis in block.axes:
        yield from (axis.begin, axis.stride, *axis.lower, *axis.upper)


def atoms_of(block: Block) -> Iterator[Value | Iteration]:
    """The scalars and iteration numbers that a block depends on."""
    for polynomial in polynomials_of(block):
        yield from polynomial.atoms()


def fill_of(block: Block) -> Value | arith.Constant | None:
    """The value of elements that are not read: a scalar, or a constant; None if it is a tile."""
    other = block.other
    op = other.op if other is not None else None
    while isinstance(op, shape.Broadcast | shape.ExpandDims | shape.Reshape):
        op = op.operands[0].op
    if isinstance(op, shape.Splat):
        return op.src
    return op if isinstance(op, arith.Constant) else None


def scalars_of(block: Block) -> list[Value]:
    """The scalar operands of a copy: its base, the scalars in its bounds, its conditions and the
    value of elements that are not read."""
    fill = fill_of(block)
    found = [block.base, *(a for a in atoms_of(block) if isinstance(a, Value)), *block.conditions]
    if isinstance(fill, Value):
        found.append(fill)
    return list(dict.fromkeys(found))
