"""Removal of what nobody needs, through loops."""

from __future__ import annotations

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.control import For, If, While
from tilewright.rewrites.control import drop_yields, rebuilt_for, rebuilt_if


@compiler_pass("dce")
def remove_dead_code(fn: Function, ctx: PassContext) -> bool:
    """Remove ops without effects whose results are not needed, and carried values likewise.

    Needs: verified SSA.  Leaves: every result of a `for` or `if` needed by something with an
    effect, also where carried values only feed each other round a loop.

    Ops with effects are needed; so is what they use, what controls them, and so on backwards. A
    yielded value is needed only where the carried value or result that it becomes is.
    """
    needed = _Needed(fn)
    removed = _sweep(fn.body, needed)
    ctx.count("removed", removed)
    return removed > 0


class _Needed:
    """The ops and values that something with an effect depends on."""

    def __init__(self, fn: Function) -> None:
        self.ops: set[Op] = set()
        self.values: set[Value] = set()
        self._queue: list[Value] = []
        for op in fn.walk():
            if op.writes() and not op.regions:
                self._need_op(op)
        for value in fn.body.terminator.operands:
            self._need(value)
        while self._queue:
            self._follow(self._queue.pop())

    def _need(self, value: Value) -> None:
        if value not in self.values:
            self.values.add(value)
            self._queue.append(value)

    def _need_op(self, op: Op) -> None:
        """The op runs: it needs its operands, and the ops around it what decides whether."""
        if op in self.ops:
            return
        self.ops.add(op)
        match op:
            case For():
                for bound in (op.start, op.stop, op.step):
                    self._need(bound)
            case If():
                self._need(op.condition)
            case While():
                # Whether it goes on depends on all that is carried through the condition.
                for value in (*op.inits, *op.before.terminator.operands):
                    self._need(value)
                for value in op.body.terminator.operands:
                    self._need(value)
            case _:
                for value in op.operands:
                    self._need(value)
                for region in op.regions:
                    self._need_region(region)
        around = op.parent_op()
        if around is not None:
            self._need_op(around)

    def _need_region(self, region: Region) -> None:
        for value in region.terminator.operands:
            self._need(value)

    def _follow(self, value: Value) -> None:
        owner = value.owner
        if isinstance(owner, Op):
            self._need_op(owner)
            if isinstance(owner, If):
                for region in owner.regions:
                    self._need(region.terminator.operands[value.index])
            elif isinstance(owner, For):
                self._need_carried(owner, value.index)
            return
        holder = owner.parent
        if isinstance(holder, For):
            self._need_op(holder)
            if value.index > 0:
                self._need_carried(holder, value.index - 1)
        elif holder is not None:
            self._need_op(holder)

    def _need_carried(self, loop: For, index: int) -> None:
        self._need(loop.inits[index])
        self._need(loop.body.terminator.operands[index])
        self._need(loop.body.args[index + 1])


def _sweep(region: Region, needed: _Needed) -> int:
    """Remove what is dead in the region, users before what they use; returns how much."""
    removed = 0
    for op in region.reversed():
        if op.terminator:
            continue
        if op in needed.ops:
            removed += _sweep_within(op, needed)
        else:
            op.erase()
            removed += 1
    return removed


def _sweep_within(op: Op, needed: _Needed) -> int:
    match op:
        case For():
            keep = [arg in needed.values for arg in op.body.args[1:]]
        case If():
            keep = [result in needed.values for result in op.results]
        case _:
            keep = []
    if not all(keep):
        for region in op.regions:
            drop_yields(region, keep)
    removed = sum([_sweep(region, needed) for region in op.regions])
    if all(keep):
        return removed
    assert isinstance(op, For | If)
    assert op.parent is not None
    old = [r for r, kept in zip(op.results, keep, strict=True) if kept]
    new = rebuilt_for(op, keep) if isinstance(op, For) else rebuilt_if(op)
    new.loc = op.loc
    op.parent.insert_before(new, op)
    for result, value in zip(old, new.results, strict=True):
        value.layout = result.layout
        result.replace_with(value)
    op.erase()
    return removed + keep.count(False)
