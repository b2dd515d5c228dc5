"""Aggressive dead code elimination, including loop-carried values and results of `if`.

Input and output: verified SSA. An op is live if it has effects, or if a live op depends on it
through operands or control flow; everything else is removed. A yielded value is live only if the
loop-carried value or the result that it defines is, so that values that only depend on themselves
through a loop are removed too. A mark phase over a worklist and a sweep, linear in the number of
ops and operands.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_before
from tilewright.ops.control import For, If, While
from tilewright.rewrites.control import drop_yields, rebuilt_for, rebuilt_if


@compiler_pass("dce", required=True)
def remove_dead_code(fn: Function, ctx: PassContext) -> bool:
    """Remove dead ops, loop-carried values and results; see the module docstring."""
    live = _Liveness(fn)
    removed = _sweep(fn.body, live)
    ctx.count("removed", removed)
    return removed > 0


class _Liveness:
    """The live ops and values of a function."""

    def __init__(self, fn: Function) -> None:
        self.ops: set[Op] = set()
        self.values: set[Value] = set()
        self._queue: list[Value] = []
        for op in fn.walk():
            if op.writes() and not op.regions:
                self._mark_op(op)
        for value in fn.body.terminator.operands:
            self._mark(value)
        while self._queue:
            self._follow(self._queue.pop())

    def _mark(self, value: Value) -> None:
        if value not in self.values:
            self.values.add(value)
            self._queue.append(value)

    def _mark_op(self, op: Op) -> None:
        """Mark an op as executed, with its operands, the enclosing ops, and their conditions."""
        if op in self.ops:
            return
        self.ops.add(op)
        match op:
            case For():
                for bound in (op.start, op.stop, op.step):
                    self._mark(bound)
            case If():
                self._mark(op.condition)
            case While():
                # The condition may depend on every loop-carried value.
                for value in (*op.inits, *op.before.terminator.operands):
                    self._mark(value)
                for value in op.body.terminator.operands:
                    self._mark(value)
            case _:
                for value in op.operands:
                    self._mark(value)
                for region in op.regions:
                    self._mark_region(region)
        parent = op.parent_op()
        if parent is not None:
            self._mark_op(parent)

    def _mark_region(self, region: Region) -> None:
        for value in region.terminator.operands:
            self._mark(value)

    def _follow(self, value: Value) -> None:
        owner = value.owner
        if isinstance(owner, Op):
            self._mark_op(owner)
            if isinstance(owner, If):
                for region in owner.regions:
                    self._mark(region.terminator.operands[value.index])
            elif isinstance(owner, For):
                self._mark_carried(owner, value.index)
            return
        parent = owner.parent
        if isinstance(parent, For):
            self._mark_op(parent)
            if value.index > 0:
                self._mark_carried(parent, value.index - 1)
        elif parent is not None:
            self._mark_op(parent)

    def _mark_carried(self, loop: For, index: int) -> None:
        self._mark(loop.inits[index])
        self._mark(loop.body.terminator.operands[index])
        self._mark(loop.body.args[index + 1])


def _sweep(region: Region, live: _Liveness) -> int:
    """Remove the dead ops of the region, users before definitions; returns the number removed."""
    removed = 0
    for op in region.reversed():
        if op.terminator:
            continue
        if op in live.ops:
            removed += _sweep_within(op, live)
        else:
            op.erase()
            removed += 1
    return removed


def _sweep_within(op: Op, live: _Liveness) -> int:
    match op:
        case For():
            keep = [arg in live.values for arg in op.body.args[1:]]
        case If():
            keep = [result in live.values for result in op.results]
        case _:
            keep = []
    if not all(keep):
        for region in op.regions:
            drop_yields(region, keep)
    removed = sum([_sweep(region, live) for region in op.regions])
    if all(keep):
        return removed
    assert isinstance(op, For | If)
    old = [r for r, kept in zip(op.results, keep, strict=True) if kept]
    new = rebuilt_for(op, keep) if isinstance(op, For) else rebuilt_if(op)
    insert_before(new, op)
    for result, value in zip(old, new.results, strict=True):
        value.layout = result.layout
        result.replace_with(value)
    op.erase()
    return removed + keep.count(False)
