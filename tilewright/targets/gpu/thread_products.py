"""Matrix products without matrix instructions: each thread computes elements of the result.

The lowering is `lowering/simt/dot`; this pass moves the operands to shared memory, and requests the
layout of the result.
"""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.ir.core import Function
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_before
from tilewright.layout import families
from tilewright.ops.dot import Dot
from tilewright.ops.gpu import Share
from tilewright.passes.assign_layouts import ANCHORS, Demands

NAME = "thread_products"
SQUARE = 4  # the most adjacent rows, and columns, of the result in a thread
ROW_LANES = 8  # lanes along a row of the result


@compiler_pass(NAME, required=True)
def thread_products(fn: Function, ctx: PassContext) -> bool:
    """Move the operands of each `tile.dot` to shared memory, where threads read rows and columns.

    Needs: matrix instructions chosen.  Leaves: `tile.dot` with buffers as operands only.
    """
    dots = [op for op in fn.walk() if type(op) is Dot]
    for op in dots:
        _share_operands(op)
        ctx.missed(NAME, "no matrix instruction computes this product", op.loc)
    return bool(dots)


def _share_operands(op: Dot) -> None:
    for i, value in enumerate((op.lhs, op.rhs)):
        share = insert_before(Share(value), op)
        share.results[0].layout = families.shared_row_major(ir.shape_of(value.type))
        op.set_operand(i, share.results[0])


@ANCHORS.of(Dot)
def _demands(op: Dot, ctx: PassContext) -> Demands:
    """Blocks of elements for each thread, so that each operand it loads is used several times."""
    shape = ir.shape_of(op.acc.type)
    *batch, m, n = shape
    lanes = ctx.gpu.lanes
    square = _block(m, n, m * n // ctx.gpu.threads)
    lane_columns = min(ROW_LANES, lanes, n // square[1])
    lane_rows = lanes // lane_columns
    acc = families.blocked(
        shape,
        (*(1 for _ in batch), *square),
        (*(1 for _ in batch), lane_rows, lane_columns),
        (*(1 for _ in batch), ctx.gpu.warps, 1),
        families.row_major(len(shape)),
    )
    return Demands([None, None, acc], [acc])


def _block(m: int, n: int, share: int) -> tuple[int, int]:
    """The rows and columns of a thread: squares, but no more elements than its share, so that none
    is computed by several threads. Adjacent columns are loaded at once."""
    columns = min(SQUARE, n, max(1, share))
    return min(SQUARE, m, max(1, share // columns)), columns
