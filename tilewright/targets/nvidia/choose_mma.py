"""Selection of the matrix instruction for each `tile.dot`.

`wgmma` reads its operands from shared memory (the left one also from registers), `mma.sync` from
registers. Operands loaded from global memory are staged in shared memory in either case, in the
swizzled layout of the hardware; `ANCHORS` declares the layouts of the instructions' registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.ir import types as ir
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, compiler_pass, optional_part
from tilewright.ir.rewriter import insert_before
from tilewright.layout import families
from tilewright.layout.linear import LinearLayout
from tilewright.layout.shape import reorder_bits, transpose
from tilewright.ops.control import For, While
from tilewright.ops.dot import Dot
from tilewright.ops.gpu import Fetch, PermuteBuffer, Share
from tilewright.ops.memory import Load
from tilewright.ops.nvidia import FetchAcross, Mma, Wgmma, WgmmaWait
from tilewright.ops.shape import Permute
from tilewright.passes.layout_choice import ANCHORS
from tilewright.passes.layout_rules import Demands
from tilewright.passes.software_pipelining import stages_of
from tilewright.targets.gpu.operands import (
    MOST_SOURCES,
    ROW_BYTES,
    comes_from_memory,
    fastest_axis,
    is_chained,
    source_of,
    swizzled,
)
from tilewright.targets.nvidia.rewrite_products import (
    FP8_FEATURES,
    K_BYTES,
    replace,
    rewrite_product,
    step_along_k,
)
from tilewright.targets.nvidia.transpose_product import transpose_product

TRANSPOSE = optional_part("transpose_products")
GROUP_WARPS = 4  # warps that issue one wgmma together
GROUP_ROWS = 64  # rows of one wgmma
MAX_COLUMNS = 256  # of one wgmma
WORD_BYTES = 4  # of a register

LayoutOfRows = Callable[[ir.Type, int], LinearLayout]
"""The layout of a buffer in rows along an axis."""

# The `Wgmma.row_bits` of left operands that are fetched from buffers whose 128-byte rows, swizzled,
# lie along the rows of the operand, by the size of an element in bytes.
#
# - 4: a thread's two rows of a fragment are adjacent, one load of 64 bits; the 16 lanes that load
#   together, 4 along K times 4 rows, access all banks. The swizzle combines bits 2 and 3 of the row
#   with K, so that bit 4 is among those of the lanes.
# - 1: the two rows are adjacent, too, half a word of `ldmatrix.trans`, and those of the lanes are
#   the halves of its 16 bytes.
TURNED_ROWS = {4: (1, 4, 2, 0, 3, 5), 1: (1, 2, 3, 0, 4, 5)}

# Element type of the operands -> the feature that mma.sync requires.
_MMA_FEATURES = {
    ir.FP16: "mma_fp16",
    ir.BF16: "mma_bf16",
    ir.I8: "mma_int8",
    ir.U8: "mma_int8",
    ir.FP64: "mma_fp64",
    **FP8_FEATURES,
}
_WGMMA_TYPES = (ir.FP16, ir.BF16, ir.I8, ir.U8, ir.FP8E4NV, ir.FP8E5)


@compiler_pass("choose_mma")
def choose_mma(fn: Function, ctx: PassContext) -> bool:
    """Replace each product by the fastest matrix instruction that computes it.

    Needs: nothing.  Leaves: `nvidia.wgmma` with shared operands in the layout that it requires,
    each followed by a wait; `nvidia.mma`; and `tile.dot` where no instruction is applicable.
    """
    for op in [op for op in fn.walk() if type(op) is Dot]:
        rewrite_product(op, ctx.features, ctx.gpu.threads)
    dots = [op for op in fn.walk() if type(op) is Dot]
    if not dots:
        return False
    infos = axis_info(fn)
    for op in dots:
        if fits_wgmma(op, ctx):
            if ctx.enabled(TRANSPOSE) and _is_better_transposed(op, infos, ctx):
                op = transpose_product(op)
                ctx.count("transposed products")
            _use_wgmma(op, infos)
            ctx.count("wgmma")
        elif _fits_mma(op, ctx):
            lhs, rhs = op.lhs, op.rhs
            if not is_batched(op):
                lhs, rhs = staged(op, lhs, 1, infos, ctx), staged(op, rhs, 0, infos, ctx)
            mma = insert_before(
                Mma(lhs, rhs, op.acc, op.precision, op.max_imprecise, chained=False), op
            )
            replace(op, mma.result)
            ctx.count("mma")
    for op in list(fn.walk()):
        if isinstance(op, Load):
            _fetch_shared(op, ctx)
        if isinstance(op, Mma):
            op.chained = is_chained(op)
    return True


def _warps(ctx: PassContext) -> int:
    return ctx.gpu.warps


def _is_tf32(op: Dot) -> bool:
    return ir.dtype_of(op.lhs.type) == ir.FP32 and op.precision == "tf32"


def _fits_mma(op: Dot, ctx: PassContext) -> bool:
    element = ir.dtype_of(op.lhs.type)
    m, n = ir.shape_of(op.acc.type)[-2:]
    k = ir.shape_of(op.lhs.type)[-1]
    feature = "mma_tf32" if _is_tf32(op) else _MMA_FEATURES.get(element)
    return (
        feature in ctx.features
        and ir.dtype_of(op.rhs.type) == element
        and m % 16 == 0
        and n % 8 == 0
        and k % step_along_k(element) == 0
    )


def is_batched(op: Dot) -> bool:
    return len(ir.shape_of(op.acc.type)) > 2


class _Groups(NamedTuple):
    """The number of warpgroups along the rows and columns of a result."""

    rows: int
    columns: int


def groups_of(shape: tuple[int, ...], warps: int) -> _Groups:
    groups = warps // GROUP_WARPS
    rows = min(groups, max(1, shape[0] // GROUP_ROWS))
    return _Groups(rows, groups // rows)


def fits_wgmma(op: Dot, ctx: PassContext) -> bool:
    """Whether `wgmma` computes a product."""
    if "wgmma" not in ctx.features or _warps(ctx) % GROUP_WARPS or not _fits_mma(op, ctx):
        return False
    if is_batched(op):
        return False
    element = ir.dtype_of(op.lhs.type)
    if element.is_fp8() and op.max_imprecise < K_BYTES:
        return False  # mma.sync adds more precisely
    return (element in _WGMMA_TYPES or _is_tf32(op)) and _tiles(op, ctx)


def _tiles(op: Dot, ctx: PassContext, *, transposed: bool = False) -> bool:
    """Whether the warpgroups' instructions tile the result, or the transposed result."""
    shape = ir.shape_of(op.acc.type)[:: -1 if transposed else 1]
    _, columns = groups_of(shape, _warps(ctx))
    if columns == 1 or ir.dtype_of(op.lhs.type).is_fp8():
        least = 8  # products of fp8 by mma.sync are expanded to such of fp16
    elif _is_transposed_result(op.lhs) or comes_from_memory(op.lhs) == comes_from_memory(op.rhs):
        least = 32
    else:
        # mma.sync takes the computed operand from registers, wgmma through shared memory.
        least = 64
    return shape[0] % GROUP_ROWS == 0 and shape[1] // columns >= least


