"""The gradient of accumulating loops; see `loops.py`."""

from __future__ import annotations

from tilewright.autodiff.loops import carried_kinds, recomputed
from tilewright.autodiff.running_maxima import RunningMaximum
from tilewright.autodiff.walk import Walk
from tilewright.ir.core import Region
from tilewright.ir.types import derivative_type
from tilewright.ops.control import For, Yield


def reverse_sums(walk: Walk, op: For, running: RunningMaximum | None) -> None:
    """Emit the gradient of an accumulating loop: each iteration takes the adjoint of the sum, in
    any order. Other carried values are recomputed in the same loop."""
    emit, plain = walk.emit, walk.replay.all_plain
    ends = {
        i: y
        for i in carried_kinds(op, walk.active, running)
        if (y := walk.adjoint(op.results[i])) is not None
    }
    outer = walk.outer_values(op)
    rest = recomputed(op, walk.active, running)
    final = walk.replay.plain(running.final) if running is not None else None
    start, stop, step = plain((op.start, op.stop, op.step))
    inits = plain(op.inits[i] for i in rest)
    # Sums continue those of loops that were reversed before, in the same registers.
    totals = [walk.take(v) or emit.zeros(derivative_type(v.type)) for v in outer]
    body = Region([op.start.type, *[v.type for v in (*inits, *totals)]])
    with walk.replay.scope(op.body, body) as scope, walk.adjoints() as table:
        scope.values[op.body.args[0]] = body.args[0]
        if running is not None and final is not None:
            scope.values.update(dict.fromkeys(running.replaced, final))
        for i, arg in zip(rest, body.args[1:], strict=False):
            scope.values[op.body.args[i + 1]] = arg
        for i, y in ends.items():
            walk.give(op.body.terminator.operands[i], y)
        walk.region(op.body)
        following = plain(op.body.terminator.operands[i] for i in rest)
        for value, before in zip(outer, body.args[1 + len(rest) :], strict=True):
            y = table.get(value)
            following.append(before if y is None else emit.add(before, emit.guarded(y)))
        emit.builder.insert(Yield(following))
    made = For(
        start, stop, step, [*inits, *totals],
        num_stages=op.num_stages, unroll=0, hints=(), body=body,
    )  # fmt: skip
    results = emit.builder.insert(made).results
    for value, y in zip(outer, results[len(rest) :], strict=True):
        walk.give(value, emit.zero_with_itself(y))
    for i, y in ends.items():
        walk.give(op.inits[i], y)
