"""Overlaps asynchronous products with independent work: sinks waits, hoists work above them."""

from __future__ import annotations

import sys

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import element_of
from tilewright.layout.families import without_duplicates
from tilewright.layout.linear import REGISTER
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.gpu import ConvertLayout, Fetch, Share
from tilewright.ops.memory import Load, Store
from tilewright.ops.nvidia import Wgmma, WgmmaWait
from tilewright.ops.roles import Arrive, WaitBarrier
from tilewright.ops.shape import View
from tilewright.targets.nvidia.occupancy import FEWEST_OTHERS, REGISTER_BYTES


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
            moved = _fill(wait, ctx)
            ctx.count("moved before a wait", moved)
            changed |= moved > 0
        for op in [op for op in region if _is_fetched(op, ctx) and not _may_move(op, ctx)]:
            changed |= _delay(op)
        for wait in [op for op in region if isinstance(op, WgmmaWait) and op.values]:
            wait.pending = started_after(wait)
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
    which release the operands of the product.

    Products complete in order: behind a wait for a later one, there is nothing left to wait for.
    """
    moved = [wait, *_arrivals(wait)]
    place = start = moved[-1]
    while place.next is not None:
        following = place.next
        fence = _is_fence(following) and not isinstance(following, Store | AtomicRMW)
        if following.terminator or fence or _uses(following, set(wait.results)):
            break
        place = following
        if isinstance(following, WgmmaWait):
            break
    if place is start:
        return False
    region = wait.parent
    assert region is not None
    for op in moved:
        op.remove()
        region.insert_after(op, place)
        place = op
    return True


def _delay(fetch: Op) -> bool:
    """Sink loads from shared memory to their arithmetic uses, with ops that only rename their
    elements, but not across an op that may overwrite the buffer, or allow others to do so. Operands
    of a conversion are not affected."""
    region, moved = fetch.parent, list[Op]([fetch])
    assert region is not None
    own = isinstance(fetch, ConvertLayout)
    while len(users := list(moved[-1].results[0].users)) == 1 and isinstance(users[0], View):
        moved.append(users[0])
    if any(op.parent is not region for op in moved):
        return False
    users = region.users_of(moved[-1])
    first = fetch.next
    while first is not None and first not in users and (own or not _releases(first)):
        first = first.next
    if first is None or first.prev is moved[-1]:
        return False
    for op in moved:
        op.remove()
        region.insert_before(op, first)
    return True


def _releases(op: Op) -> bool:
    """Whether shared memory read before an op may be overwritten after it."""
    return _is_fence(op) and not isinstance(op, Store | AtomicRMW | WaitBarrier)


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


def _fill(wait: WgmmaWait, ctx: PassContext) -> int:
    """Hoist the ops after the wait that do not depend on it above it; returns their number.

    A wait for a slot passes a release of another one only with what reads the slot: alone, it would
    delay what follows until the slot is written.
    """
    region = wait.parent
    assert region is not None
    held = set(wait.results)  # values available only after the wait
    later: list[Op] = []  # waits for slots, which what reads them takes along
    moved = 0
    op = [wait, *_arrivals(wait)][-1].next
    releases = isinstance(wait.next, Arrive)
    while op is not None and not op.terminator:
        following = op.next
        if _is_fence(op) and not isinstance(op, WaitBarrier):
            break
        if not _may_move(op, ctx) or _uses(op, held):
            held.update(op.results)
        elif releases and isinstance(op, WaitBarrier):
            later.append(op)
        else:
            group = [op] if op.pure or isinstance(op, Load) else [*later, op]
            for each in group:
                each.remove()
                region.insert_before(each, wait)
            if len(group) > 1:
                later.clear()
            moved += len(group)
        op = following
    return moved


def _may_move(op: Op, ctx: PassContext) -> bool:
    """Whether an op may be hoisted. Loads from shared memory for arithmetic are not: they have no
    delay, and would occupy registers."""
    if _is_fetched(op, ctx):
        return all(user.in_flight or isinstance(user, Share) for user in op.results[0].users)
    return isinstance(op, Wgmma | Load | WaitBarrier) or op.pure


def _is_fetched(op: Op, ctx: PassContext) -> bool:
    """Whether the result is read from shared memory, and takes registers that the operand does not.

    So it is with conversions that give each thread more elements. They overlap with the product
    unless a second resident program, which overlaps with more, has no registers then: of a bias of
    128 keys a thread of attention loads one, and needs 32, beside 64 scores.
    """
    if isinstance(op, ConvertLayout):
        return _widens(op) and op.parent is not None and _crowds(op.parent, ctx)
    return isinstance(op, Fetch)


def _widens(op: ConvertLayout) -> bool:
    return _registers(op.result) > _registers(op.src)


def _crowds(region: Region, ctx: PassContext) -> bool:
    """Whether two programs have registers for the carried values of a loop and the largest result
    of its products, but not also for the results of conversions."""
    products = [op.result for op in region if isinstance(op, Wgmma)]
    if not products:
        return False
    carried = sum(map(_registers, region.args))
    held = carried + max(map(_registers, products)) + FEWEST_OTHERS
    conversions = [op for op in region if isinstance(op, ConvertLayout) and _widens(op)]
    more = sum(_registers(op.result) for op in conversions)
    return held <= ctx.gpu.registers // (2 * ctx.gpu.threads) < held + more


def _registers(value: Value) -> int:
    """The registers of a thread for its different elements of a tile; 0 without a layout."""
    if value.layout is None:
        return 0
    count = 1 << len(without_duplicates(value.layout).bases(REGISTER))
    return -(-count * element_of(value.type).nbytes_in_memory // REGISTER_BYTES)


def started_after(wait: WgmmaWait) -> int:
    """The number of products started between the last one that is waited for and the wait.

    A product from outside the wait's region was started before all products in it. The number is
    not larger than what an earlier wait has left in flight: ptxas takes the last wait for all that
    is known, and would serialise products whose results are used after a wait that allows more.
    """
    count, least = 0, [sys.maxsize]
    op = wait.prev
    while op is not None and not (isinstance(op, Wgmma) and op.result in wait.values):
        if op.regions and not op.pure:
            return 0  # its regions may start products
        if isinstance(op, WgmmaWait):
            least.append(op.pending + count)
        count += isinstance(op, Wgmma)
        op = op.prev
    return min(count, *least)
