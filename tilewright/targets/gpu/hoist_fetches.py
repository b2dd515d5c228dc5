"""Hoists loads from loop-invariant buffers to registers if shared memory does not suffice.

    s = share(q)                     s = share(q)
    …                                q' = fetch(s)
    loop:                            …
        q' = fetch(s)         =>     loop:
        product(q', …)                   product(q', …)

A loop reloads a loop-invariant operand from shared memory in each iteration, which saves registers.
If it is in registers instead, the loop and operands after it can use its shared memory.

Input: laid-out IR from which loop-invariant ops are hoisted. The allocator determines the memory;
functions whose buffers fit without overlap are not analysed further.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import Shared
from tilewright.lowering.simt.shared_memory import allocated_bytes, unshared_bytes
from tilewright.ops.control import For, While
from tilewright.ops.gpu import Fetch, PermuteBuffer, Share

NAME = "hoist_fetches"


@compiler_pass(NAME, required=True)
def hoist_fetches(fn: Function, ctx: PassContext) -> bool:
    """Hoist fetches of buffers that are written before a loop, those of the largest buffer first,
    until shared memory suffices; see the module docstring."""
    limit = ctx.gpu.shared_bytes
    if unshared_bytes(fn) <= limit:
        return False
    shares = [op for op in fn.walk() if isinstance(op, Share)]
    hoisted = 0
    for share in sorted(shares, key=_bytes_of, reverse=True):
        fetches = _fetches_in_loops(share)
        if not fetches:
            continue
        if allocated_bytes(fn) <= limit:
            break
        for fetch in fetches:
            buffer = fetch.src.op
            fetch.remove()
            assert buffer is not None
            assert buffer.parent is not None
            buffer.parent.insert_after(fetch, buffer)
        hoisted += len(fetches)
    ctx.count("hoisted", hoisted)
    return hoisted > 0


def _fetches_in_loops(share: Share) -> list[Fetch]:
    """The fetches of a buffer in loops that do not write it; none if anything else in a loop reads
    it, which needs the memory anyway."""
    result: list[Fetch] = []
    for user in _readers(share.result):
        loop = _loop_after(share, user)
        if loop is None:
            continue
        if not isinstance(user, Fetch) or loop.contains(user.src):
            return []
        result.append(user)
    return result


def _readers(buffer: Value) -> Iterator[Op]:
    """The ops that read a buffer, by views of it, too."""
    for user in buffer.users:
        if isinstance(user, PermuteBuffer):
            yield from _readers(user.result)
        else:
            yield user


def _loop_after(share: Share, op: Op) -> Op | None:
    """The outermost loop around an op that does not contain the write of a buffer."""
    around = [at for at in op.ancestors() if isinstance(at, For | While)]
    return next((at for at in reversed(around) if not at.contains(share.result)), None)


def _bytes_of(share: Share) -> int:
    kind = share.result.type
    assert isinstance(kind, Shared)
    return kind.nbytes