def _is_better_transposed(op: Dot, infos: AxisMap, ctx: PassContext) -> bool:
    """Whether only the right operand is not contiguous along K, and the instruction cannot read it.

    The left operand of the transposed product, which it becomes, may come from registers.
    """
    return (
        _must_turn(op.rhs, 0, infos)
        and comes_from_memory(op.lhs)
        and not _must_turn(op.lhs, 1, infos)
        and _tiles(op, ctx, transposed=True)
    )


# -- operands of wgmma ----------------------------------------------------------------------------


def _use_wgmma(op: Dot, infos: AxisMap) -> None:
    lhs, row_bits = op.lhs, ()
    if _must_turn(lhs, 1, infos):
        # Each thread loads its elements from the buffer, in which they lie as in memory.
        lhs = insert_before(
            Fetch(shared_operand(op, lhs, 1, infos, swizzled), own=False), op
        ).result
        row_bits = TURNED_ROWS[ir.dtype_of(lhs.type).nbytes_in_memory]
    elif comes_from_memory(lhs) or _is_transposed_result(lhs):
        # A computed tile that is transposed moves between threads in any case; read from shared
        # memory, it takes no registers.
        lhs = shared_operand(op, lhs, 1, infos)
    rhs = _shared_along_k(op, infos)
    if lhs is op.lhs:
        _stage_sources(op, infos)
    product = insert_before(Wgmma(lhs, rhs, op.acc, op.precision, op.max_imprecise, row_bits), op)
    wait = insert_before(WgmmaWait([product.result], 0), op)
    replace(op, wait.results[0])


