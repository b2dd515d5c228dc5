"""Completes reductions that a loop accumulates after the loop.

    for …:                                      for …:
        acc = acc + reduce(x, axis)       →         part = part + (x reduced within each thread)
                                                acc = acc + reduce(part, axis)

The shuffles and barriers of a reduction are then executed once, and not in each iteration.

Input: laid-out IR. A loop-carried value qualifies if its only use combines it with a reduction of
the loop, by the op of the reduction's combine region: a sum of integers, fp32 or fp64, a maximum, a
minimum, or a bitwise op. A sum of floats may be scaled down before: `acc * exp(m - max(m, …))`, as
the sums of a softmax are when a greater maximum is found. Output: the loop carries one partial
result per thread and row instead. Exact except for sums of floats, whose order in reductions is
unspecified. Linear in the number of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from math import inf, nan, prod
from typing import Any, NamedTuple

from tilewright.analysis.maxima import is_at_most_zero
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import FP32, FP64, DType, Tile, dtype_of, element_of, shape_of
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout, log2
from tilewright.ops.arith import Add, And, Cmp, Constant, Max, Min, Mul, Or, Select, Xor
from tilewright.ops.control import For, Yield
from tilewright.ops.gpu import ConvertLayout, unconverted
from tilewright.ops.math import Exp, Exp2
from tilewright.ops.reduce import Reduce, simple_combine
from tilewright.ops.shape import Arange, Reshape, Splat, broadcast_along
from tilewright.passes.layout_rules import derived_demands, operand_layout, result_layout
from tilewright.passes.software_pipelining import LoopRewrite, Slice

NAME = "defer_reductions"
MOST_REGISTERS = 16
"""The most registers of partial results per thread, if the accumulator has fewer."""


class Deferred(NamedTuple):
    """A reduction that a loop accumulates.

    Attributes:
        position: of the accumulator among the loop-carried values.
        accumulator: the operand of `combine` that depends on it.
        factor: what it is multiplied by before, if anything.
        combine: the op that combines the accumulator with the result of the reduction.
        reduce: the reduction.
        removed: these ops, and the conversions of layouts around them.
    """

    position: int
    accumulator: Value
    factor: Value | None
    combine: Op
    reduce: Reduce
    removed: list[Op]


@compiler_pass(NAME)
def defer_reductions(fn: Function, ctx: PassContext) -> bool:
    """Complete reductions that a loop accumulates after the loop; see the module docstring.

    Needs: laid-out IR.  Leaves: accumulators that the loop no longer changes, for dce.
    """
    loops = [op for op in fn.walk() if isinstance(op, For)]
    changed = False
    while loops:
        loop = loops.pop()
        found = [d for i in range(len(loop.inits)) if (d := _deferred(loop, i)) is not None]
        if not found:
            continue
        for deferred in found:
            ctx.did(NAME, "completed once, after the loop", deferred.reduce.loc)
        # Its operand may be a reduction as well, as in sum(sum(x, 1), 0).
        loops.append(_Defer(loop, found).rewrite())
        ctx.count("deferred", len(found))
        changed = True
    return changed


# -- analysis -------------------------------------------------------------------------------------


def accumulated(fn: Function) -> set[Op]:
    """The reductions that loops accumulate such that they can be completed after the loop, if their
    layouts permit it."""
    result: set[Op] = set()
    for loop in fn.walk():
        if isinstance(loop, For):
            each = (_accumulated(loop, i) for i in range(len(loop.inits)))
            result.update(deferred.reduce for deferred in each if deferred is not None)
    return result


def partial_results(layout: LinearLayout, axis: int) -> int:
    """The number of partial results of a reduction per thread."""
    return layout.in_size(REGISTER) >> len(_register_bits(layout, axis))


def _deferred(loop: For, index: int) -> Deferred | None:
    deferred = _accumulated(loop, index)
    return deferred if deferred is not None and _pays(deferred) else None


def _accumulated(loop: For, index: int) -> Deferred | None:
    carried = _conversions(loop.body.args[index + 1])
    factor = _factor(carried[-1])
    if factor is not None:
        (product,) = carried[-1].users
        carried += _conversions(product.results[0])
    *converted, accumulator = carried
    combine = _only_user(accumulator)
    if combine is None or combine.parent is not loop.body or type(combine) not in _IDENTITIES:
        return None
    *after, result = _conversions(combine.results[0])
    end = loop.body.terminator
    if _only_user(result) is not end or end.operands[index] is not result:
        return None
    others = [v for v in combine.operands if v is not accumulator]
    source = others[0].op if len(others) == 1 else None
    between: list[Op] = []
    while isinstance(source, ConvertLayout) and _only_user(source.result) is not None:
        between.append(source)
        source = source.src.op
    if not isinstance(source, Reduce) or not _matches(source, combine, loop):
        return None
    if factor is not None and not _may_scale(factor, source):
        return None
    views = [user for value in (*converted, *after) if (user := _only_user(value)) is not None]
    removed = [*views, *between, combine, source]
    return Deferred(index, accumulator, factor, combine, source, removed)


def _factor(value: Value) -> Value | None:
    """The other operand of the product that is a value's only use, if there is one."""
    product = _only_user(value)
    if not isinstance(product, Mul):
        return None
    return product.rhs if product.lhs is value else product.lhs


