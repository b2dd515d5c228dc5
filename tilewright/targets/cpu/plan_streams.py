"""Results that no cache will hold go past the caches.

An ordinary store to memory that no cache holds reads it first. A launch that moves more bytes than
the last cache holds pays for that and gains nothing, as its results are gone from the caches before
anything reads them. So loops that store whole vectors exist twice: where a launch is that large,
and the vectors are aligned, stores are non-temporal. Measured on a Zen 4, one thread: an addition
of 2^22 elements in 1.2 ms against 2.1, one of 2^20, which the caches hold, in the same time.

Such stores are not ordered with others; a fence follows the last program. Programs that wait for
one another keep ordinary stores.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.affine import AffineForms
from tilewright.ir.core import Op, Value
from tilewright.ir.types import Tile
from tilewright.lowering.emit import I1
from tilewright.lowering.types import register_type
from tilewright.ops import atomic, memory

KEPT = ("evict_last",)  # what the kernel says it will soon read again


def streamed_stores(ops: Sequence[Op], forms: AffineForms) -> frozenset[Value]:
    """Pointers of the stores, among all ops of a function, that may go past the caches."""
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
    """Whether it walks over memory in order, in elements that registers hold as memory does."""
    if not isinstance(pointer.type, Tile):
        return False
    if register_type(memory.pointee_of(pointer.type)) is I1:
        return False
    return 1 in forms.constant_strides(pointer)


def bytes_moved(ops: Sequence[Op], forms: AffineForms) -> int:
    """Bytes that a program of these ops loads and stores in order, at least: loops count once."""
    pointers = [op.ptr for op in ops if isinstance(op, memory.Load | memory.Store)]
    return sum(
        p.type.numel * memory.pointee_of(p.type).nbytes_in_memory
        for p in pointers
        if isinstance(p.type, Tile) and _is_stream(p, forms)
    )