def _stage_sources(op: Dot, infos: AxisMap) -> None:
    """Stage the tiles from which a loop computes the left operand elementwise in shared memory, so
    that they are loaded, and the operand is computed, in the instruction's layout, without exchange
    between threads. A tile may also be the right operand, and is then shared."""
    for load in _elementwise_sources(op.lhs):
        value = load.result
        # A permuted view of the right operand, if any, has been shared, and is not used any more.
        view = op.rhs.op if isinstance(op.rhs.op, Permute) else None
        users = [user for user in value.users if user not in (op, view)]
        computing = [user for user in users if user.elementwise]
        shares = [user for user in users if isinstance(user, Share)]
        known = len(computing) + len(shares) == len(users)
        if known and _is_like(value, op.lhs) and len(shares) <= 1:
            share = _moved_after(load, shares[0]) if shares else None
            following = load.next if share is None else share.next
            assert following is not None
            buffer = share.result if share else shared_operand(following, value, 1, infos)
            _fetch_for(computing, value, buffer, following)


def _fetch_for(users: Sequence[Op], value: Value, buffer: Value, following: Op) -> None:
    """Let ops use the tile in shared memory instead of the value that was stored there."""
    fetched = insert_before(Fetch(buffer, own=False), following).result
    for user in users:
        user.replace_operand(value, fetched)


def _fetch_shared(load: Load, ctx: PassContext) -> None:
    """Let ops that also compute with an operand load it from shared memory, so that a pipelined
    loop copies it there once for both; otherwise each thread would copy its elements, and store
    them for the product, with another barrier."""
    loop = load.parent_op()
    if not isinstance(loop, For) or stages_of(loop, ctx) <= 1:
        return
    users = [user for user in load.result.users if not _is_dead_view(user)]
    shares = [user for user in users if isinstance(user, Share)]
    computing = [user for user in users if user.elementwise]
    if len(shares) == 1 and computing and len(users) == 1 + len(computing):
        share = _moved_after(load, shares[0])
        assert share.next is not None
        _fetch_for(computing, load.result, share.result, share.next)
        ctx.count("fetched operands")


def _is_dead_view(op: Op) -> bool:
    """Whether an operand was permuted by this op, before it was shared."""
    return isinstance(op, Permute) and not op.result.users


def _is_like(value: Value, operand: Value) -> bool:
    """Whether a tile has the shape of an operand, and elements of its size."""
    size, other = (ir.dtype_of(v.type).nbytes_in_memory for v in (value, operand))
    return size == other and ir.shape_of(value.type) == ir.shape_of(operand.type)


def _moved_after(load: Load, share: Share) -> Share:
    region = load.parent
    assert region is not None
    share.remove()
    region.insert_after(share, load)
    return share


def _elementwise_sources(operand: Value) -> list[Load]:
    """The loads of the loop of an operand from which elementwise ops compute it."""
    region = operand.region
    if region is None or not isinstance(region.parent, For):
        return []
    seen, left, found = {operand}, [operand], list[Load]()
    while left and len(seen) <= MOST_SOURCES:
        op = left.pop().op
        if op is None or op.parent is not region:
            continue
        if isinstance(op, Load):
            found.append(op)
        elif op.elementwise:
            new = [v for v in op.operands if v not in seen]
            seen.update(new)
            left += new
    return found


