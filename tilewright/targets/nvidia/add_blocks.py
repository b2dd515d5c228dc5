"""Converts atomic additions of accumulators in a loop to reducing tensor copies (TMA).

    for ...:                                       for ...:
        acc = a @ b                       becomes      acc = a @ b
        atomic_add(p, acc)                             add_block p, acc, buffer
                                                   wait_blocks buffer

Each warp stores its rows to its own part of a buffer, and one of its lanes starts the addition of
these rows, by boxes. Without this, an atomic instruction of a thread adds 8 bytes, so that rows of
an accumulator are transferred in pieces of 32 bytes. Warps do not exchange data, so there are no
additional barriers.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from tilewright.analysis.blocks import BlockFinder
from tilewright.analysis.pointers import may_overlap
from tilewright.analysis.polynomial import Atom
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import FP32, Shared, Tile, Type, dtype_of, shape_of
from tilewright.layout.linear import LANE, OFFSET, REGISTER, WARP, LinearLayout, log2
from tilewright.lowering.simt.shared_memory import allocated_bytes
from tilewright.ops.arith import IntDiv, Sub
from tilewright.ops.atomic import AnyAtomic, AtomicRMW
from tilewright.ops.control import For, While
from tilewright.ops.gpu import Allocate, CopyAsync, Fetch
from tilewright.ops.memory import Load, Store
from tilewright.ops.nvidia import ADDED_COLUMNS, MAX_MAP_RANK, AddBlock, LoadBlock, WaitBlocks
from tilewright.targets.nvidia.scalar_code import ScalarCode
from tilewright.targets.nvidia.tensor_copies import NoTensorCopy, TensorCopy, tensor_addition

NAME = "add_blocks"
LEAST_ROWS = 8  # of a box; the swizzle's period
CHUNK = 4  # elements of 16 bytes, which the swizzle moves as one


@compiler_pass(NAME)
def add_blocks(fn: Function, ctx: PassContext) -> bool:
    """Replace atomic additions of fp32 tiles in loops by additions of blocks.

    Needs: layouts.  Leaves: `nvidia.add_block`s, buffers for them, and waits behind loops.

    An addition qualifies if nothing depends on its order with other accesses, each warp has whole
    rows of boxes, and there is shared memory for the buffer without fewer resident programs.
    """
    if not ctx.options.get("tensor_copies", True):
        return False
    buffers: dict[_Parts, Value] = {}
    for op in [op for op in fn.walk() if type(op) is AtomicRMW]:
        loop = _outermost_loop(op)
        if loop is None or not _qualifies(op):
            continue
        try:
            copy = tensor_addition(fn, BlockFinder(), op)
            _require_alone(fn, op)
        except NoTensorCopy as error:
            ctx.missed(NAME, str(error), op.loc)
            continue
        assert op.value.layout is not None
        staging = staging_layout(shape_of(op.value.type), _second_row(op.value.layout, copy))
        parts = _Parts(loop, op.value.type, op.value.layout, staging)
        if parts not in buffers:
            if not _fits(fn, op, ctx):
                ctx.missed(NAME, "there is not enough shared memory for a buffer", op.loc)
                continue
            buffers[parts] = _buffer(op, loop, staging)
        _rewrite(op, buffers[parts], copy)
        ctx.did(NAME, "each warp accumulates its rows by asynchronous tensor reductions", op.loc)
        ctx.count("added blocks")
    return bool(buffers)


class _Parts(NamedTuple):
    """The properties that two additions must share to use one buffer: each warp uses the same part
    of it, and waits before each addition until the previous one has read it.

    Attributes:
        loop: the outermost one, behind which warps wait for the last additions.
        type: of the tile.
        layout: of the tile.
        staging: the layout of the buffer.
    """

    loop: Op
    type: Type
    layout: LinearLayout
    staging: LinearLayout


def _qualifies(op: AtomicRMW) -> bool:
    value = op.value.type
    return (
        op.kind == "add"
        and op.sem == "relaxed"
        and op.scope != "sys"
        and not op.result.users
        and isinstance(value, Tile)
        and dtype_of(value) == FP32
        and len(shape_of(value)) == 2
        and op.value.layout is not None
        and rows_of_boxes(op.value.layout) >= LEAST_ROWS
    )


def rows_of_boxes(layout: LinearLayout) -> int:
    """The rows of the boxes of `ADDED_COLUMNS` columns that each warp holds as a whole; 0 if there
    are none, or if several threads hold an element."""
    if any(layout.free_variables(name) for name in (REGISTER, LANE, WARP)):
        return 0
    own = [layout.coordinates(c) for n in (REGISTER, LANE) for c in layout.bases(n)]
    others = [layout.coordinates(c) for c in layout.bases(WARP)]
    if any(row and column for row, column in (*own, *others)):
        return 0
    columns = {column for row, column in own if not row}
    rows = {row for row, column in own if not column}
    count = 1
    while count in rows:
        count *= 2
    complete = all(1 << bit in columns for bit in range(ADDED_COLUMNS.bit_length() - 1))
    lanes = [layout.coordinates(c) for c in layout.bases(LANE)]
    within = all(row < count and column < ADDED_COLUMNS for row, column in lanes)
    return count if complete and within else 0


class Box(NamedTuple):
    """What a warp adds by one instruction.

    Attributes:
        rows, columns: of the tile.
        alternating: the rows and columns between adjacent rows of 128 bytes in shared memory:
            (1, 0), or those between two halves of the box, whose rows alternate.
    """

    rows: int
    columns: int
    alternating: tuple[int, int]


NEXT_ROW, NEXT_ROWS, NEXT_COLUMNS = (1, 0), (LEAST_ROWS, 0), (0, ADDED_COLUMNS)


def staging_layout(shape: tuple[int, ...], second: tuple[int, int]) -> LinearLayout:
    """The layout of a buffer for additions: rows of 128 bytes with the hardware's swizzle, which
    stores chunk j of row i as chunk j ^ i % 8.

    Half of a warp stores 32 bytes of its accumulators to each of four adjacent rows: two chunks,
    whose places are 2 n and 2 n + 1. If rows are adjacent in memory, too, n is the same for rows
    2 i and 2 i + 1, and the stores have bank conflicts; if rows of two boxes alternate, they have
    none.

    Args:
        second: the rows and columns between adjacent rows of 128 bytes, as `Box.alternating`.
    """
    rows, columns = shape
    lines = [(1 << bit, 0) for bit in range(log2(rows))]
    lines += [(0, 1 << bit) for bit in range(log2(ADDED_COLUMNS), log2(columns))]
    lines = [second, *(line for line in lines if line != second)]
    bases = [(0, 1 << bit) for bit in range(log2(ADDED_COLUMNS))]
    for i, (row, column) in enumerate(lines):
        bases.append((row, column | (CHUNK << i if CHUNK << i < ADDED_COLUMNS else 0)))
    return LinearLayout.from_bases({OFFSET: bases}, {"dim0": rows, "dim1": columns})


def _second_row(tile: LinearLayout, copy: TensorCopy) -> tuple[int, int]:
    """Which row follows the first one in the buffer: that of another box of the same warp, if the
    tensor map can have one more dimension, and the tensor no bound that it would not observe."""
    held = {tile.coordinates(c) for name in (REGISTER, LANE) for c in tile.bases(name)}
    if len(copy.extents) < MAX_MAP_RANK:
        if NEXT_COLUMNS in held and copy.is_unbounded(1):
            return NEXT_COLUMNS
        if NEXT_ROWS in held and copy.is_unbounded(0):
            return NEXT_ROWS
    return NEXT_ROW


def box_of(tile: LinearLayout, buffer: LinearLayout) -> Box:
    """The box of additions of a tile through a buffer."""
    row, column = buffer.coordinates(buffer.bases(OFFSET)[log2(ADDED_COLUMNS)])
    second = row, column - column % ADDED_COLUMNS
    rows = 2 * LEAST_ROWS if second == NEXT_ROWS else rows_of_boxes(tile)
    return Box(rows, ADDED_COLUMNS * (2 if second == NEXT_COLUMNS else 1), second)


def box_starts(tile: LinearLayout, box: Box) -> list[int]:
    """The registers with the first elements of a warp's boxes."""
    starts: list[int] = []
    for register in range(tile.in_size(REGISTER)):
        place = tile.apply({REGISTER: register})
        if place["dim0"] % box.rows == 0 and place["dim1"] % box.columns == 0:
            starts.append(register)
    return starts


