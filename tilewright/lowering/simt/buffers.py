"""Ops on buffers in shared memory. A buffer's value is lowered to the address of its first byte."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.core import Op, Value
from tilewright.layout.linear import REGISTER
from tilewright.lowering.emit import I8
from tilewright.lowering.simt.buffer_vectors import bits_of_copies
from tilewright.lowering.simt.convert import from_bits
from tilewright.lowering.simt.kernel import Kernel, Registers, emits
from tilewright.lowering.simt.tile_access import (
    element_type,
    layout_of,
    load_by_matrices,
    load_rows,
    matrices_of,
    moves,
    store_tile,
)
from tilewright.ops.gpu import (
    BUFFER_VIEWS,
    Allocate,
    AllocateRing,
    CommitCopies,
    CopyAsync,
    Fetch,
    PermuteBuffer,
    Share,
    Slot,
    WaitCopies,
)
from tilewright.ops.memory import Load


@emits(Share)
def emit_share(kernel: Kernel, op: Share) -> None:
    base = kernel.shared.address(kernel.b, op)
    store_tile(kernel, op.src, layout_of(op.result), base)
    if _is_read_in_flight(op) and not _is_published_later(kernel, op):
        # A barrier alone does not order these writes before the reads of asynchronous products.
        kernel.hw.publish(kernel.b)
    kernel.env[op.result] = [base]


def _is_read_in_flight(op: Share) -> bool:
    return any(user.in_flight for user in _readers(op.result))


def _is_published_later(kernel: Kernel, op: Share) -> bool:
    """Whether another value is stored, and published with this one, before the next barrier and the
    first use: threads wait for all of their stores to be published."""
    readers = set(_readers(op.result))
    following = op.next
    while following is not None and following not in readers:
        if following in kernel.shared.barriers:
            return False
        if isinstance(following, Share) and _is_read_in_flight(following):
            return True
        if not (following.pure or isinstance(following, Share | Load)):
            return False
        following = following.next
    return False


def _readers(buffer: Value) -> Iterator[Op]:
    """The ops that access the buffer's memory, directly or through views."""
    for user in buffer.users:
        if isinstance(user, BUFFER_VIEWS):
            yield from _readers(user.results[0])
        else:
            yield user


@emits(Fetch)
def emit_fetch(kernel: Kernel, op: Fetch) -> None:
    base = kernel.scalar(op.src)
    element = element_type(op.result)
    tile, buffer = layout_of(op.result), layout_of(op.src)
    # A matrix load reads what other threads of the warp have copied.
    loads = kernel.hw.loads_matrices and not op.own
    matrices = matrices_of(tile, buffer, element.bits) if loads else None
    found = (
        load_rows(kernel, tile, buffer, base, element)
        if matrices is None
        else load_by_matrices(kernel, matrices, base, element)
    )
    copies = tile.free_variables(REGISTER)
    bits: Registers = [found[r & ~copies] for r in range(tile.in_size(REGISTER))]
    kernel.bind(op, from_bits(kernel, op.result.type, bits))


@emits(Allocate)
@emits(AllocateRing)
def emit_allocate(kernel: Kernel, op: Allocate) -> None:
    kernel.env[op.result] = [kernel.shared.address(kernel.b, op)]


@emits(Slot)
def emit_slot(kernel: Kernel, op: Slot) -> None:
    b = kernel.b
    start = kernel.shared.slot_offset(b, op.buffer, kernel.scalar(op.index))
    kernel.env[op.results[0]] = [b.gep(I8, kernel.scalar(op.buffer), start)]


@emits(PermuteBuffer)
def emit_permute(kernel: Kernel, op: PermuteBuffer) -> None:
    kernel.env[op.results[0]] = kernel.env[op.buffer]


@emits(CopyAsync)
def emit_copy_async(kernel: Kernel, op: CopyAsync) -> None:
    b = kernel.b
    base = kernel.scalar(op.buffer)
    element = element_type(op.buffer)
    size = element.bits // 8
    pointers = kernel.env[op.ptr]
    masks = kernel.env[op.mask] if op.mask is not None else None
    tile, vectors = layout_of(op.ptr), bits_of_copies(op, kernel.infos)
    with kernel.only_if(kernel.is_first_holder(tile)):
        for registers, offset in moves(kernel, tile, layout_of(op.buffer), vectors):
            first = registers[0]
            mask = masks[first] if masks else None
            place = b.gep(element, base, offset)
            kernel.hw.copy_async(b, place, pointers[first], len(registers) * size, mask)


@emits(CommitCopies)
def emit_commit(kernel: Kernel, op: CommitCopies) -> None:
    kernel.hw.commit_copies(kernel.b)


@emits(WaitCopies)
def emit_wait(kernel: Kernel, op: WaitCopies) -> None:
    kernel.hw.wait_copies(kernel.b, op.pending)
