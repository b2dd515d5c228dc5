"""Overlaps asynchronous products with independent work: sinks waits, hoists work above them."""

from __future__ import annotations

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.gpu import Fetch
from tilewright.ops.memory import Load
from tilewright.ops.nvidia import Wgmma, WgmmaWait
from tilewright.ops.roles import Arrive


@compiler_pass("schedule_products")
def schedule_products(fn: Function, ctx: PassContext) -> bool:
    """Sink each wait for a product to its first use, and hoist independent ops above it.

    Needs: products whose operands are valid until their wait, or until the end of the region.
    Leaves: the same values; several products in flight, each wait with the number of products
    started after the one it waits for.

    Nothing moves across a barrier, a wait for copies, or a write.
    """
    changed = False
    for region in _regions(fn.body):
        waits = [op for op in region if isinstance(op, WgmmaWait) and op.values]
        for wait in reversed(waits):
            changed |= _sink(wait)
        for wait in [op for op in region if isinstance(op, WgmmaWait) and op.values]:
            moved = _fill(wait)
            ctx.count("moved before a wait", moved)
            changed |= moved > 0
        for wait in waits:
            wait.pending = _started_after(wait)
    return changed


def _regions(region: Region) -> list[Region]:
    """The region and all regions of control flow nested in it."""
    found = [region]
    for op in region:
        if not op.pure:  # pure ops contain no products
            for nested in op.regions:
                found += _regions(nested)
    return found


def _is_fence(op: Op) -> bool:
    """Whether no op may move across this one."""
    return op.writes() and not isinstance(op, Wgmma | WgmmaWait)


def _sink(wait: WgmmaWait) -> bool:
    """Move a wait down to the first use of its results, with the arrivals that directly follow it,
    which release the operands of the product."""
    moved = [wait, *_arrivals(wait)]
    place = start = moved[-1]
    while place.next is not None:
        following = place.next
        if following.terminator or _is_fence(following) or _uses(following, set(wait.results)):
            break
        place = following
    if place is start:
        return False
    region = wait.parent
    assert region is not None
    for op in moved:
        op.remove()
        region.insert_after(op, place)
        place = op
    return True


def _arrivals(wait: WgmmaWait) -> list[Op]:
    """The arrivals directly after a wait."""
    found: list[Op] = []
    op = wait.next
    while isinstance(op, Arrive):
        found.append(op)
        op = op.next
    return found


def _uses(op: Op, values: set[Value]) -> bool:
    return any(v in values for v in op.operands) or any(
        _uses(inner, values) for region in op.regions for inner in region
    )


def _fill(wait: WgmmaWait) -> int:
    """Hoist the ops after the wait that do not depend on it above it; returns their number."""
    region = wait.parent
    assert region is not None
    held = set(wait.results)  # values available only after the wait
    moved = 0
    op = [wait, *_arrivals(wait)][-1].next
    while op is not None and not op.terminator and not _is_fence(op):
        following = op.next
        if not _may_move(op) or _uses(op, held):
            held.update(op.results)
        else:
            op.remove()
            region.insert_before(op, wait)
            moved += 1
        op = following
    return moved


def _may_move(op: Op) -> bool:
    return isinstance(op, Wgmma | Load | Fetch) or op.pure


def _started_after(wait: WgmmaWait) -> int:
    """The number of products started between the last one that is waited for and the wait.

    A product from outside the wait's region was started before all products in it.
    """
    count = 0
    op = wait.prev
    while op is not None and not (isinstance(op, Wgmma) and op.result in wait.values):
        if op.regions and not op.pure:
            return 0  # its regions may start products
        count += isinstance(op, Wgmma)
        op = op.prev
    return count