def _outermost_loop(op: Op) -> Op | None:
    """The outermost loop around an op that the same warps execute."""
    found: Op | None = None
    for holder in op.ancestors():
        if holder.concurrent:
            break
        if isinstance(holder, For | While):
            found = holder
    return found


def _require_alone(fn: Function, op: AtomicRMW) -> None:
    """Raise `NoTensorCopy` if another access of the kernel may depend on the order of additions.

    They are not ordered with other accesses of memory, and fences do not cover them.
    """
    for other in fn.walk():
        if other is op or other.local or other.regions or isinstance(other, Fetch):
            continue
        if _is_relaxed_addition(other):
            continue
        if isinstance(other, LoadBlock):
            overlaps = may_overlap(fn, op.ptr, other.base)
        elif isinstance(other, Load | Store | CopyAsync) and not _is_volatile(other):
            overlaps = may_overlap(fn, op.ptr, other.ptr)
        else:
            overlaps = other.reads_memory or other.writes_memory
        if overlaps:
            raise NoTensorCopy(
                "another access of the kernel may overlap this one, or let other programs read it"
            )


def _is_volatile(op: Op) -> bool:
    return isinstance(op, Load) and op.volatile


def _is_relaxed_addition(op: Op) -> bool:
    """Whether an op adds atomically, without order or result."""
    if not isinstance(op, AnyAtomic):
        return False
    return (
        isinstance(op, AtomicRMW)
        and op.kind == "add"
        and op.sem == "relaxed"
        and not op.result.users
    )