def _may_scale(factor: Value, reduce: Reduce) -> bool:
    """Whether the partial sums may be multiplied by a factor instead of their sum: it lies within 0
    to 1, or is NaN, so that none overflows."""
    return dtype_of(reduce.results[0].type).is_floating() and _is_shrinking(factor)


def _is_shrinking(factor: Value) -> bool:
    """Whether a value is exp(x - max(x, …))."""
    power = unconverted(factor).op
    return isinstance(power, Exp | Exp2) and is_at_most_zero(power.src)


def _conversions(value: Value) -> list[Value]:
    """The value, and its layout conversions, if these are its only uses."""
    result = [value]
    while isinstance(user := _only_user(result[-1]), ConvertLayout):
        result.append(user.result)
    return result


def _only_user(value: Value) -> Op | None:
    """The op with the only use of a value, if there is one."""
    uses = list(value.users.items())
    return uses[0][0] if len(uses) == 1 and uses[0][1] == 1 else None


def _matches(reduce: Reduce, combine: Op, loop: For) -> bool:
    """Whether the reduction is by the same op, which may be applied in any order."""
    inner = simple_combine(reduce)
    if reduce.parent is not loop.body or _only_user(reduce.results[0]) is None or inner is None:
        return False
    same = type(inner) is type(combine) and all(
        getattr(inner, name) == getattr(combine, name) for name in inner.attr_names
    )
    return same and _is_associative(combine)


def _is_associative(op: Op) -> bool:
    """Whether the op is exact in any order, or a sum of floats of at least 32 bits."""
    element = element_of(op.results[0].type)
    if not isinstance(element, DType) or element.is_bool():
        return False
    if isinstance(op, Add) and element.is_floating():
        return element in (FP32, FP64)
    return not element.is_fp8()


def _pays(deferred: Deferred) -> bool:
    """Whether the reduction is across threads, and partial results take few registers."""
    reduce = deferred.reduce
    layout = reduce.srcs[0].layout
    assert layout is not None
    if not is_across_threads(layout, reduce.axis):
        return False
    carried = deferred.accumulator.layout
    before = carried.in_size(REGISTER) if carried is not None else 1
    return partial_results(layout, reduce.axis) <= max(MOST_REGISTERS, before)


def is_across_threads(layout: LinearLayout, axis: int) -> bool:
    """Whether lanes or warps share the elements along an axis."""
    columns = (*layout.bases(LANE), *layout.bases(WARP))
    return any(_on_axis(layout, axis, column) for column in columns)


def _on_axis(layout: LinearLayout, axis: int, column: int) -> int:
    """The part of a basis along an axis."""
    return layout.coordinates(column)[axis]


def _register_bits(layout: LinearLayout, axis: int) -> set[int]:
    """The bits of the index along an axis that registers alone determine, one each."""
    parts = [_on_axis(layout, axis, column) for column in layout.columns]
    registers = parts[: len(layout.bases(REGISTER))]
    single = {part.bit_length() - 1 for part in registers if part and part & (part - 1) == 0}
    return {bit for bit in single if sum(part >> bit & 1 for part in parts) == 1}


# -- transformation -------------------------------------------------------------------------------


