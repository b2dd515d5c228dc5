"""Selects the stores that may be non-temporal, which bypass the caches.

An ordinary store to memory that is not cached reads the line first (write-allocate). A launch that
moves more bytes than the last-level cache holds gains nothing from that, as its results are evicted
before they are read. So loops that store whole vectors are emitted in two versions; that with
non-temporal stores executes if the launch is large and the vectors are aligned. Measured on a
Zen 4, one thread: an addition of 2^22 elements takes 1.2 ms instead of 2.1 ms; one of 2^20, which
fits in the caches, the same time as before.

Non-temporal stores are weakly ordered, so a fence follows the last program. Kernels with atomic or
volatile accesses, whose programs may communicate, have ordinary stores only.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.affine import AffineForms
from tilewright.ir.core import Op, Value
from tilewright.ir.types import Tile
from tilewright.lowering.emit import I1
from tilewright.lowering.types import register_type
from tilewright.ops import atomic, memory

KEPT = ("evict_last",)  # eviction priorities of data that will be read again soon


def streamed_stores(ops: Sequence[Op], forms: AffineForms) -> frozenset[Value]:
    """Pointers of the stores that may be non-temporal, given all ops of a function."""
    if any(isinstance(op, atomic.AnyAtomic) or _is_volatile(op) for op in ops):
        return frozenset()
    return frozenset(
        op.ptr
        for op in ops
        if isinstance(op, memory.Store) and op.evict not in KEPT and _is_stream(op.ptr, forms)
    )


def _is_volatile(op: Op) -> bool:
    return isinstance(op, memory.Load) and op.volatile


def _is_stream(pointer: Value, forms: AffineForms) -> bool:
    """Whether an access is sequential, and its elements are the same in registers and memory."""
    if not isinstance(pointer.type, Tile):
        return False
    if register_type(memory.pointee_of(pointer.type)) is I1:
        return False
    return 1 in forms.constant_strides(pointer)


def bytes_moved(ops: Sequence[Op], forms: AffineForms) -> int:
    """A lower bound of the bytes that a program with these ops loads and stores sequentially:
    accesses in loops count once."""
    pointers = [op.ptr for op in ops if isinstance(op, memory.Load | memory.Store)]
    return sum(
        p.type.numel * memory.pointee_of(p.type).nbytes_in_memory
        for p in pointers
        if isinstance(p.type, Tile) and _is_stream(p, forms)
    )
