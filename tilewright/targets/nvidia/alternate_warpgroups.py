"""Ping-pong scheduling: one warpgroup issues its products while the others compute with theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.analysis.launch_invariants import is_launch_invariant
from tilewright.ir.core import Function, Op
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_after, insert_before
from tilewright.ir.types import Shared
from tilewright.ops.control import Barrier, For
from tilewright.ops.gpu import Allocate, AllocateRing, CopyAsync, whole_buffer
from tilewright.ops.nvidia import Turn, Wgmma, WgmmaWait
from tilewright.ops.roles import Arrive, Roles, WaitBarrier
from tilewright.targets.nvidia.choose_mma import GROUP_WARPS

NAME = "alternate_warpgroups"


@compiler_pass(NAME)
def alternate_warpgroups(fn: Function, ctx: PassContext) -> bool:
    """Let warpgroups take turns in loops that start several products at once and compute with the
    results, such as attention's after its rotation, if the number of iterations differs between
    programs.

    Needs: the schedule of products, in roles.  Leaves: the same values. In each iteration a
    warpgroup starts its products in its turn, between a ``take`` and a ``pass``.

    Without turns, warpgroups that compute at the same time also wait for the tensor cores at the
    same time, and stay in step. In loops that are as long in all programs, they leave it by
    themselves.

    In its turn, a warpgroup must not wait for one that waits for its turn. All have the same
    iterations. Copies that are waited for go to slots that were released in earlier iterations. If
    warps share operands, a barrier of all before the loop completes that, so that none is needed
    within a turn.
    """
    if ctx.gpu.warps <= GROUP_WARPS:
        return False
    changed = False
    for roles in [op for op in fn.walk() if isinstance(op, Roles)]:
        loops = [op for op in roles.walk() if isinstance(op, For) and _varies(op)]
        taken = [(loop, products) for loop in loops if (products := _started_at_once(loop))]
        for loop, (first, *_, last) in taken:
            _hoist_pure(first, last)
            if any(_is_shared_by_threads(op) for op in products):
                insert_before(Barrier(), loop)
            insert_before(Turn("take"), first)
            insert_after(Turn("pass"), last)
            ctx.did(NAME, "warpgroups take turns at starting products", first.loc)
        if taken:
            assert roles.compute.first is not None
            insert_before(Turn("begin"), roles.compute.first)
            ctx.count("alternating", len(taken))
            changed = True
    return changed


def _varies(loop: For) -> bool:
    """Whether the bounds of a loop depend on the program."""
    return not all(map(is_launch_invariant, (loop.start, loop.stop, loop.step)))


def _hoist_pure(first: Op, last: Op) -> None:
    """Hoist computations between products above the first one. They do not depend on the products,
    whose results cannot be used before the wait."""
    assert first.parent is not None
    for op in [op for op in _between(first, last) if op.pure]:
        op.remove()
        first.parent.insert_before(op, first)


def _started_at_once(loop: For) -> Sequence[Wgmma]:
    """All products of a loop, if there are several, the loop computes with their results, and
    neither they nor ops with effects between them wait for a product or for other computing
    warps."""
    products = [op for op in loop.body if isinstance(op, Wgmma)]
    inner = set(loop.walk())
    if len(products) < 2 or sum(isinstance(op, Wgmma) for op in inner) > len(products):
        return ()
    if any(isinstance(op, CopyAsync) for op in inner) or not any(map(_is_computed_with, inner)):
        return ()
    buffers = [v for op in products for v in op.operands if isinstance(v.type, Shared)]
    if any(whole_buffer(buffer).op in inner for buffer in buffers):
        return ()
    between = _between(products[0], products[-1])
    if not all(op.pure or isinstance(op, Wgmma | WaitBarrier | Arrive) for op in between):
        return ()
    return products


def _between(first: Op, last: Op) -> Iterator[Op]:
    op = first.next
    while op is not None and op is not last:
        yield op
        op = op.next


def _is_shared_by_threads(product: Wgmma) -> bool:
    """Whether threads have written an operand to shared memory."""
    buffers = [v for v in product.operands if isinstance(v.type, Shared)]
    return not all(
        isinstance(whole_buffer(buffer).op, Allocate | AllocateRing) for buffer in buffers
    )


def _is_computed_with(wait: Op) -> bool:
    """Whether an op waits for products, and the iteration uses their results, other than to carry
    them on."""
    return isinstance(wait, WgmmaWait) and any(
        not user.terminator and not isinstance(user, Wgmma)
        for result in wait.results
        for user in result.users
    )
