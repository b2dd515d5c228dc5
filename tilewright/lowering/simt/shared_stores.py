"""Stores to shared memory by some of the threads of a program."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from tilewright.lowering.emit import Builder, V, int_type, vector
from tilewright.lowering.simt.kernel import Kernel


class Store(Protocol):
    """Emits a store of a scalar, or of a vector of up to 16 bytes."""

    def __call__(self, value: V, ptr: V, align: int | None = None) -> None: ...


MOST_PREDICATED = 4
"""The most stores that are predicated, one by one, rather than branched around.

A branch costs two basic blocks. ptxas converts small ones to predicates itself, but LLVM's passes
take time for each pair of branches on one condition: 3,333 sums took them 2.5 s with branches, 1.9
without. Predicated stores are inline assembly, which orders them among all memory accesses; scans
with 32 of them had up to 10 % more instructions (SASS)."""


@contextmanager
def shared_stores(kernel: Kernel, count: int, mask: V | None) -> Generator[Store]:
    """Emit stores to shared memory that only threads with the mask execute.

        with shared_stores(kernel, 2, first) as store:
            store(low, place)
            store(high, b.gep(I32, place, 1))

    Args:
        count: number of stores.
        mask: i1; None if all threads store.
    """
    if mask is None or mask.number == 1:
        yield kernel.b.store
    elif count > MOST_PREDICATED:
        with kernel.only_if(mask):
            yield kernel.b.store
    else:

        def predicated(value: V, ptr: V, align: int | None = None) -> None:
            kernel.hw.store_shared(kernel.b, ptr, _words(kernel.b, value), mask)

        yield predicated


def _words(b: Builder, value: V) -> list[V]:
    """A scalar or vector as integers: words of 32 bits, wider elements, or one narrower integer."""
    kind = value.type
    if kind.is_ptr:
        return [b.ptrtoint(value)]
    total = kind.bits * (kind.lanes or 1)
    size = min(total, max(32, kind.bits))
    if total == size:
        return [b.bitcast(value, int_type(size))]
    whole = b.bitcast(value, vector(int_type(size), total // size))
    return [b.extract(whole, i) for i in range(total // size)]