def _fits(fn: Function, op: AtomicRMW, ctx: PassContext) -> bool:
    """Whether as many programs have shared memory with the buffer as without it."""
    limit, taken = ctx.gpu.shared_bytes, allocated_bytes(fn)
    size = prod(shape_of(op.value.type)) * FP32.nbytes_in_memory
    # Two are enough for one of them to compute while the other waits.
    before, after = (min(limit // max(bytes, 1), 2) for bytes in (taken, taken + size))
    return after == before


def _buffer(op: AtomicRMW, loop: Op, layout: LinearLayout) -> Value:
    """A buffer for additions in a loop, before it, and the wait for the last ones, after it."""
    assert loop.parent is not None
    shape = shape_of(op.value.type)
    buffer = ScalarCode(loop.parent, op, loop).value(Allocate(Shared(shape, FP32)))
    buffer.layout = layout
    ScalarCode(loop.parent, op, loop.next).insert(WaitBlocks(buffer))
    return buffer


def _rewrite(op: AtomicRMW, buffer: Value, copy: TensorCopy) -> None:
    assert op.parent is not None
    code = ScalarCode(op.parent, op, op)

    def atom(value: Atom) -> Value:
        if isinstance(value, Value):
            return value
        distance = code.value(Sub(value.loop.body.args[0], value.loop.start))
        return code.value(IntDiv(distance, value.loop.step))

    made = AddBlock(
        ptr=op.ptr,
        value=op.value,
        mask=op.mask,
        base=copy.base,
        args=list(copy.args),
        coords=[code.polynomial(begin, atom) for begin in copy.begins],
        buffer=buffer,
        kind=op.kind,
        sem=op.sem,
        scope=op.scope,
        offset=copy.offset,
        extents=copy.extents,
        strides=copy.strides,
        axes=copy.axes,
        within=copy.within,
    )
    code.insert(made)
    made.results[0].layout = op.result.layout
    op.erase()
