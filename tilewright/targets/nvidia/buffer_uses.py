"""Uses of buffers in shared memory, and of values loaded from them, up to products."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.core import Op, Value
from tilewright.ops.gpu import ConvertLayout, Fetch, PermuteBuffer, Share
from tilewright.ops.view import View


def _keeps_order(op: Op) -> bool:
    """Whether an op that uses registers stays in its order with arrivals."""
    return op.in_flight or isinstance(op, Share)


def goes_to_products(value: Value) -> bool:
    """Whether a product or a store to a buffer uses each element of a value, through arithmetic."""
    return _is_only_for_products(value) or bool(_products_of(value))


def _is_only_for_products(value: Value) -> bool:
    """Whether a value is used only by products and buffers."""
    return all(
        _keeps_order(op) or (op.pure and not op.regions and not op.terminator)
        for op in uses_of(value)
    )


def _products_of(value: Value) -> list[Op]:
    """The products and stores to buffers that use each element of a value through arithmetic on
    elements, as that of biases of scores, whose maximum is used, too."""
    found: list[Op] = []
    seen: set[Op] = set()
    pending: list[Op] = list(value.users)
    while pending:
        op = pending.pop()
        if op in seen:
            continue
        seen.add(op)
        if _keeps_order(op):
            found.append(op)
        elif _keeps_elements(op):
            pending += op.results[0].users
    return found


def _keeps_elements(op: Op) -> bool:
    """Whether the result of an op depends on each element of its operands."""
    if isinstance(op, View):
        return op.moves_all
    return isinstance(op, ConvertLayout) or (op.elementwise and op.pure and not op.regions)


def is_published(fetch: Fetch) -> bool:
    """Whether a buffer that products read is written with values computed from loaded elements. The
    threads publish it by the fence that their loads require before tensor copies."""
    shares = [op for op in uses_of(fetch.result) if isinstance(op, Share)]
    return any(user.in_flight for share in shares for user in buffer_users(share.result))


def buffer_users(buffer: Value) -> Iterator[Op]:
    """The ops that use a buffer, directly or through views."""
    for user in buffer.users:
        if isinstance(user, PermuteBuffer):
            yield from buffer_users(user.results[0])
        else:
            yield user


def uses_of(value: Value) -> list[Op]:
    """The ops that use a value, directly or through arithmetic, up to products and stores to
    buffers."""
    found: dict[Op, None] = {}
    pending: list[Op] = list(value.users)
    while pending:
        op = pending.pop()
        if op in found:
            continue
        found[op] = None
        if op.pure and not _keeps_order(op):
            pending += [user for result in op.results for user in result.users]
    return list(found)


def readers(buffer: Value) -> list[Op]:
    """The ops after which a buffer has been read: for a product, the waits for it; for values
    loaded to registers, their uses, or the products that use each element."""
    found: list[Op] = []
    for user in buffer.users:
        if isinstance(user, PermuteBuffer) or user.in_flight:
            found += readers(user.results[0])
        elif isinstance(user, Fetch) and _is_only_for_products(user.result):
            found += uses_of(user.result)
        elif isinstance(user, Fetch):
            found += _products_of(user.result)
        found.append(user)
    return found