class _Defer(LoopRewrite):
    """The rewrite of one loop, which carries partial results in addition."""

    def __init__(self, loop: For, deferred: Sequence[Deferred]) -> None:
        super().__init__(loop, Slice([], []))
        self.deferred = deferred

    def rewrite(self) -> For:
        """Returns the new loop."""
        within = [self._within_threads(d) for d in self.deferred]
        self.anchor = self.old
        starts = [self._start(d, v) for d, v in zip(self.deferred, within, strict=True)]
        new = self.replace(starts, self._body(starts, within))
        parts = new.results[len(self.old.inits) :]
        for d, part in zip(self.deferred, parts, strict=True):
            result = new.results[d.position]
            result.replace_with(self._converted(self._final(d, part), result.layout))
        self.old.erase()
        return new

    def _start(self, d: Deferred, like: Value) -> Value:
        """The partial results before the first iteration: identities, and the initial value in one
        place if iterations scale it."""
        start = self.value(Constant(_identity(d.combine), like.type), like.layout)
        if d.factor is None:
            return start
        init = self._spread(self.old.inits[d.position], d.reduce, like)
        return self.value(Select(self._is_first(d.reduce, like), init, start), like.layout)

    def _final(self, d: Deferred, part: Value) -> Value:
        """The result of the loop from the partial results."""
        layout = d.combine.results[0].layout
        total = self._converted(self._across_threads(d, part), layout)
        if d.factor is not None:
            return total
        init = self._converted(self.old.inits[d.position], layout)
        mapping = {v: init if v is d.accumulator else total for v in d.combine.operands}
        return self.add(d.combine.clone(mapping)).results[0]

    def _spread(self, value: Value, reduce: Reduce, like: Value) -> Value:
        """A value for each result of a reduction, repeated for its partial results."""
        shape = shape_of(like.type)
        if not isinstance(value.type, Tile):
            return self.value(Splat(value, shape), like.layout)
        axes = [reduce.axis] * len(_shared_extents(reduce))
        ops = _broadcast(value, axes, shape)
        layout = _assign_layouts(ops, like.layout)
        ops[0].set_operand(0, self._converted(value, layout))
        return self._added(ops)

    def _is_first(self, reduce: Reduce, like: Value) -> Value:
        """For each partial result, whether it is the first one of its result."""
        shape, extents = shape_of(like.type), _shared_extents(reduce)
        index = Arange(0, prod(extents))
        zero = Constant(0, index.result.type)
        ops: list[Op] = [Cmp(index.result, zero.result, "eq")]
        if len(extents) > 1:
            ops.append(Reshape(ops[-1].results[0], extents))
        behind = reduce.axis + len(extents)
        axes = [0] * reduce.axis + [behind] * (len(shape) - behind)
        ops += _broadcast(ops[-1].results[0], axes, shape)
        index.result.layout = zero.result.layout = _assign_layouts(ops, like.layout)
        return self._added([index, zero, *ops])

    def _added(self, ops: Sequence[Op]) -> Value:
        """Insert ops; returns the result of the last one."""
        for op in ops:
            self.add(op)
        return ops[-1].results[0]

    def _converted(self, value: Value, layout: LinearLayout | None) -> Value:
        if value.layout == layout:
            return value
        return self.value(ConvertLayout(value), layout)

    def _body(self, starts: Sequence[Value], within: Sequence[Value]) -> Region:
        """The new body, in which the accumulators are unchanged."""
        old = self.old.body
        body, parts = self.body_with(starts)
        mapping = dict(zip(old.args, body.args, strict=False))
        end = Yield([])
        body.append(end)
        self.anchor = end
        removed = {op for d in self.deferred for op in d.removed}
        for op in old:
            if not op.terminator and op not in removed:
                self.add(op.clone(mapping))
        yielded = [mapping.get(v, v) for v in old.terminator.operands]
        for d in self.deferred:
            yielded[d.position] = body.args[d.position + 1]
        later = [
            self._combined(d.combine, self._scaled(d, part, mapping), mapping.get(value, value))
            for d, part, value in zip(self.deferred, parts, within, strict=True)
        ]
        end.add_operands([*yielded, *later])
        end.spans = (len(end.operands),)
        self.anchor = self.old
        return body

    def _scaled(self, d: Deferred, part: Value, mapping: dict[Value, Value]) -> Value:
        """Partial results, multiplied by the factor of the accumulator if it has one."""
        if d.factor is None:
            return part
        factor = self._spread(mapping.get(d.factor, d.factor), d.reduce, part)
        return self.value(Mul(part, factor), part.layout)

    def _combined(self, combine: Op, part: Value, value: Value) -> Value:
        attributes = {name: getattr(combine, name) for name in combine.attr_names}
        make: Any = type(combine)
        op = make(part, value, **attributes)
        op.loc = combine.loc
        return self.value(op, part.layout)

    def _within_threads(self, deferred: Deferred) -> Value:
        """The operand of the reduction, reduced along the bits of the axis that registers
        determine; the remaining bits are an axis for each run of them."""
        reduce, self.anchor = deferred.reduce, deferred.reduce
        (value,) = reduce.srcs
        runs = _runs(reduce)
        if len(runs) > 1:
            value = self._reshaped(value, reduce.axis, 1, [run.extent for run in runs])
        for i, run in reversed(list(enumerate(runs))):
            if run.registers:
                value = self._reduced(value, reduce.axis + i, reduce)
        return value

    def _across_threads(self, deferred: Deferred, part: Value) -> Value:
        """The result of the reduction from the partial results."""
        reduce = deferred.reduce
        rest = _shared_extents(reduce)
        if len(rest) > 1:
            part = self._reshaped(part, reduce.axis, len(rest), [prod(rest)])
        return self._reduced(part, reduce.axis, reduce)

    def _reshaped(self, value: Value, axis: int, count: int, extents: Sequence[int]) -> Value:
        """The value with `count` axes from `axis` on replaced by others."""
        shape = shape_of(value.type)
        op = Reshape(value, (*shape[:axis], *extents, *shape[axis + count :]))
        assert value.layout is not None
        return self.value(op, result_layout(op, value.layout))

    def _reduced(self, value: Value, axis: int, like: Reduce) -> Value:
        op = Reduce([value], axis=axis, combine=like.combine.clone({}))
        op.loc = like.loc
        assert value.layout is not None
        return self.value(op, derived_demands(op, value.layout).results[0])