def _is_transposed_result(value: Value) -> bool:
    """Whether the value is a computed tile, transposed."""
    return isinstance(value.op, Permute) and not comes_from_memory(value)


def _shared_along_k(op: Dot, infos: AxisMap) -> Value:
    """The right operand in shared memory; by way of registers, if the instruction cannot read its
    layout in memory.

    An operand that a loop does not change is stored along K once, before the loop. By way of
    another buffer, that would take twice the memory.
    """
    value = op.rhs
    if not _must_turn(value, 0, infos) or ir.shape_of(value.type)[1] < GROUP_ROWS:
        return shared_operand(op, value, 0, infos)
    if not _varies(value, op):
        return shared_operand(op, value, 0, infos)
    source = shared_operand(op, value, 0, infos, swizzled)
    turned = insert_before(Share(insert_before(FetchAcross(source, own=False), op).result), op)
    turned.result.layout = swizzled(value.type, 0)
    return turned.result


def _varies(value: Value, op: Op) -> bool:
    """Whether the loop of an op, if it is in one, computes a value in each iteration."""
    loop = next((around for around in op.ancestors() if isinstance(around, For | While)), None)
    region = value.region
    return loop is None or region is None or any(region.is_within(r) for r in loop.regions)


def shared_operand(
    op: Op, value: Value, k_axis: int, infos: AxisMap, across_k: LayoutOfRows | None = None
) -> Value:
    """The operand in shared memory, in a layout of wgmma.

    Adjacent elements are along K, except that those of 16-bit operands may be along the other axis,
    and those of all types in the layout `across_k`, where the instruction does not read the buffer.
    """
    if isinstance(value.op, Permute) and value.op.order == (1, 0):
        # Share the untransposed load, which can become an asynchronous copy, and view it permuted.
        source = shared_operand(op, value.op.src, 1 - k_axis, infos, across_k)
        view = insert_before(PermuteBuffer(source, (1, 0)), op)
        assert source.layout is not None
        view.results[0].layout = transpose(source.layout, (1, 0))
        return view.results[0]
    share = insert_before(Share(value), op)
    if across_k is None and ir.dtype_of(value.type).nbytes_in_memory == 2:
        across_k = swizzled
    if across_k is not None and _lies_across(value, k_axis, infos):
        share.results[0].layout = across_k(value.type, 1 - k_axis)
    else:
        share.results[0].layout = swizzled(value.type, k_axis)
    return share.results[0]


def _lies_across(value: Value, k_axis: int, infos: AxisMap) -> bool:
    """Whether the operand is contiguous in memory along the axis that is not K."""
    row = ir.shape_of(value.type)[1 - k_axis] * ir.dtype_of(value.type).nbytes_in_memory
    return row >= ROW_BYTES[-1] and fastest_axis(value, infos) != k_axis


def _must_turn(value: Value, k_axis: int, infos: AxisMap) -> bool:
    """Whether wgmma cannot read operands of this type in their layout in memory."""
    size = ir.dtype_of(value.type).nbytes_in_memory
    return size != 2 and comes_from_memory(value) and _lies_across(value, k_axis, infos)


def staged(op: Op, value: Value, k_axis: int, infos: AxisMap, ctx: PassContext) -> Value:
    """An operand in registers. One loaded from memory is staged in shared memory, so that its loads
    can be coalesced and pipelined."""
    if not comes_from_memory(value):
        return value
    rows = _rows_across if _keeps_order(value, infos, ctx) else None
    return insert_before(
        Fetch(shared_operand(op, value, k_axis, infos, rows), own=False), op
    ).result


def _keeps_order(value: Value, infos: AxisMap, ctx: PassContext) -> bool:
    """Whether rows as in memory are better than rows along K: those are filled element by element.

    From rows along K, `ldmatrix` loads several elements of up to 32 bits at once, which outweighs
    wider stores, but not asynchronous copies, each of which needs an address.
    """
    load = source_of(value).op
    size = ir.dtype_of(value.type).nbytes_in_memory
    if not isinstance(load, Load) or size < WORD_BYTES:
        return False
    if infos.access_length(load.ptr, load.mask, infos[load.ptr].order[0], size) == 1:
        return False
    loop = load.parent_op()
    return size > WORD_BYTES or (isinstance(loop, For) and stages_of(loop, ctx) > 1)


