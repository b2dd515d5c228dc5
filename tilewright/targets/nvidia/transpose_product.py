"""Computes a product as the transpose of the product of its transposed operands."""

from __future__ import annotations

from itertools import compress

from tilewright.ir.core import Value
from tilewright.ir.rewriter import insert_before
from tilewright.ops.control import For
from tilewright.ops.dot import Dot
from tilewright.ops.shape import Permute
from tilewright.rewrites.control import remove_args, set_yields, spread, take_region
from tilewright.targets.nvidia.rewrite_products import replace

SWAPPED = (1, 0)


def transpose_product(op: Dot) -> Dot:
    """Replace acc + lhs @ rhs by the transpose of acc.T + rhs.T @ lhs.T; returns the latter.

    A loop that carries only the sum of such products carries it transposed. All this moves no data:
    permuted tiles have permuted layouts.
    """
    left, right = (_transposed(op, value) for value in (op.rhs, op.lhs))
    acc = insert_before(Permute(op.acc, SWAPPED), op)
    made = insert_before(Dot(left, right, acc.results[0], op.precision, op.max_imprecise), op)
    back = insert_before(Permute(made.result, SWAPPED), op)
    replace(op, back.results[0])
    _carry_transposed(acc, back)
    return made


def _transposed(op: Dot, value: Value) -> Value:
    if isinstance(value.op, Permute) and value.op.order == SWAPPED:
        return value.op.src
    return insert_before(Permute(value, SWAPPED), op).results[0]


def _carry_transposed(acc: Permute, back: Permute) -> None:
    """Change a loop that carries `back` to `acc`, and has no other use of either, to carry the
    value between them, and transpose it before and after the loop."""
    loop = _loop_that_carries(back.result, acc)
    if loop is None:
        return
    body, position = loop.body, acc.src.index - 1
    keep = [i != position for i in range(len(loop.inits))]
    acc.result.replace_with(body.add_arg(acc.result.type))
    acc.erase()
    set_yields(body, [*compress(body.terminator.operands, keep), back.src])
    back.erase()
    body = take_region(loop, 0)
    remove_args(body, [True, *keep, True])
    init = insert_before(Permute(loop.inits[position], SWAPPED), loop)
    inits = [*compress(loop.inits, keep), init.result]
    new = insert_before(loop.rebuilt(inits, body), loop)
    after = insert_before(Permute(new.results[-1], SWAPPED), loop)
    results = spread(new.results, keep, [after.result] * len(keep))
    for old, value in zip(loop.results, results, strict=True):
        old.replace_with(value)
    loop.erase()


def _loop_that_carries(value: Value, user: Permute) -> For | None:
    """The loop that uses a value only to carry it to the next iteration, to this user alone."""
    arg, body = user.src, user.parent
    loop = user.parent_op()
    if body is None or not isinstance(loop, For) or arg.owner is not body:
        return None
    end = body.terminator
    alone = list(arg.users.items()) == [(user, 1)] and list(value.users.items()) == [(end, 1)]
    return loop if alone and end.operands[arg.index - 1] is value else None