class _Run(NamedTuple):
    """Successive bits of the index along an axis, all or none of which registers determine."""

    extent: int
    registers: bool


def _runs(reduce: Reduce) -> list[_Run]:
    """The runs of the axis, from the most significant."""
    (source,) = reduce.srcs
    assert source.layout is not None
    own = _register_bits(source.layout, reduce.axis)
    bits = range(log2(shape_of(source.type)[reduce.axis]))
    groups = groupby(reversed(bits), key=lambda bit: bit in own)
    return [_Run(1 << len(list(group)), registers) for registers, group in groups]


def _shared_extents(reduce: Reduce) -> tuple[int, ...]:
    """The extents of the axes of partial results that threads share."""
    return tuple(run.extent for run in _runs(reduce) if not run.registers)


def _broadcast(value: Value, axes: Sequence[int], shape: tuple[int, ...]) -> list[Op]:
    """Ops that insert axes one after the other, and repeat the elements along them."""
    ops: list[Op] = []

    def insert(op: Op) -> Value:
        ops.append(op)
        return op.results[0]

    broadcast_along(insert, value, axes, shape)
    return ops


def _assign_layouts(ops: Sequence[Op], layout: LinearLayout | None) -> LinearLayout | None:
    """Assign layouts to a chain of ops, given that of the last result; returns that of the first
    operand."""
    for op in reversed(ops):
        op.results[0].layout = layout
        assert layout is not None
        layout = operand_layout(op, layout)
    return layout


def _identity(op: Op) -> Any:
    """The value e for which op(e, x) = x for all x, also for -0.0 and NaN."""
    element = element_of(op.results[0].type)
    assert isinstance(element, DType)
    if element.is_floating():
        if isinstance(op, Add):
            return -0.0
        extreme = inf if isinstance(op, Min) else -inf
        return extreme if getattr(op, "propagate_nan", False) else nan
    return _IDENTITIES[type(op)](element)


_IDENTITIES: dict[type[Op], Callable[[DType], int]] = {
    Add: lambda element: 0,
    Or: lambda element: 0,
    Xor: lambda element: 0,
    And: lambda element: element.get_int_max_value() if element.is_int_unsigned() else -1,
    Max: lambda element: element.get_int_min_value(),
    Min: lambda element: element.get_int_max_value(),
}
