"""Barriers in shared memory (`mbarrier`), tensor copies (TMA), and random delays around them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.layout.linear import OFFSET, REGISTER, WARP
from tilewright.lowering.emit import I32, PTR, VOID, Builder, V, const
from tilewright.lowering.simt.kernel import PROVIDED, Kernel, Provided, emits
from tilewright.lowering.simt.tile_access import layout_of, store_tile
from tilewright.ops.debug import source_position
from tilewright.ops.gpu import HasSpare
from tilewright.ops.nvidia import ADDED_COLUMNS, AddBlock, Delay, LoadBlock, Sum, WaitBlocks
from tilewright.ops.roles import Arrive, DropBarriers, ExpectBytes, InitBarriers, WaitBarrier
from tilewright.targets.nvidia.add_blocks import NEXT_ROW, Box, box_of, box_starts
from tilewright.targets.nvidia.name import NAME
from tilewright.targets.nvidia.tensor_copies import MAX_BOX, has_plain_rows, swizzle_of

BARRIER_BYTES = 8
MAP_BYTES = 128  # of a tensor map, which is passed by value
ADDED_BYTES = ADDED_COLUMNS * ir.FP32.nbytes_in_memory  # of a row of a box that is added


class TensorMap(NamedTuple):
    """The description of a tensor for the launch. Numbers in sums are indices of arguments.

    Attributes:
        base: the argument with an address; the tensor begins `offset` elements after it.
        extents, strides: by dimension, in elements; the contiguous one first.
        box: elements of a copy by dimension.
        element_bytes: 1, 2, 4 or 8.
        swizzle: bytes of a row of the box, within which chunks of 16 are permuted.
        added: whether blocks of fp32 are added to the tensor.
    """

    base: int
    offset: Sum
    extents: tuple[Sum, ...]
    strides: tuple[Sum, ...]
    box: tuple[int, ...]
    element_bytes: int
    swizzle: int
    added: bool


def facts_of(provided: Sequence[Hashable]) -> list[dict[str, Any]]:
    """The tensor maps among the values that a launch provides, as metadata of a kernel."""
    return [what._asdict() for what in provided if isinstance(what, TensorMap)]


def _geometry(op: LoadBlock) -> tuple[int, int, tuple[int, ...]]:
    """The axis of the buffer that is contiguous, its swizzle, and the box of one copy. Without a
    swizzle, rows of a box are whole rows of the buffer."""
    shape, layout = ir.shape_of(op.buffer.type), layout_of(op.buffer)
    size = ir.dtype_of(op.buffer.type).nbytes_in_memory
    contiguous = op.axes.index(0)
    swizzle = swizzle_of(shape, size * 8, contiguous, layout)
    plain = len(shape) == 1 or has_plain_rows(shape, size * 8, contiguous, layout)
    assert swizzle or plain, "a tensor copy writes one of the hardware's layouts"
    box = [1] * len(op.coords)
    for axis, dimension in enumerate(op.axes):
        row = axis == contiguous and swizzle
        box[dimension] = swizzle // size if row else min(shape[axis], MAX_BOX)
    return contiguous, swizzle, tuple(box)


def _tensor_map(op: LoadBlock | AddBlock) -> TensorMap:
    def numbered(terms: Sum) -> Sum:
        return tuple((c, tuple(op.args[i].index for i in factors)) for c, factors in terms)

    _, swizzle, box = _geometry(op) if isinstance(op, LoadBlock) else (1, ADDED_BYTES, ())
    tensor = TensorMap(
        op.base.index,
        numbered(op.offset),
        tuple(map(numbered, op.extents)),
        tuple(map(numbered, op.strides)),
        box,
        ir.dtype_of(op.buffer.type).nbytes_in_memory,
        swizzle,
        isinstance(op, AddBlock),
    )
    return _added_tensor_map(op, tensor) if isinstance(op, AddBlock) else tensor


def _added_tensor_map(op: AddBlock, tensor: TensorMap) -> TensorMap:
    """The map of additions. If rows of two boxes alternate, both are one box along a dimension that
    overlaps that of the rows or of the columns."""
    rows, columns, alternating = _box_of(op)
    box = [1] * len(op.coords)
    box[op.axes[0]], box[op.axes[1]] = rows, columns
    extents, strides = list(tensor.extents), list(tensor.strides)
    if alternating != NEXT_ROW:
        dimension, distance = op.axes[0 if alternating[0] else 1], sum(alternating)
        box[dimension] //= 2
        extents.insert(1, ((2, ()),))
        strides.insert(1, tuple((c * distance, factors) for c, factors in strides[dimension]))
        box.insert(1, 2)
    return tensor._replace(extents=tuple(extents), strides=tuple(strides), box=tuple(box))


def _box_of(op: AddBlock) -> Box:
    return box_of(layout_of(op.value), layout_of(op.buffer))


def _provided(op: LoadBlock | AddBlock) -> Provided:
    attributes = f'byval([{MAP_BYTES} x i8]) align 64 "nvvm.grid_constant"'
    return Provided(_tensor_map(op), attributes)


PROVIDED[LoadBlock] = _provided
PROVIDED[AddBlock] = _provided


def barrier_address(kernel: Kernel, barriers: Value, index: V | int) -> V:
    """The address of a barrier in shared memory, as PTX takes it."""
    b = kernel.b
    base = b.ptrtoint(kernel.scalar(barriers), I32)
    offset = index if isinstance(index, V) else const(I32, index)
    return b.add(base, b.mul(offset, const(I32, BARRIER_BYTES)))


def _run(b: Builder, code: str, constraints: str, args: Sequence[V]) -> None:
    b.inline_asm(code, ",".join(filter(None, [constraints, "~{memory}"])), VOID, args, True)


@emits(InitBarriers, target=NAME)
def emit_init_barriers(kernel: Kernel, op: InitBarriers) -> None:
    b = kernel.b
    with kernel.only_if(b.icmp("eq", kernel.thread, 0)):
        for what, tensor in kernel.provided.items():
            if isinstance(what.what, TensorMap):
                _run(b, "prefetch.tensormap [$0];", "l", [tensor])  # for the first copies
        for i, count in enumerate(op.arrivals):
            place = barrier_address(kernel, op.barriers, i)
            _run(b, f"mbarrier.init.shared::cta.b64 [$0], {count};", "r", [place])
        # Makes them visible to the unit that performs tensor copies.
        b.inline_asm("fence.mbarrier_init.release.cluster;", "~{memory}", VOID, [], True)


@emits(DropBarriers, target=NAME)
def emit_drop_barriers(kernel: Kernel, op: DropBarriers) -> None:
    b = kernel.b
    with kernel.only_if(b.icmp("eq", kernel.thread, 0)):  # the one that initialises them
        for i in range(ir.shape_of(op.barriers.type)[0]):
            place = barrier_address(kernel, op.barriers, i)
            _run(b, "mbarrier.inval.shared::cta.b64 [$0];", "r", [place])


@emits(HasSpare, target=NAME)
def emit_has_spare(kernel: Kernel, op: HasSpare) -> None:
    b = kernel.b
    provided = b.inline_asm("mov.u32 $0, %dynamic_smem_size;", "=r", I32, [])
    kernel.bind(op, [b.icmp("ugt", provided, kernel.shared.bytes)])


@emits(ExpectBytes, target=NAME)
def emit_expect_bytes(kernel: Kernel, op: ExpectBytes) -> None:
    place = barrier_address(kernel, op.barriers, kernel.scalar(op.index))
    code = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {op.bytes};"
    _run(kernel.b, code, "r", [place])


@emits(Arrive, target=NAME)
def emit_arrive(kernel: Kernel, op: Arrive) -> None:
    """One lane of each warp arrives. The reads of the other lanes are complete as well: a wait for
    products completed them, or the start of a product, executed by the whole warp, required them.

    Tensor copies overwrite what was loaded by another proxy, so that loads are ordered before them
    by a fence only (PTX ISA, "Async proxy"): without it, on an H200, a copy that followed loads of
    16 fragments by the thread did overwrite some of them.
    """
    b = kernel.b
    if op.loads:
        kernel.hw.publish(b)
    place = barrier_address(kernel, op.barriers, kernel.scalar(op.index))
    runs = b.icmp("eq", kernel.lane, 0)
    if op.condition is not None:
        runs = b.and_(runs, kernel.scalar(op.condition))
    code = "@$1 mbarrier.arrive.shared::cta.b64 _, [$0];"
    _run(b, code, "r,b", [place, runs])


@emits(WaitBarrier, target=NAME)
def emit_wait_barrier(kernel: Kernel, op: WaitBarrier) -> None:
    b = kernel.b
    index, parity = kernel.scalar(op.index), kernel.scalar(op.parity)
    place = barrier_address(kernel, op.barriers, index)
    test = "mbarrier.try_wait.parity.shared::cta.b64 complete"
    if not op.limit:
        code = f"{{ .reg .pred complete; WAIT: {test}, [$0], $1; @!complete bra WAIT; }}"
        b.inline_asm(code, "r,r,~{memory}", VOID, [place, parity], True, True)
        return
    code = (
        "{ .reg .pred complete, over; .reg .u64 start, now; mov.u64 start, %globaltimer; "
        f"WAIT: {test}, [$1], $2; mov.u64 now, %globaltimer; sub.u64 now, now, start; "
        f"setp.gt.or.u64 over, now, {op.limit}, complete; @!over bra WAIT; "
        "selp.b32 $0, 1, 0, complete; }"
    )
    complete = b.inline_asm(code, "=r,r,r,~{memory}", I32, [place, parity], True, True)
    file, line, function = source_position(op.loc)
    with kernel.only_if(b.icmp("eq", complete, 0)):
        form = "thread %d waited too long for parity %d of barrier %d\n"
        kernel.hw.printf(b, form, [kernel.thread, parity, index])
        kernel.hw.fail(b, "a wait for a barrier did not end", file, line, function)


@emits(Delay, target=NAME)
def emit_delay(kernel: Kernel, op: Delay) -> None:
    """A delay of up to 4 µs, short ones being more frequent: 12 bits, shifted right by 0 to 7 bits.
    A linear congruential generator computes them from the clock, the warp and the seed; its high
    bits are used."""
    code = (
        "{ .reg .u32 time, other; mov.u32 time, %clock; mov.u32 other, %warpid; "
        f"mad.lo.u32 time, other, 40503, time; xor.b32 time, time, {op.seed}; "
        "mad.lo.u32 time, time, 1664525, 1013904223; "
        "shr.u32 other, time, 17; and.b32 other, other, 7; "
        "shr.u32 time, time, 20; shr.u32 time, time, other; nanosleep.u32 time; }"
    )
    kernel.b.inline_asm(code, "~{memory}", VOID, [], True, True)


@emits(LoadBlock, target=NAME)
def emit_load_block(kernel: Kernel, op: LoadBlock) -> None:
    """One copy for each row of a box along the contiguous axis, and for each box along the other,
    as they are stored in the buffer."""
    b = kernel.b
    contiguous, swizzle, _ = _geometry(op)
    size = ir.dtype_of(op.buffer.type).nbytes_in_memory
    shape = ir.shape_of(op.buffer.type)
    places = layout_of(op.buffer).invert()
    tensor = _guarded(kernel, op, kernel.provided[_provided(op)])
    barrier = barrier_address(kernel, op.barriers, kernel.scalar(op.index))
    buffer = b.ptrtoint(kernel.scalar(op.buffer), I32)
    coords = [kernel.scalar(v) for v in op.coords]
    if len(shape) == 1:
        _copy(b, buffer, tensor, coords, barrier)
        return
    other = 1 - contiguous
    row = swizzle // size or shape[contiguous]
    for inner in range(0, shape[contiguous], row):
        for outer in range(0, shape[other], MAX_BOX):
            start = {f"dim{contiguous}": inner, f"dim{other}": outer}
            offset = places.apply(start)[OFFSET] * size
            at = list(coords)
            at[0] = b.add(at[0], const(I32, inner))
            at[op.axes[other]] = b.add(at[op.axes[other]], const(I32, outer))
            _copy(b, b.add(buffer, const(I32, offset)), tensor, at, barrier)


def _copy(b: Builder, to: V, tensor: V, coords: Sequence[V], barrier: V) -> None:
    rank = len(coords)
    listed = ", ".join(f"${3 + i}" for i in range(rank))
    code = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[$0], [$1, {{{listed}}}], [$2];"
    )
    _run(b, code, ",".join(["r", "l", "r"] + ["r"] * rank), [to, tensor, barrier, *coords])


@emits(AddBlock, target="cuda")
def emit_add_block(kernel: Kernel, op: AddBlock) -> None:
    """Each warp stores its part of the tile once its part of the buffer has been read, and one lane
    starts the addition of its boxes."""
    b, hw = kernel.b, kernel.hw
    tile = layout_of(op.value)
    _wait_for_reads(b)
    _run(b, "bar.warp.sync 0xffffffff;", "", [])
    buffer = kernel.scalar(op.buffer)
    store_tile(kernel, op.value, layout_of(op.buffer), buffer)
    hw.publish(b)
    _run(b, "bar.warp.sync 0xffffffff;", "", [])
    tensor = _guarded(kernel, op, kernel.provided[_provided(op)])
    coords = [kernel.scalar(v) for v in op.coords]
    # The lane is 0 for all: coordinates are those of the warp's boxes.
    held = tile.select_ins(REGISTER, WARP)
    rows, columns = (kernel.coordinates(held, name) for name in ("dim0", "dim1"))
    offsets = held.compose(layout_of(op.buffer).invert()).flatten_outs(OFFSET)
    places = kernel.coordinates(offsets, OFFSET)
    base = b.ptrtoint(buffer, I32)
    box = _box_of(op)
    with kernel.only_if(hw.elect(b)):
        for register in box_starts(tile, box):
            at = list(coords)
            at[op.axes[0]] = b.add(at[op.axes[0]], rows[register])
            at[op.axes[1]] = b.add(at[op.axes[1]], columns[register])
            if box.alternating != NEXT_ROW:
                at.insert(1, const(I32, 0))
            listed = ", ".join(f"${2 + i}" for i in range(len(at)))
            code = (
                f"cp.reduce.async.bulk.tensor.{len(at)}d.global.shared::cta.add.tile.bulk_group "
                f"[$1, {{{listed}}}], [$0];"
            )
            size = const(I32, ir.FP32.nbytes_in_memory)
            place = b.add(base, b.mul(places[register], size))
            _run(b, code, ",".join(["r", "l"] + ["r"] * len(at)), [place, tensor, *at])
        _run(b, "cp.async.bulk.commit_group;", "", [])


def _wait_for_reads(b: Builder) -> None:
    _run(b, "cp.async.bulk.wait_group.read 0;", "", [])


@emits(WaitBlocks, target="cuda")
def emit_wait_blocks(kernel: Kernel, op: WaitBlocks) -> None:
    """All threads execute it; those that have started no additions do not wait."""
    _wait_for_reads(kernel.b)


def _guarded(kernel: Kernel, op: LoadBlock | AddBlock, tensor: V) -> V:
    """The map, or null, on which the copy faults, where a coordinate is negative that must not be:
    zeros would be a wrong result."""
    b = kernel.b
    if not op.within:
        return tensor
    signs = kernel.scalar(op.coords[op.within[0]])
    for d in op.within[1:]:
        signs = b.or_(signs, kernel.scalar(op.coords[d]))
    return b.select(b.icmp("slt", signs, 0), const(PTR, 0), tensor)
