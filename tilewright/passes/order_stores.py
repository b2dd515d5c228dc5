"""Orders stores such that none overwrites memory whose load may still be in flight.

    x, y = load(p), load(q)                     x, y = load(p), load(q)
    store(q, f(x))                       →      store(p, g(x, y))
    store(p, g(x, y))                           store(q, f(x))

A store to `q` that does not depend on `y` is issued while that load is in flight, which may take
twice the time of the same kernel out of place: docs/decisions/0088. Behind a store that needs `y`,
the load has ended. Stores are moved past pure ops, and past loads and stores of other memory,
within their region. Linear in the number of ops, for each of at most `MOST_STORES` stores of a
region.
"""

from __future__ import annotations

from itertools import takewhile

from tilewright.analysis.dependences import dependent_ops
from tilewright.analysis.pointers import may_overlap
from tilewright.ir.core import Function, Op, Region
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.memory import Load, Store

NAME = "order_stores"

MOST_STORES = 16
"""Of a region: with more, as in unrolled loops, others hide the latency."""


@compiler_pass(NAME)
def order_stores(fn: Function, ctx: PassContext) -> bool:
    """Move stores behind those that wait for loads of the memory that they overwrite; see the
    module docstring."""
    changed = False
    for region in [fn.body, *(region for op in fn.walk() for region in op.regions)]:
        stores = [op for op in region if isinstance(op, Store)]
        if not 2 <= len(stores) <= MOST_STORES:
            continue
        for store in reversed(stores):
            anchor = _last_that_waits(fn, region, store)
            if anchor is not None:
                ctx.did(NAME, "starts after the loads of the memory that it overwrites", store.loc)
                ctx.count("moved stores")
                store.remove()
                region.insert_after(store, anchor)
                changed = True
    return changed


def _last_that_waits(fn: Function, region: Region, store: Store) -> Store | None:
    """The last store that waits for a load from memory that another store may overwrite, and that
    this one may follow; None if it waits for such a load itself."""
    before = takewhile(lambda op: op is not store, region)
    loads = [op for op in before if isinstance(op, Load) and may_overlap(fn, op.ptr, store.ptr)]
    waiting = dependent_ops([load.result for load in loads], region) if loads else set[Op]()
    if store in waiting:
        return None
    found: Store | None = None
    op = store.next
    while op is not None and _may_precede(fn, op, store):
        if isinstance(op, Store) and op in waiting:
            found = op
        op = op.next
    return found


def _may_precede(fn: Function, op: Op, store: Store) -> bool:
    """Whether an op that follows a store may be executed before it."""
    if isinstance(op, Load | Store):
        volatile = isinstance(op, Load) and op.volatile
        return not volatile and not may_overlap(fn, op.ptr, store.ptr)
    return op.pure and not op.regions and not op.terminator
