"""Selection of the matrix instruction for each `tile.dot`.

The instructions read registers. Operands loaded from global memory are staged in LDS, with K as the
contiguous dimension, swizzled; `ANCHORS` declares the layouts of the instructions' registers.
"""

from __future__ import annotations

from math import prod

from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.layout import families
from tilewright.ops.amd import Mma
from tilewright.ops.arith import Cast
from tilewright.ops.dot import Dot
from tilewright.ops.gpu import Fetch, Share
from tilewright.passes.layout_choice import ANCHORS
from tilewright.passes.layout_rules import Demands
from tilewright.targets.amd.mma_table import Instruction, instruction, instructions
from tilewright.targets.gpu.operands import comes_from_memory, is_chained, swizzled

VECTOR_BYTES = 16  # the widest load from LDS
ANY_SIDE = 0
MANY_COPIES = 4  # of an operand, in the registers of a program


@compiler_pass("choose_amd_mma")
def choose_amd_mma(fn: Function, ctx: PassContext) -> bool:
    """Replace each product that a matrix instruction can compute.

    Needs: nothing.  Leaves: `amd.mma`, and `tile.dot` where no instruction is applicable.
    """
    chosen = 0
    products = [(op, is_chained(op)) for op in fn.walk() if type(op) is Dot]
    for op, chained in products:
        row = _fitting(op, ctx, chained=chained)
        if row is None:
            continue
        build = Builder()
        with build.before(op):
            limit = _most_converted(op, row, ctx, chained=chained, alone=len(products) == 1)
            op.result.replace_with(_product(build, op, row, ctx, limit, chained=chained))
        op.erase()
        chosen += 1
    ctx.count("mma", chosen)
    return chosen > 0


def _operand_types(op: Dot, features: frozenset[str]) -> tuple[ir.DType, ir.DType]:
    """The types to multiply: fp16 in place of fp8 that has no instruction, which is exact."""
    left, right = ir.dtype_of(op.lhs.type), ir.dtype_of(op.rhs.type)
    if left.is_fp8() and not instructions(left, right, features):
        return ir.FP16, ir.FP16
    return left, right


def _fitting(op: Dot, ctx: PassContext, *, chained: bool) -> Instruction | None:
    """The instruction for a product: that of 32 rows, if each warp has such rows; in a chain of
    products, the one with few enough rows that each warp has its own."""
    shape, k = ir.shape_of(op.acc.type), ir.shape_of(op.lhs.type)[-1]
    if len(shape) != 2:
        return None
    preferred = ctx.options.get("matrix_instr_nonkdim", ANY_SIDE)
    fitting = [
        row
        for row in instructions(*_operand_types(op, ctx.features), ctx.features)
        if all(n % row.side == 0 for n in shape) and k % row.step(ctx.gpu.lanes) == 0
    ]
    for row in fitting:
        if row.side == preferred:
            return row
    enough = [r for r in fitting if shape[0] * shape[1] >= r.side * r.side * ctx.gpu.warps]
    rows = [r for r in enough if chained and shape[0] >= r.side * ctx.gpu.warps]
    return (rows or enough or fitting[-1:] or [None])[0]


def _most_converted(
    op: Dot, row: Instruction, ctx: PassContext, *, chained: bool, alone: bool
) -> tuple[int, int]:
    """For each operand, the maximum size in bytes of a tile that is converted before it is shared:
    a quarter of shared memory, as another program may use the other half. If many lanes hold the
    same elements, converting them takes longer than the other program gains. Then operands may use
    all of it, unless there are other products, whose operands may be hoisted out of the loop."""
    grid = warp_grid(ir.shape_of(op.acc.type), ctx.gpu.warps, row.side, chained=chained)
    copies = ctx.gpu.lanes * row.width // (row.side * row.step(ctx.gpu.lanes))
    quarter = ctx.gpu.shared_bytes // 4
    lhs, rhs = (
        2 * quarter if alone and copies * across >= MANY_COPIES else quarter
        for across in reversed(grid)
    )
    return lhs, rhs


