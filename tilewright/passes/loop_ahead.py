"""Work of a loop's later iterations, done in earlier ones: what the passes that do so share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.analysis.pointers import may_overlap
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.types import I32, I64, Type, shape_of
from tilewright.layout.linear import LinearLayout
from tilewright.ops.arith import Add, And, Cast, Cmp, Constant, Mul
from tilewright.ops.atomic import Writing
from tilewright.ops.control import For
from tilewright.ops.memory import Load, Store
from tilewright.ops.shape import Splat


class Ahead(NamedTuple):
    """What must be computed of an iteration to know some of its values.

    Attributes:
        carried: indices of the carried values that they depend on.
        body: the ops that compute them, and what these carried values become, in order.
    """

    carried: list[int]
    body: list[Op]


def ahead_of(loop: For, roots: Sequence[Value]) -> Ahead | None:
    """What `roots` depend on; None if that includes reading memory or a nested loop."""
    carried: set[int] = set()
    needed: set[Op] = set()
    pending = list(roots)
    while pending:
        value = pending.pop()
        if value.owner is loop.body:
            if value.index and value.index - 1 not in carried:
                carried.add(value.index - 1)
                pending.append(loop.body.terminator.operands[value.index - 1])
        elif value.region is loop.body and value.op is not None and value.op not in needed:
            if value.op.regions or not value.op.pure:
                return None
            needed.add(value.op)
            pending += value.op.operands
    return Ahead(sorted(carried), [op for op in loop.body if op in needed])


def stays(fn: Function, loop: For, pointer: Value) -> bool:
    """Whether what a pointer points to is the same in all iterations, as far as is known."""
    for op in loop.body.walk():
        if isinstance(op, Store | Writing):
            if may_overlap(fn, pointer, op.ptr):
                return False
        elif op.writes_memory and not op.local:
            return False
    return True


class LoopRewrite:
    """Replaces a loop by one that carries the state of an iteration ahead.

    Ops are inserted before `anchor`, with the loop's location unless they have one.
    """

    def __init__(self, loop: For, ahead: Ahead) -> None:
        self.old = loop
        self.ahead = ahead
        self.anchor: Op = loop

    def add(self, op: Op) -> Op:
        region = self.anchor.parent
        assert region is not None
        if op.loc is None:
            op.loc = self.old.loc
        region.insert_before(op, self.anchor)
        return op

    def value(self, op: Op, layout: LinearLayout | None = None) -> Value:
        self.add(op)
        op.results[0].layout = layout
        return op.results[0]

    def number(self, value: int, type: Type = I32) -> Value:
        return self.value(Constant(value, type))

    def inside(self, index: Value, iterations: int) -> Value:
        """Whether there is an iteration so many after the one with this index.

        In 64 bits, as the index of one that there is not may be beyond its type.
        """
        index, step, stop = (
            v if v.type == I64 else self.value(Cast(v, I64, "rtne"))
            for v in (index, self.old.step, self.old.stop)
        )
        further = self.value(Mul(step, self.number(iterations, I64)))
        return self.value(Cmp(self.value(Add(index, further)), stop, "lt"))

    def compute(
        self, index: Value, values: Sequence[Value]
    ) -> tuple[dict[Value, Value], list[Value]]:
        """The ops ahead of an iteration, and the carried values ahead of the next one.

        Args:
            index: of the iteration.
            values: its carried values that `ahead` names.

        Returns:
            what stands for each value of the old loop, and the carried values that follow.
        """
        args = self.old.body.args
        mapping: dict[Value, Value] = {args[0]: index}
        for i, value in zip(self.ahead.carried, values, strict=True):
            mapping[args[i + 1]] = value
        for op in self.ahead.body:
            self.add(op.clone(mapping))
        yielded = self.old.body.terminator.operands
        return mapping, [mapping.get(yielded[i], yielded[i]) for i in self.ahead.carried]

    def mask(self, load: Load, mapping: dict[Value, Value], inside: Value) -> Value:
        """A load's mask, false everywhere where there is no such iteration."""
        layout = load.ptr.layout
        every = self.value(Splat(inside, shape_of(load.ptr.type)), layout)
        if load.mask is None:
            return every
        return self.value(And(mapping.get(load.mask, load.mask), every), layout)

    def body_with(self, extra: Sequence[Value]) -> tuple[Region, list[Value]]:
        """An empty body that takes more carried values, and the arguments for these."""
        old = self.old.body
        body = Region([v.type for v in (*old.args, *extra)])
        for before, after in zip((*old.args, *extra), body.args, strict=True):
            after.layout = before.layout
        return body, body.args[len(old.args) :]

    def replace(self, extra: Sequence[Value], body: Region) -> None:
        """Put the new loop, which carries more, in place of the old one."""
        old = self.old
        self.anchor = old
        new = For(
            old.start,
            old.stop,
            old.step,
            [*old.inits, *extra],
            num_stages=old.num_stages,
            unroll=old.unroll,
            hints=old.hints,
            body=body,
        )
        self.add(new)
        for arg, result in zip(body.args[1:], new.results, strict=True):
            result.layout = arg.layout
        for before, after in zip(old.results, new.results, strict=False):
            before.replace_with(after)
