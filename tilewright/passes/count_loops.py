"""Converts counted `while` loops to `for`.

    i = a                               for k in range(a, b, s):
    while i < b:              →             …k…
        …i…                             i = the value that fails the comparison
        i += s

The bound b and the step s are loop-invariant. For `<=` the bound is larger by 1; for `>` and `>=`
the distance from a is counted: i = a - k. The condition may compute other values besides the
comparison if it has no effects.

A `for` has a trip count that is known before the loop, pointers that it increments have a closed
form, and loads of different iterations can be proven to access different elements. A loop with a
step below 1, or whose counter wraps around, does not terminate unless it happens to reach the
bound; such loops are assumed not to occur, so the pass runs only on kernels that are
differentiated, before differentiation. Linear in the number of ops. Requires: invariants hoisted.
Leaves: unused values for dce, and a carried value that follows the index for canonicalize.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_before
from tilewright.ir.types import DType, is_int
from tilewright.ops.arith import Add, Cmp, Constant, Sub
from tilewright.ops.control import Condition, For, While, Yield

SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class _Counter(NamedTuple):
    """The induction variable of a loop.

    Attributes:
        place: of the counter among the loop-carried values.
        predicate: how the counter compares with `bound` while the loop runs.
        step: what is added to the counter.
        negative: whether it is subtracted.
    """

    place: int
    predicate: str
    bound: Value
    step: Value
    negative: bool


@compiler_pass("count_loops")
def count_loops(fn: Function, ctx: PassContext) -> bool:
    """Replace each `while` that counts by a `for`; see the module docstring."""
    counted = 0
    for loop in reversed([op for op in fn.walk() if isinstance(op, While)]):  # inner ones first
        counter = _counter(loop)
        if counter is not None:
            _replace(loop, counter)
            counted += 1
    ctx.count("counted", counted)
    return counted > 0


def _counter(loop: While) -> _Counter | None:
    """The operands of the condition if it compares an induction variable."""
    end = loop.before.terminator
    assert isinstance(end, Condition)
    test = end.condition.op
    if not isinstance(test, Cmp) or not all(_only_computes(op) for op in loop.before):
        return None
    for value, bound, predicate in (
        (test.lhs, test.rhs, test.predicate),
        (test.rhs, test.lhs, SWAPPED.get(test.predicate, "")),
    ):
        if predicate in SWAPPED and value in loop.before.args and not loop.contains(bound):
            return _with_step(loop, end, value, bound, predicate)
    return None


def _only_computes(op: Op) -> bool:
    return op.terminator or (op.pure and not op.reads_memory and not op.regions)


def _with_step(
    loop: While, end: Condition, value: Value, bound: Value, predicate: str
) -> _Counter | None:
    """The counter, if the body changes it by a step that does not change, towards the bound."""
    type = value.type
    if not isinstance(type, DType) or not is_int(type):
        return None
    counts_down = predicate in ("gt", "ge")
    if counts_down and not type.is_int_signed():
        return None
    after = loop.body.terminator.operands[value.index].op
    if not isinstance(after, Add | Sub):
        return None
    ways = [(after.lhs, after.rhs)] + [(after.rhs, after.lhs)] * isinstance(after, Add)
    for counter, step in ways:
        passed = end.values[counter.index] if counter in loop.body.args else None
        if passed is value and not loop.contains(step):
            return _Counter(value.index, predicate, bound, step, isinstance(after, Sub))
    return None


def _replace(loop: While, counter: _Counter) -> None:
    start = loop.inits[counter.place]
    counts_down = counter.predicate in ("gt", "ge")
    zero = insert_before(Constant(0, start.type), loop).result
    one = insert_before(Constant(1, start.type), loop).result
    step, stop = counter.step, counter.bound
    if counter.negative != counts_down:
        step = insert_before(Sub(zero, step), loop).result
    if counts_down:
        stop = insert_before(Sub(start, stop), loop).result
    if counter.predicate in ("le", "ge"):
        stop = insert_before(Add(stop, one), loop).result
    body = _body(loop, counter.place, start if counts_down else None)
    first = zero if counts_down else start
    new = insert_before(For(first, stop, step, list(loop.inits), 0, 0, (), body), loop)
    at_end = dict(zip(loop.before.args, new.results, strict=True))
    for op in loop.before:
        if not op.terminator:
            insert_before(op.clone(at_end), loop)
    for result, value in zip(loop.results, loop.before.terminator.operands[1:], strict=True):
        result.replace_with(at_end.get(value, value))
    loop.erase()


def _body(loop: While, place: int, start: Value | None) -> Region:
    """The body of the `for`, whose index is the induction variable or, with `start`, the distance
    by which it is below `start`."""
    body = Region([loop.inits[place].type, *(v.type for v in loop.inits)])
    index = body.args[0]
    if start is not None:
        below = Sub(start, index)
        body.append(below)
        index = below.result
    now = dict(zip(loop.before.args, body.args[1:], strict=True))
    now[loop.before.args[place]] = index
    for op in loop.before:
        if not op.terminator:
            body.append(op.clone(now))
    for arg, value in zip(loop.body.args, loop.before.terminator.operands[1:], strict=True):
        now[arg] = now.get(value, value)
    for op in loop.body:
        if not op.terminator:
            body.append(op.clone(now))
    body.append(Yield([now.get(v, v) for v in loop.body.terminator.operands]))
    return body
