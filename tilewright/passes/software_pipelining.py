"""Software pipelining: the parts that `pipeline_loads` and `prefetch_loads` share.

Both start the loads of an iteration in an earlier one. For that, the ops that compute the addresses
of the loads (their backward slice) are duplicated, with their own copy of the loop-carried values,
which runs ahead of the original. This is legal only if the slice is pure, and if the loop does not
write the loaded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tilewright.analysis.pointers import may_overlap
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext
from tilewright.ir.types import (
    I32,
    I64,
    U32,
    U64,
    DType,
    Type,
    dtype_of,
    element_of,
    is_int,
    shape_of,
)
from tilewright.layout.linear import REGISTER, LinearLayout
from tilewright.ops.arith import Add, And, Cast, Cmp, Constant, Mul, Sub, constant_value
from tilewright.ops.atomic import Writing, acquires
from tilewright.ops.control import Barrier, For, While
from tilewright.ops.gpu import Fetch, Share
from tilewright.ops.math import MathFunction
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.shape import Splat
from tilewright.ops.view import View

FUNCTION_WORK = 8  # instructions of an exponential, a logarithm and the like


class Slice(NamedTuple):
    """The backward slice of some values of a loop's body.

    Attributes:
        carried: the indices of the loop-carried values that they depend on.
        body: the ops that compute the values, and the next values of those loop-carried values, in
            program order.
    """

    carried: list[int]
    body: list[Op]


def backward_slice(
    loop: For, roots: Sequence[Value], *, tables_of: Function | None = None
) -> Slice | None:
    """The backward slice of `roots`; None if it is not pure or includes nested regions.

    Args:
        tables_of: the function, if the slice may load integers, such as the numbers of pages, that
            the loop does not write. Each iteration then waits for such a load, unless it is started
            ahead itself (`prefetch_loads`).
    """
    carried: set[int] = set()
    needed: set[Op] = set()
    pending = list(roots)
    writes: LoopWrites | None = None
    while pending:
        value = pending.pop()
        if value.owner is loop.body:
            if value.index and value.index - 1 not in carried:
                carried.add(value.index - 1)
                pending.append(loop.body.terminator.operands[value.index - 1])
        elif value.region is loop.body and value.op is not None and value.op not in needed:
            if value.op.regions:
                return None
            if not value.op.pure:
                if tables_of is None:
                    return None
                writes = writes or LoopWrites(tables_of, loop)
                if not _is_table(value.op, writes):
                    return None
            needed.add(value.op)
            pending += value.op.operands
    return Slice(sorted(carried), [op for op in loop.body if op in needed])


def _is_table(op: Op, writes: LoopWrites) -> bool:
    """Whether an op loads integers from memory that a loop does not write."""
    if not isinstance(op, Load) or op.volatile or not is_int(op.result.type):
        return False
    return writes.leave(op.ptr)


def stages_of(loop: For, ctx: PassContext) -> int:
    """The number of iterations in flight at once: of the loop, or of the kernel."""
    return loop.num_stages or ctx.options.get("num_stages", 1)


def is_unrolled(loop: For, ctx: PassContext) -> bool:
    """Whether an assembler unrolls a loop, by the elements that a thread computes in an iteration,
    and the registers that it sets before masked loads into them. Loops with more than accesses and
    elementwise ops have other uses for registers."""
    work = 0
    for op in loop.body:
        if not (op.elementwise or op.terminator or isinstance(op, View | Load | Store)):
            return False
        if op.elementwise and not isinstance(op, AddPtr):
            each = FUNCTION_WORK if isinstance(op, MathFunction) else 1
            work += sum(
                v.layout.in_size(REGISTER) * each for v in op.results if v.layout is not None
            )
        elif isinstance(op, Load) and op.mask is not None and op.result.layout is not None:
            size = element_of(op.result.type).nbytes_in_memory
            work += -(-op.result.layout.in_size(REGISTER) * size // 4)
    return bool(ctx.gpu.unrolled_work) and work <= ctx.gpu.unrolled_work


def shares_of(loop: For) -> list[Share]:
    """The values shared in each iteration of a loop, except those read from another buffer."""
    return [
        op
        for op in loop.body
        if isinstance(op, Share) and op.src.region is loop.body and not isinstance(op.src.op, Fetch)
    ]


class LoopWrites:
    """The memory that the ops of a loop may write, for queries about several pointers."""

    def __init__(self, fn: Function, loop: For) -> None:
        self.fn = fn
        self.anything = False
        inside = list(loop.body.walk())
        for op in inside:
            if isinstance(op, Store | Writing):
                # After an acquire of a flag the memory may hold what another program has written.
                self.anything |= isinstance(op, Writing) and acquires(op)
            else:
                self.anything |= op.is_write() and not op.local
        # A barrier makes writes visible that another thread did before the loop.
        synchronizes = any(isinstance(op, Barrier) for op in inside)
        writing = up_to_end_of(fn, loop) if synchronizes else inside
        self.pointers = [op.ptr for op in writing if isinstance(op, Store | Writing)]

    def leave(self, pointer: Value) -> bool:
        """Whether no op of the loop may write the memory to which a pointer, or a tile of pointers,
        points, nor make such a write by another thread before the loop visible."""
        return not self.anything and not any(
            may_overlap(self.fn, pointer, written) for written in self.pointers
        )


def is_unmodified(fn: Function, loop: For, pointer: Value) -> bool:
    """See `LoopWrites.leave`."""
    return LoopWrites(fn, loop).leave(pointer)


def up_to_end_of(fn: Function, op: Op) -> Iterator[Op]:
    """The ops that may run before an op, or before those within it: the ones before it and within
    it, and within the loops around it."""
    *_, last = outermost(op).walk()
    for before in fn.walk():
        yield before
        if before is last:
            return


def outermost(op: Op) -> Op:
    """The outermost loop around an op; itself if there is none."""
    *_, last = (op, *(around for around in op.ancestors() if isinstance(around, For | While)))
    return last


class LoopRewrite:
    """Replaces a loop by one that also carries the state of a later iteration.

    Ops are inserted before `anchor`, with the location of the loop unless they have one.

    Args:
        loop: the loop to replace.
        ahead: the slice that is computed for later iterations.
    """

    def __init__(self, loop: For, ahead: Slice) -> None:
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

    def first_iterations(
        self, count: int, start: Callable[[int, Value, Sequence[Value]], Sequence[Value]]
    ) -> list[Value]:
        """Issue the advanced loads of the first `count` iterations.

        Args:
            start: emits it for an iteration, given its number, index and carried values, and
                returns the carried values of the next one.

        Returns:
            the index and the carried values of the iteration after them.
        """
        index = self.old.start
        values: Sequence[Value] = [self.old.inits[i] for i in self.ahead.carried]
        for number in range(count):
            values = start(number, index, values)
            index = self.value(Add(index, self.old.step))
        return [index, *values]

    def exists(self, index: Value, iterations: int) -> Value:
        """An i1: whether the iteration `iterations` after the one with this index exists.

        The index may overflow its type past the last iteration. So narrow types are computed in 64
        bits; of wide ones, the distance to the end, which is exact as an unsigned number.
        """
        stop = self.old.stop
        if dtype_of(index.type).primitive_bitwidth == 64:
            begun = self.value(Cmp(index, stop, "lt"))
            return self.value(And(begun, self.exists_after(index, iterations)))
        index, step, stop = (self.cast(v, I64) for v in (index, self.old.step, stop))
        further = self.value(Mul(step, self.number(iterations, I64)))
        found = self.value(Cmp(self.value(Add(index, further)), stop, "lt"))
        if constant_value(self.old.step) is not None:
            return found
        # A loop whose step is negative does not begin, though the sum may be below `stop`.
        return self.value(And(self.value(Cmp(index, stop, "lt")), found))

    def exists_after(self, index: Value, iterations: int) -> Value:
        """The same where the iteration with this index exists.

        The distance to the end is exact as an unsigned number of the index's type: of 32 bits, one
        subtraction and a comparison, which the loop's own test shares. Steps are positive.
        """
        step = constant_value(self.old.step)
        bits = dtype_of(index.type).primitive_bitwidth
        if bits < 32:
            return self.exists(index, iterations)
        unsigned = U32 if bits == 32 else U64
        left = self.cast(self.value(Sub(self.old.stop, index)), unsigned)
        if isinstance(step, int) and step * iterations < 1 << bits:
            return self.value(Cmp(left, self.number(step * iterations, unsigned), "gt"))
        further = self.value(Mul(self.cast(self.old.step, U64), self.number(iterations, U64)))
        return self.value(Cmp(self.cast(left, U64), further, "gt"))

    def cast(self, value: Value, to: DType) -> Value:
        return value if value.type == to else self.value(Cast(value, to, "rtne"))

    def compute(
        self,
        index: Value,
        values: Sequence[Value],
        exists: Value,
        known: Mapping[Value, Value] | None = None,
    ) -> tuple[dict[Value, Value], list[Value]]:
        """Insert the ops of the slice for one iteration.

        Args:
            index: the induction variable of the iteration.
            values: the loop-carried values of the iteration, in the order of `ahead.carried`.
            exists: whether there is such an iteration; else nothing is loaded.
            known: values of that iteration, by results of ops of the slice.

        Returns:
            the mapping from values of the old loop to those of that iteration, and the loop-carried
            values of the iteration after it.
        """
        args = self.old.body.args
        mapping: dict[Value, Value] = {args[0]: index, **(known or {})}
        for i, value in zip(self.ahead.carried, values, strict=True):
            mapping[args[i + 1]] = value
        for op in self.ahead.body:
            if op.results and op.results[0] in mapping:
                continue
            if isinstance(op, Load):
                mask = self.mask(op, mapping, exists)
                mapping[op.result] = self.value(moved(op, mapping, mask), op.result.layout)
            else:
                self.add(op.clone(mapping))
        yielded = self.old.body.terminator.operands
        return mapping, [mapping.get(yielded[i], yielded[i]) for i in self.ahead.carried]

    def mask(self, load: Load, mapping: dict[Value, Value], exists: Value) -> Value:
        """The mask of a load, and false in all lanes unless `exists`."""
        layout, shape = load.ptr.layout, shape_of(load.ptr.type)
        lanes = self.value(Splat(exists, shape), layout) if shape else exists
        if load.mask is None:
            return lanes
        return self.value(And(mapping.get(load.mask, load.mask), lanes), layout)

    def body_with(self, extra: Sequence[Value]) -> tuple[Region, list[Value]]:
        """An empty body with additional loop-carried values, and the arguments for these."""
        old = self.old.body
        body = Region([v.type for v in (*old.args, *extra)])
        for before, after in zip((*old.args, *extra), body.args, strict=True):
            after.layout = before.layout
        return body, body.args[len(old.args) :]

    def replace(self, extra: Sequence[Value], body: Region) -> For:
        """Replace the old loop by one with additional loop-carried values and the new body, which
        is returned."""
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
        return new


def moved(load: Load, mapping: Mapping[Value, Value], mask: Value | None) -> Load:
    """A load of another iteration, whose values are in the mapping."""
    other = load.other and mapping.get(load.other, load.other)
    early = Load(mapping.get(load.ptr, load.ptr), mask, other, load.cache, load.evict, False)
    early.loc = load.loc
    return early
