"""Decisions before code generation: the accesses that are copies, the ops that are folded into
their users, and the contents of the memories."""

from __future__ import annotations

from tilewright.analysis.blocks import Block
from tilewright.analysis.polynomial import Iteration
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import Tile
from tilewright.ops import arith, control, memory, reduce, shape
from tilewright.ops.dot import Dot
from tilewright_npu.blocks import atoms_of, dma_blocks, scalars_of
from tilewright_npu.matrix_unit import accumulating, fits, is_zero

SHAPES = (
    shape.Arange, shape.Splat, shape.ExpandDims, shape.Broadcast, shape.Reshape, shape.Permute,
    reduce.Reduce, arith.Constant,
)  # fmt: skip
"""Ops that the vector unit executes, besides those on elements."""


class Choices:
    """The choices for a kernel.

    Attributes:
        blocks: the accesses that are copies.
        live: the ops that effects depend on.
        splats: ops whose results have equal elements, and are operands of vector instructions.
        zeros: zeros with which accumulators of products start.
        transposes: ops that are part of the packing of a product's operand.
        addressing: the scalars that copies and control flow depend on: registers hold them.
    """

    def __init__(self, fn: Function) -> None:
        self.blocks = dma_blocks(fn)
        self.live = _live_ops(fn, self.blocks)
        self.splats = {op for op in fn.walk() if _is_folded_splat(op)}
        self.zeros = {op for op in fn.walk() if _is_folded_zero(op)}
        self.transposes = {op for op in fn.walk() if _is_folded_transpose(op)}
        self.addressing = {value for block in self.blocks.values() for value in scalars_of(block)}
        for op in fn.walk():
            if isinstance(op, control.For):
                self.addressing.update((op.start, op.stop, op.step))
            elif isinstance(op, control.If | control.Condition):
                self.addressing.add(op.condition)

    def folded(self) -> set[Op]:
        """The ops without their own instructions."""
        return self.splats | self.zeros | self.transposes

    def is_operand_of_products(self, value: Value) -> bool:
        """Whether products alone use a value: it is loaded into ``l1``."""
        return all(
            user in self.transposes or _is_operand(value, user) for user in value.users
        ) and bool(value.users)


def is_native(op: Op) -> bool:
    """Whether the vector unit executes an op on tiles."""
    return op.elementwise or isinstance(op, SHAPES)


def _is_folded_splat(op: Op) -> bool:
    is_splat = isinstance(op, shape.Splat) and not isinstance(op.src.type, Tile)
    if not is_splat and not (isinstance(op, arith.Constant) and isinstance(op.result.type, Tile)):
        return False
    users = op.result.users
    return all(user.elementwise and user.pure for user in users) and bool(users)


def _is_folded_zero(op: Op) -> bool:
    if not isinstance(op, shape.Splat | arith.Constant) or not is_zero(op.result):
        return False
    return bool(op.result.users) and all(_accumulates(op.result, u) for u in op.result.users)


def _accumulates(value: Value, user: Op) -> bool:
    """Whether a product adds to a value, or a loop's only product does from it on."""
    if isinstance(user, control.For):
        places = [index for index, init in enumerate(user.inits) if init is value]
        return bool(places) and all(accumulating(user, index) for index in places)
    return isinstance(user, Dot) and fits(user) and value not in (user.lhs, user.rhs)


def _is_operand(value: Value, user: Op) -> bool:
    return isinstance(user, Dot) and fits(user) and user.acc is not value


def _is_folded_transpose(op: Op) -> bool:
    return (
        isinstance(op, shape.Permute)
        and tuple(op.order) == (1, 0)
        and bool(op.result.users)
        and all(_is_operand(op.result, user) for user in op.result.users)
    )


def _live_ops(fn: Function, blocks: dict[Op, Block]) -> set[Op]:
    """The ops that effects depend on. Copies by DMA do not depend on tiles of addresses."""
    live: set[Op] = set()
    queue = [op for op in fn.walk() if op.writes() and not op.regions]
    while queue:
        op = queue.pop()
        if op in live:
            continue
        live.add(op)
        values: list[Value] = list(op.operands)
        if op in blocks:
            values = scalars_of(blocks[op])
            if isinstance(op, memory.Store):
                values.append(op.value)
            queue += [a.loop for a in atoms_of(blocks[op]) if isinstance(a, Iteration)]
        for region in op.regions:
            if region.first is not None:
                values += region.terminator.operands
        queue += [v.op for v in values if v.op is not None]
        queue += [v.region.parent for v in values if v.region is not None and v.region.parent]
        parent = op.parent_op()
        if parent is not None:
            queue.append(parent)
    return live