def _rows_across(type: ir.Type, contiguous: int) -> LinearLayout:
    element = ir.dtype_of(type)
    return families.shared_across(ir.shape_of(type), element.primitive_bitwidth, contiguous)


# -- layouts --------------------------------------------------------------------------------------


def instruction_columns(op: Wgmma, warps: int) -> int:
    """The number of columns of each wgmma of this product."""
    shape = ir.shape_of(op.acc.type)
    return min(MAX_COLUMNS, shape[1] // groups_of(shape, warps).columns)


@ANCHORS.of(Wgmma)
def _wgmma_demands(op: Wgmma, ctx: PassContext) -> Demands:
    warps = _warps(ctx)
    acc = families.wgmma_accumulator(
        ir.shape_of(op.acc.type), warps, instruction_columns(op, warps)
    )
    acc = reorder_bits(acc, 0, op.row_bits)
    lhs = None
    if isinstance(op.lhs.type, ir.Tile):
        bits = ir.dtype_of(op.lhs.type).primitive_bitwidth
        lhs = families.wgmma_operand_a(ir.shape_of(op.lhs.type), bits, warps)
        lhs = reorder_bits(lhs, 0, op.row_bits)
    return Demands([lhs, None, acc], [acc])


def mma_grid(shape: tuple[int, ...], warps: int, *, chained: bool) -> tuple[int, ...]:
    """The number of warps along each axis of a result.

    Warps have products of a batch of their own, if there are enough. Within a product it is greedy:
    the warps are doubled along the axis with more of the instruction's tiles per warp. In a chain
    of products, all along the rows if there are enough: then a warp computes whole rows of one
    product, which are its operand of the next one, without an exchange through shared memory.
    """
    *batch, m, n = shape
    if batch:
        apart = min(warps, batch[0])
        return apart, *mma_grid(shape[1:], warps // apart, chained=chained)
    if m >= 16 * warps and chained:
        return warps, 1
    rows = columns = 1
    while rows * columns < warps:
        down, across = m // (16 * rows), n // (8 * columns)
        if (down * 2 >= across and down > 1) or across <= 1:
            rows *= 2
        else:
            columns *= 2
    return rows, columns


@ANCHORS.of(FetchAcross)
def _across_demands(op: FetchAcross, ctx: PassContext) -> Demands:
    """As the left operand of the transposed product, which can be loaded without bank conflicts."""
    rows, columns = ir.shape_of(op.result.type)
    element = ir.dtype_of(op.result.type)
    left = families.wgmma_operand_a((columns, rows), element.primitive_bitwidth, _warps(ctx))
    left = reorder_bits(left, 0, TURNED_ROWS[element.nbytes_in_memory])
    return Demands([None], [transpose(left, (1, 0))])


@ANCHORS.of(Mma)
def _mma_demands(op: Mma, ctx: PassContext) -> Demands:
    grid = mma_grid(ir.shape_of(op.acc.type), _warps(ctx), chained=op.chained)
    bits = ir.dtype_of(op.lhs.type).primitive_bitwidth
    acc = families.mma_m16n8(ir.shape_of(op.acc.type), grid)
    lhs = families.mma_operand_a(ir.shape_of(op.lhs.type), bits, grid)
    rhs = families.mma_operand_b(ir.shape_of(op.rhs.type), bits, grid)
    return Demands([lhs, rhs, acc], [acc])


@ANCHORS.of(WgmmaWait)
def _wait_demands(op: WgmmaWait, ctx: PassContext) -> Demands:
    """The layouts of the products; one carried by a loop has its layout already."""
    layouts = [
        _wgmma_demands(value.op, ctx).results[0] if isinstance(value.op, Wgmma) else value.layout
        for value in op.values
    ]
    return Demands(layouts, layouts)
