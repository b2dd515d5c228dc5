"""Matrix products without matrix instructions: each thread computes elements of the result.

The lowering is `lowering/simt/dot`; this pass moves the operands to shared memory, and requests the
layout of the result.
"""

from __future__ import annotations

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.ir import types as ir
from tilewright.ir.core import Function, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_before
from tilewright.layout import families
from tilewright.layout.linear import LinearLayout
from tilewright.lowering.simt.tile_access import VECTOR_BYTES
from tilewright.ops.dot import Dot
from tilewright.ops.gpu import Share
from tilewright.passes.layout_choice import ANCHORS
from tilewright.passes.layout_rules import Demands
from tilewright.targets.gpu.operands import fastest_axis

NAME = "thread_products"
SQUARE = 4  # the most adjacent rows, and columns, of the result in a thread
ROW_LANES = 8  # lanes along a row of the result


@compiler_pass(NAME, required=True)
def thread_products(fn: Function, ctx: PassContext) -> bool:
    """Move the operands of each `tile.dot` to shared memory, where threads read rows and columns.

    Needs: matrix instructions chosen.  Leaves: `tile.dot` with buffers as operands only.
    """
    dots = [op for op in fn.walk() if type(op) is Dot]
    infos = axis_info(fn) if dots else AxisMap()
    for op in dots:
        _share_operands(op, infos)
        ctx.missed(NAME, "no matrix instruction computes this product", op.loc)
    return bool(dots)


def _share_operands(op: Dot, infos: AxisMap) -> None:
    for i, value in enumerate((op.lhs, op.rhs)):
        share = insert_before(Share(value), op)
        share.results[0].layout = _rows(value, infos)
        op.set_operand(i, share.results[0])


def _rows(value: Value, infos: AxisMap) -> LinearLayout:
    """An operand row by row. If rows are strided in memory, the lanes that write it hold elements
    of one column each, for which rows are swizzled: otherwise the lanes of a column would all
    access one bank, with a wavefront for each. An address of a swizzled row takes an additional
    instruction, of which threads would have one for 10 to 20 multiplications."""
    shape = ir.shape_of(value.type)
    if fastest_axis(value, infos) == len(shape) - 1:
        return families.shared_row_major(shape)
    return families.shared_chunks(shape, 8 * ir.dtype_of(value.type).nbytes_in_memory)


@ANCHORS.of(Dot)
def _demands(op: Dot, ctx: PassContext) -> Demands:
    """Blocks of elements for each thread, so that each operand it loads is used several times."""
    shape = ir.shape_of(op.acc.type)
    m, n = shape[-2:]
    rows, columns = _block(m, n, m * n // ctx.gpu.threads)
    loaded = VECTOR_BYTES // ir.dtype_of(op.rhs.type).itemsize
    lanes, warps = ctx.gpu.lanes, ctx.gpu.warps
    lane_columns = min(ROW_LANES, lanes, n // columns)
    lane_rows = min(lanes // lane_columns, m // rows)
    warp_rows = min(warps, m // (rows * lane_rows))
    acc = families.thread_blocks(
        shape,
        (rows, columns),
        min(columns, loaded),
        (lane_rows, lanes // lane_rows),
        (warp_rows, warps // warp_rows),
    )
    return Demands([None, None, acc], [acc])


def _block(m: int, n: int, share: int) -> tuple[int, int]:
    """The rows and columns of a thread: squares, but no more elements than its share, so that no
    element is computed by several threads."""
    columns = min(SQUARE, n, max(1, share))
    return min(SQUARE, m, max(1, share // columns)), columns
