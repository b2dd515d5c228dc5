"""Overlaps the asynchronous products of a loop with the next iteration."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_after, insert_before
from tilewright.ir.types import I32
from tilewright.ops.arith import Cmp, Constant
from tilewright.ops.control import Barrier, For
from tilewright.ops.gpu import CommitCopies, Share, Slot, unpermuted
from tilewright.ops.nvidia import Wgmma, WgmmaWait
from tilewright.ops.roles import Arrive
from tilewright.rewrites.control import carry_more


@compiler_pass("overlap_products")
def overlap_products(fn: Function, ctx: PassContext) -> bool:
    """Delay the waits for a loop's products by one iteration, if only the next products use them.

    Needs: pipelined loads, so that operands stay valid for another iteration.
    Leaves: the products in flight at the back edge; a wait after the loop.

    The copies into the slots of the previous products' operands are moved after the wait for those
    products and a barrier, as other warps may not have completed theirs. The products of the
    current iteration execute meanwhile. All arrivals by which the loop releases slots to a copying
    warp are delayed by one iteration, too: a late arrival is harmless with two slots or more.
    """
    changed = False
    for op in list(fn.walk()):
        if isinstance(op, For):
            # For slots that are freed within nested control flow, the readers are unknown.
            nested = any(isinstance(o, Arrive) and o.parent is not op.body for o in op.body.walk())
            products = [] if nested else sums(op, lambda buffer: isinstance(buffer.op, Slot))
            if products:
                _overlap(op, products)
                ctx.count("overlapped")
                changed = True
    return changed


def sums(loop: For, lasting: Callable[[Value], bool]) -> list[Wgmma]:
    """The products of the loop, if the result of each is only carried to itself, and none of their
    operands is overwritten before the next iteration's product has started; else none.

    Args:
        lasting: whether that is so for a buffer that the loop fills.
    """
    products = [op for op in loop.body.walk() if isinstance(op, Wgmma)]
    buffers = [unpermuted(operand) for op in products for operand in (op.lhs, op.rhs)]
    stay = all(_is_shared_outside(buffer, loop) or lasting(buffer) for buffer in buffers)
    return products if stay and all(_is_carried(op, loop) for op in products) else []


def _is_shared_outside(buffer: Value, loop: For) -> bool:
    return isinstance(buffer.op, Share) and buffer.region is not loop.body


def _is_carried(product: Wgmma, loop: For) -> bool:
    """Whether a product is used only by its wait, whose result only the next iteration uses."""
    wait = product.next
    if product.parent is not loop.body or not isinstance(wait, WgmmaWait):
        return False
    if wait.values != [product.result] or wait.pending:
        return False
    end = loop.body.terminator
    acc, result = product.acc, wait.results[0]
    return (
        acc.owner is loop.body
        and list(acc.users.items()) == [(product, 1)]
        and list(result.users.items()) == [(end, 1)]
        and end.operands[acc.index - 1] is result
    )


def _overlap(loop: For, products: list[Wgmma]) -> None:
    arrivals = [op for op in loop.body if isinstance(op, Arrive)]
    results = [_carry_in_flight(loop, product) for product in products]
    previous = insert_after(WgmmaWait([], len(products)), products[-1])
    _sink_copies(loop, previous)
    last = WgmmaWait(results, 0)
    last.loc = previous.loc
    assert loop.parent is not None
    loop.parent.insert_after(last, loop)
    for number, (before, after) in enumerate(zip(results, last.results, strict=True)):
        before.replace_with(after)
        last.set_operand(number, before)
    if arrivals:
        _delay(loop, arrivals, previous)


def _delay(loop: For, arrivals: list[Arrive], wait: Op) -> None:
    """Move arrivals to the next iteration, after a wait there, and the last ones after the loop.

    The loop carries the number of the barrier; -1 means none.
    """
    none = insert_before(Constant(-1, I32), loop)
    numbers = [arrival.index for arrival in arrivals]
    before = [loop.body.add_arg(I32) for _ in arrivals]
    for arrival, number in zip(arrivals, before, strict=True):
        arrival.remove()
        _insert_arrival(loop.body, wait, arrival, number)
    count = len(loop.inits)
    new = carry_more(loop, [none.results[0]] * len(arrivals), numbers)
    last = new.next  # the wait for the last product
    assert isinstance(last, WgmmaWait)
    assert last.parent is not None
    for arrival, number in zip(arrivals, new.results[count:], strict=True):
        _insert_arrival(last.parent, last, arrival, number)
        arrival.erase()


def _insert_arrival(region: Region, place: Op, like: Arrive, number: Value) -> None:
    """Arrive after `place` as an op did, at a barrier of this number if it is not negative."""
    zero = Constant(0, I32)
    known = Cmp(number, zero.results[0], "ge")
    arrival = Arrive(like.barriers, number, known.results[0], like.warps, like.loads)
    for op in (arrival, known, zero):  # the last first, each directly after `place`
        op.loc = like.loc
        region.insert_after(op, place)


def _carry_in_flight(loop: For, product: Wgmma) -> Value:
    """Yield a product in flight instead of the waited-for value; returns the loop's result."""
    wait = product.next
    assert isinstance(wait, WgmmaWait)
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
