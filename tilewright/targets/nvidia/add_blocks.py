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
from tilewright.layout.families import shared_hopper
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.lowering.simt.shared_memory import allocated_bytes
from tilewright.ops.arith import IntDiv, Sub
from tilewright.ops.atomic import AnyAtomic, AtomicRMW
from tilewright.ops.control import For, While
from tilewright.ops.gpu import Allocate, CopyAsync, Fetch
from tilewright.ops.memory import Load, Store
from tilewright.ops.nvidia import ADDED_COLUMNS, AddBlock, LoadBlock, WaitBlocks
from tilewright.targets.nvidia.scalar_code import ScalarCode
from tilewright.targets.nvidia.tensor_copies import NoTensorCopy, TensorCopy, tensor_addition

NAME = "add_blocks"
SWIZZLE = 128  # bytes of a row of a box
LEAST_ROWS = 8  # of a box; the swizzle's period


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
        parts = _Parts(loop, op.value.type, op.value.layout)
        if parts not in buffers:
            if not _fits(fn, op, ctx):
                ctx.missed(NAME, "there is not enough shared memory for a buffer", op.loc)
                continue
            buffers[parts] = _buffer(op, loop)
        _rewrite(op, buffers[parts], copy)
        ctx.did(NAME, "each warp adds its rows as blocks of a tensor", op.loc)
        ctx.count("added blocks")
    return bool(buffers)


class _Parts(NamedTuple):
    """The properties that two additions must share to use one buffer: each warp uses the same part
    of it, and waits before each addition until the previous one has read it.

    Attributes:
        loop: the outermost one, behind which warps wait for the last additions.
        type: of the tile.
        layout: of the tile.
    """

    loop: Op
    type: Type
    layout: LinearLayout | None


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


def _buffer(op: AtomicRMW, loop: Op) -> Value:
    """A buffer for additions in a loop, before it, and the wait for the last ones, after it."""
    assert loop.parent is not None
    shape = shape_of(op.value.type)
    buffer = ScalarCode(loop.parent, op, loop).value(Allocate(Shared(shape, FP32)))
    buffer.layout = shared_hopper(shape, FP32.primitive_bitwidth, SWIZZLE)
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