def _product(
    build: Builder,
    op: Dot,
    row: Instruction,
    ctx: PassContext,
    most_converted: tuple[int, int],
    *,
    chained: bool,
) -> Value:
    """The product, whose sums have the instruction's type."""
    types = _operand_types(op, ctx.features)
    sides = zip((op.lhs, op.rhs), types, most_converted, strict=True)
    values = [_converted(build, *side) for side in sides]
    step, size = row.step(ctx.gpu.lanes), ir.dtype_of(values[0].type).nbytes_in_memory
    k = ir.shape_of(op.lhs.type)[1]
    pack = 1
    if all(comes_from_memory(v) for v in values):
        most = max(1, VECTOR_BYTES // (row.width * size))
        while pack < most and k % (2 * pack * step) == 0:
            pack *= 2

    # Both are stored before either is fetched: LLVM interleaves the fetches with instructions.
    places = [_shared(build, values[0], 1), _shared(build, values[1], 0)]
    lhs, rhs = (_operand(build, v, element) for v, element in zip(places, types, strict=True))
    sums = ir.dtype_of(op.acc.type)
    acc = _cast(build, op.acc, row.sums)
    result = build.value(
        Mma(lhs, rhs, acc, op.precision, op.max_imprecise, row.side, row.width, pack, chained)
    )
    return _cast(build, result, sums)


def _converted(build: Builder, value: Value, element: ir.DType, most: int) -> Value:
    """An operand from memory in the type that instructions take, if it has at most this number of
    bytes. Before it is shared, each thread converts its part; afterwards, each warp would convert
    whole rows, and for some instructions each half of a warp."""
    size = prod(ir.shape_of(value.type)) * element.nbytes_in_memory
    if not comes_from_memory(value) or size > most:
        return value
    return _cast(build, value, element)


def _shared(build: Builder, value: Value, k_axis: int) -> Value:
    """A value from memory, in LDS; any other as it is."""
    if not comes_from_memory(value):
        return value
    share = build.insert(Share(value))
    share.result.layout = swizzled(value.type, k_axis)
    return share.result


def _operand(build: Builder, value: Value, element: ir.DType) -> Value:
    """An operand in registers, of a type."""
    if isinstance(value.type, ir.Shared):
        value = build.value(Fetch(value, own=False))
    return _cast(build, value, element)


def _cast(build: Builder, value: Value, element: ir.DType) -> Value:
    same = ir.dtype_of(value.type) == element
    return value if same else build.value(Cast(value, element, "rtne"))


def warp_grid(
    shape: tuple[int, ...], warps: int, side: int, *, chained: bool = False
) -> tuple[int, int]:
    """The number of warps along rows and columns, each with about as many of either; in a chain of
    products, all along the rows if there are enough."""
    if chained and shape[0] >= side * warps:
        return warps, 1
    rows = columns = 1
    while rows * columns < warps:
        down, across = shape[0] // (side * rows), shape[1] // (side * columns)
        if (down >= across and down > 1) or across <= 1:
            rows *= 2
        else:
            columns *= 2
    return rows, columns


def of_op(op: Mma, features: frozenset[str]) -> Instruction:
    """The instruction that an op is computed by."""
    left, right = ir.dtype_of(op.lhs.type), ir.dtype_of(op.rhs.type)
    return instruction(left, right, op.side, op.width, features)


@ANCHORS.of(Mma)
def _demands(op: Mma, ctx: PassContext) -> Demands:
    shape, lanes = ir.shape_of(op.acc.type), ctx.gpu.lanes
    grid = warp_grid(shape, ctx.gpu.warps, op.side, chained=op.chained)
    group = of_op(op, ctx.features).group
    acc = families.amd_accumulator(shape, op.side, group, lanes, grid)
    lhs, rhs = (
        families.amd_operand(ir.shape_of(v.type), k, op.side, op.width, lanes, grid, op.pack)
        for v, k in ((op.lhs, 1), (op.rhs, 0))
    )
    return Demands([lhs, rhs, acc], [acc])
