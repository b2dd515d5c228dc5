"""Overlaps the asynchronous product of a loop with the next iteration."""

from __future__ import annotations

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import I32
from tilewright.ops.arith import Cmp, Constant
from tilewright.ops.control import Barrier, For
from tilewright.ops.gpu import CommitCopies, PermuteBuffer, Share, Slot
from tilewright.ops.nvidia import Wgmma, WgmmaWait
from tilewright.ops.roles import Arrive
from tilewright.rewrites.control import set_yields, take_region


@compiler_pass("overlap_products")
def overlap_products(fn: Function, ctx: PassContext) -> bool:
    """Delay the wait for a loop's product by one iteration, if only the next product uses it.

    Needs: pipelined loads, so that operands stay valid for another iteration.
    Leaves: the product in flight at the back edge; a wait after the loop.

    The copies into the slot of the previous product's operands are moved after the wait for that
    product and a barrier, as other warps may not have completed theirs. The product of the current
    iteration executes meanwhile. All arrivals by which the loop releases slots to a copying warp
    are delayed by one iteration, too: a late arrival is harmless with two slots or more.
    """
    changed = False
    for op in list(fn.walk()):
        if isinstance(op, For):
            found = _product(op)
            if found is not None:
                _overlap(op, *found)
                ctx.count("overlapped")
                changed = True
    return changed


def _product(loop: For) -> tuple[Wgmma, WgmmaWait] | None:
    """The only product of the loop, and its wait, if its result is only carried to the next."""
    products = [op for op in loop.body.walk() if isinstance(op, Wgmma)]
    if len(products) != 1 or products[0].parent is not loop.body:
        return None
    (product,) = products
    wait = product.next
    if not isinstance(wait, WgmmaWait) or wait.values != [product.result] or wait.pending:
        return None
    end = loop.body.terminator
    acc, result = product.acc, wait.results[0]
    carried = (
        acc.owner is loop.body
        and list(acc.users.items()) == [(product, 1)]
        and list(result.users.items()) == [(end, 1)]
        and end.operands[acc.index - 1] is result
    )
    # For slots that are freed within nested control flow, the readers are unknown.
    nested = any(isinstance(op, Arrive) and op.parent is not loop.body for op in loop.body.walk())
    stay = carried and not nested and _operands_stay(product, loop)
    return (product, wait) if stay else None


def _operands_stay(product: Wgmma, loop: For) -> bool:
    """Whether the operands are not overwritten before the next iteration's product has started."""
    for operand in (product.lhs, product.rhs):
        buffer = _unpermuted(operand)
        outside = isinstance(buffer.op, Share) and buffer.region is not loop.body
        if not outside and not isinstance(buffer.op, Slot):
            return False
    return True


def _unpermuted(buffer: Value) -> Value:
    """The buffer of which the value is a view with permuted axes."""
    while isinstance(buffer.op, PermuteBuffer):
        buffer = buffer.op.buffer
    return buffer


def _overlap(loop: For, product: Wgmma, wait: WgmmaWait) -> None:
    arrivals = [op for op in loop.body if isinstance(op, Arrive)]
    result = _carry_in_flight(loop, product, wait)
    previous = WgmmaWait([], 1)
    previous.loc = product.loc
    loop.body.insert_after(previous, product)
    _sink_copies(loop, previous)
    last = WgmmaWait([result], 0)
    last.loc = product.loc
    assert loop.parent is not None
    loop.parent.insert_after(last, loop)
    result.replace_with(last.results[0])
    last.set_operand(0, result)
    if arrivals:
        _delay(loop, arrivals, previous)


def _delay(loop: For, arrivals: list[Arrive], wait: Op) -> None:
    """Move arrivals to the next iteration, after a wait there, and the last ones after the loop.

    The loop carries the number of the barrier; -1 means none.
    """
    parent = loop.parent
    assert parent is not None
    none = Constant(-1, I32)
    none.loc = loop.loc
    parent.insert_before(none, loop)
    numbers = [arrival.index for arrival in arrivals]
    before = [loop.body.add_arg(I32) for _ in arrivals]
    for arrival, number in zip(arrivals, before, strict=True):
        arrival.remove()
        _insert_arrival(loop.body, wait, arrival, number)
    set_yields(loop.body, [*loop.body.terminator.operands, *numbers])
    count = len(loop.inits)
    inits = [*loop.inits, *[none.results[0]] * len(arrivals)]
    body = take_region(loop, 0)
    new = For(
        loop.start, loop.stop, loop.step, inits, loop.num_stages, loop.unroll, loop.hints, body
    )
    new.loc = loop.loc
    parent.insert_before(new, loop)
    for old, result in zip(loop.results, new.results, strict=False):
        result.layout = old.layout
        old.replace_with(result)
    last = loop.next  # the wait for the last product
    assert isinstance(last, WgmmaWait)
    loop.erase()
    for arrival, number in zip(arrivals, new.results[count:], strict=True):
        _insert_arrival(parent, last, arrival, number)
        arrival.erase()


def _insert_arrival(region: Region, place: Op, like: Arrive, number: Value) -> None:
    """Arrive after `place` as an op did, at a barrier of this number if it is not negative."""
    zero = Constant(0, I32)
    known = Cmp(number, zero.results[0], "ge")
    arrival = Arrive(like.barriers, number, known.results[0], like.warps, like.loads)
    for op in (arrival, known, zero):  # the last first, each directly after `place`
        op.loc = like.loc
        region.insert_after(op, place)


def _carry_in_flight(loop: For, product: Wgmma, wait: WgmmaWait) -> Value:
    """Yield the product in flight instead of the waited-for value; returns the loop's result."""
    wait.results[0].replace_with(product.result)
    wait.erase()
    return loop.results[product.acc.index - 1]


def _sink_copies(loop: For, place: Op) -> None:
    """Move the ops that start copies, from the loop's barrier to their commit, after `place`."""
    commit = next((op for op in loop.body if isinstance(op, CommitCopies)), None)
    if commit is None:
        return
    moved: list[Op] = []
    op: Op | None = commit
    while op is not None and not isinstance(op, Barrier):
        moved.append(op)
        op = op.prev
    for op in moved:  # in reverse order, each immediately after `place`
        op.remove()
        loop.body.insert_after(op, place)
    barrier = Barrier()
    barrier.loc = place.loc
    loop.body.insert_after(barrier, place)
