"""Running maxima, and maxima of rows, that do not affect results computed with them.

Softmax subtracts a maximum from its exponents, so that they do not overflow, and divides by a sum
of such exponentials. It is invariant to shifts: any other number in place of the maximum gives the
same result. The derivative with respect to the maximum is therefore zero, and the maximum is
treated as a constant (`loops.activity`).

An online softmax carries a running maximum, and rescales its accumulators when that grows:

    for k in range(n):
        largest = max(m, max(x[k]))
        total = total * exp(m - largest) + sum(exp(x[k] - largest))
        m = largest

`total` is not a sum: it is multiplied in each iteration. But with one fixed number in place of all
maxima, the factor is 1 and `total` is a sum. If no result depends on the maxima, that number may be
the final maximum, for which the final `total` is the one that the kernel computes. Then the adjoint
of each term `exp(x[k] - m)` is that of the final total, as in other sums (`summed_loops.py`).

All of this is required:

- The stores of results, their addresses and masks, and all control flow do not change with the
  maxima (`equivariance.py`), each of which may be replaced by a different number.
- The carried value is a sum except for factors that are 1 if both maxima are equal.
- Values summed along an axis have the same maximum in all lanes along it.
- The initial value does not depend on inputs; or it is the final value of a loop of the same kind,
  and has no other use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tilewright.analysis.pointers import base_of
from tilewright.autodiff.chains import adds_to, is_only_updated
from tilewright.autodiff.equivariance import (
    INV,
    ZERO,
    Equivariance,
    Equivariances,
    Form,
    InconsistentError,
    Symbol,
    is_maximum,
    plus,
    symbol,
    times,
)
from tilewright.autodiff.memo import once_for_each_value
from tilewright.base.record import record
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import is_float
from tilewright.ops import arith
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.control import For, If, While
from tilewright.ops.math import Exp, Exp2
from tilewright.ops.memory import Store
from tilewright.ops.reduce import Reduce
from tilewright.ops.view import View


@record(eq=False, frozen=False)
class RunningMaximum:
    """The running maximum of a loop.

    Attributes:
        loop: the loop.
        index: that of the maximum among the values that the loop carries.
        maximum: what the loop yields for it.
        states: by index, the coefficients of each carried value that is scaled by the maximum.
        before: that of the loop whose results this one starts with.
        after: that of the loop that starts with the results of this one.
    """

    loop: For
    index: int
    maximum: Value
    states: dict[int, Form]
    before: RunningMaximum | None = None
    after: RunningMaximum | None = None

    @property
    def replaced(self) -> tuple[Value, Value]:
        """The maximum before and in an iteration."""
        return self.loop.body.args[self.index + 1], self.maximum

    @property
    def final(self) -> Value:
        """The maximum at the end of the last of the loops."""
        return self.loop.results[self.index] if self.after is None else self.after.final


@record(frozen=False)
class FreeMaxima:
    """The maxima of a function on which no result depends.

    Attributes:
        loops: the running maxima by loop.
        constants: the maxima, which count as constants.
    """

    loops: dict[For, RunningMaximum]
    constants: set[Value]


def find_free_maxima(fn: Function, outputs: Collection[Value]) -> FreeMaxima:
    """The maxima on which no result depends.

    Args:
        outputs: the arguments that point to results.
    """
    constants: set[Value] = set()
    found: dict[For, RunningMaximum] = {}
    for op in fn.walk():
        if isinstance(op, For):
            running = _running_maximum(op, found)
            if running is not None:
                found[op] = running
    loops: dict[For, RunningMaximum] = {}
    for chain in _chains(found):
        free = free_maxima(fn, outputs, _equivariances_of(chain))
        if free is not None:
            constants.update(free)
            for running in chain:
                if running.before is not None:
                    running.before.after = running
                loops[running.loop] = running
                constants |= {*running.replaced, running.loop.results[running.index]}
    for op in fn.walk():
        if isinstance(op, Reduce) and is_maximum(op) and is_float(op.results[0].type):
            (maximum,) = op.results
            free = free_maxima(fn, outputs, {maximum: _symbol("c", maximum)})
            if free is not None:
                constants.update((maximum, *free))
    return FreeMaxima(loops, constants)


def _chains(found: Mapping[For, RunningMaximum]) -> list[list[RunningMaximum]]:
    chains: dict[RunningMaximum, list[RunningMaximum]] = {}
    for running in found.values():
        chain = chains.pop(running.before, []) if running.before is not None else []
        chains[running] = [*chain, running]
    return list(chains.values())


# -- one loop -------------------------------------------------------------------------------------


def _running_maximum(loop: For, earlier: Mapping[For, RunningMaximum]) -> RunningMaximum | None:
    end = loop.body.terminator
    for index, maximum in enumerate(end.operands):
        argument = loop.body.args[index + 1]
        op = maximum.op
        if isinstance(op, arith.Max) and argument in op.operands and is_float(maximum.type):
            running = _with_states(loop, index, maximum, earlier)
            if running is not None:
                return running
    return None


def _with_states(
    loop: For, index: int, maximum: Value, earlier: Mapping[For, RunningMaximum]
) -> RunningMaximum | None:
    """A running maximum, if all that the loop carries either does not change with it, or is a sum
    that is scaled by it."""
    args, end = loop.body.args[1:], loop.body.terminator
    given = {args[index]: _symbol("old", maximum), maximum: _symbol("new", maximum)}
    others = [i for i in range(len(args)) if i != index and is_float(args[i].type)]
    states: dict[int, Form] = {}
    try:
        trial = Equivariances({**given, **{args[i]: ZERO for i in others}})
        for i in others:
            equivariance = trial.of(end.operands[i])
            if equivariance is None or equivariance.kind == "plus":
                return None
            if equivariance.kind == "times":
                if any(key.name != "new" for key in equivariance.form):
                    return None
                states[i] = equivariance.form
        scaled = {args[i]: _scaled(form, "old") for i, form in states.items()}
        equivariances = Equivariances({**given, **scaled})
        for i, form in states.items():
            equivariance = equivariances.of(end.operands[i])
            if equivariance is None or not equivariance.agrees(times(form)):
                return None
    except InconsistentError:
        return None
    running = RunningMaximum(loop, index, maximum, states)
    if not all(_is_scaled_sum(running, i) for i in states):
        return None
    running.before = _continued(running, earlier)
    return running


def _is_scaled_sum(running: RunningMaximum, index: int) -> bool:
    """Whether a carried value is only added to, and multiplied by factors that are 1 if the
    maximum does not change."""

    def update(user: Op, value: Value) -> Value | None:
        return user.results[0] if _keeps(user, value, running.replaced) else None

    return is_only_updated(running.loop, index, update)


def _keeps(user: Op, value: Value, maxima: tuple[Value, Value]) -> bool:
    match user:
        case arith.Mul(lhs, rhs):
            return _is_one(rhs if lhs is value else lhs, maxima)
        case arith.Div(lhs, rhs):
            return lhs is value and _is_one(rhs, maxima)
        case _:
            return adds_to(user, value)


@once_for_each_value
def _is_one(value: Value, maxima: tuple[Value, Value]) -> bool:
    """Whether a value is 1 if both maxima are the same number."""
    match value.op:
        case Exp(src) | Exp2(src):
            return _is_zero(src, maxima)
        case View(src) | arith.Cast(src):
            return _is_one(src, maxima)
        case arith.Mul(lhs, rhs):
            return _is_one(lhs, maxima) and _is_one(rhs, maxima)
        case _:
            return False


@once_for_each_value
def _is_zero(value: Value, maxima: tuple[Value, Value]) -> bool:
    match value.op:
        case arith.Sub(lhs, rhs):
            return _are_equal(lhs, rhs, maxima)
        case View(src) | arith.Cast(src) | arith.Neg(src):
            return _is_zero(src, maxima)
        case arith.Mul(lhs, rhs):
            return _is_zero(lhs, maxima) or _is_zero(rhs, maxima)
        case _:
            return False


@once_for_each_value
def _are_equal(a: Value, b: Value, maxima: tuple[Value, Value]) -> bool:
    """Whether two values are computed alike from the maxima."""
    if a is b or (a in maxima and b in maxima):
        return True
    left, right = a.op, b.op
    if left is None or right is None or a in maxima or b in maxima:
        return False
    return (
        type(left) is type(right)
        and (left.elementwise or isinstance(left, View))
        and a.type == b.type
        and a.index == b.index
        and left.attributes == right.attributes
        and all(
            _are_equal(x, y, maxima) for x, y in zip(left.operands, right.operands, strict=True)
        )
    )


def _continued(
    running: RunningMaximum, earlier: Mapping[For, RunningMaximum]
) -> RunningMaximum | None:
    """The maximum whose final values are the initial values of all states of a loop, and are not
    used otherwise."""
    loop = running.loop
    before = loop.inits[running.index].owner
    found = earlier.get(before) if isinstance(before, For) else None
    if found is None or before is loop or loop.inits[running.index].index != found.index:
        return None
    places = {found.index: running.index}
    for i, form in running.states.items():
        init = loop.inits[i]
        if init.owner is not before or init.index not in found.states or init.index in places:
            return None
        if not times(form).agrees(times(found.states[init.index])):
            return None
        places[init.index] = i
    if set(places) != {found.index, *found.states}:
        return None
    for place in places:
        result = found.loop.results[place]
        if list(result.users) != [loop] or result.users[loop] != 1:
            return None
    return found


# -- the whole function ---------------------------------------------------------------------------


def _symbol(name: str, maximum: Value) -> Equivariance:
    return plus({symbol(name, maximum.type): 1.0})


def _scaled(form: Form, name: str) -> Equivariance:
    return times({Symbol(name, axes): c for (_, axes), c in form.items()})


def _equivariances_of(chain: list[RunningMaximum]) -> dict[Value, Equivariance]:
    """The equivariances of the values of a chain of loops."""
    given: dict[Value, Equivariance] = {}
    for running in chain:
        args, results = running.loop.body.args[1:], running.loop.results
        old, new = running.replaced
        given[old], given[new] = _symbol("old", new), _symbol("new", new)
        given[results[running.index]] = _symbol("c", new)
        for i, form in running.states.items():
            given[args[i]] = _scaled(form, "old")
            given[results[i]] = _scaled(form, "c")
    return given


def equivariances_of_results(running: RunningMaximum) -> Equivariances:
    """The equivariances of values after the last of a chain of loops with respect to its
    maximum."""
    return Equivariances(_equivariances_of([running]))


def free_maxima(
    fn: Function, outputs: Collection[Value], given: Mapping[Value, Equivariance]
) -> list[Value] | None:
    """The further maxima on which no result depends, provided that no result and no control flow
    depends on the given ones; None otherwise."""
    equivariances = Equivariances(given)
    try:
        unchanged = all(_is_unchanged(op, outputs, equivariances) for op in fn.walk())
    except InconsistentError:
        return None
    return equivariances.maxima if unchanged else None


def _is_unchanged(op: Op, outputs: Collection[Value], equivariances: Equivariances) -> bool:
    match op:
        case Store() | AtomicRMW():
            changes = base_of(op.ptr) in outputs
            return not changes or all(equivariances.is_fixed(v) for v in op.operands)
        case If():
            return equivariances.is_fixed(op.condition)
        case For():
            return all(equivariances.is_fixed(v) for v in (op.start, op.stop, op.step))
        case While():
            return all(equivariances.of(v) == INV for v in op.before.args)
        case _:
            return True
