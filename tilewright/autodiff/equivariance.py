"""Equivariance analysis: the effect on each value of replacing a maximum by another number.

Online softmax subtracts a running maximum m from its exponents, and divides by a sum of such
exponentials at the end. Its results do not depend on m. This analysis proves it, for
`running_maxima.py`, which finds the maxima and the loops, and for modules that load stored results
instead (`residuals.py`, `softmax_results.py`, `saved.py`). If m is replaced by m + c, for any
number c, a value changes in one of these ways:

    inv          not at all
    plus(a)      by the summand a c:         m itself, log of a sum of exponentials
    times(a)     by the factor exp(a c):     exp(x - m) has a = -1

An iteration of the loop has two such numbers, for the maximum before it ("old") and after it
("new"), so that coefficients are linear forms in *symbols*. A maximum may be a tile, with another
number c in each lane: a symbol therefore says which axis of a value runs along which axis of the
maximum. m[:, None] - m[None, :] has two symbols, and the equivariance of a sum along an axis is
known only if no symbol runs along it.

The maximum of values that change differently is a new symbol, on which results must not depend
either. The constants 0 and -inf change in several ways: `ZERO` by any factor, and `MINUS_INFINITY`
by any summand. An unknown equivariance is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.base.record import field, record
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.index_map import Along
from tilewright.ir.types import Type, is_float, shape_of
from tilewright.ops import arith
from tilewright.ops import math as mathematics
from tilewright.ops.control import For, If
from tilewright.ops.dot import Dot
from tilewright.ops.memory import Load
from tilewright.ops.reduce import Reduce, simple_combine
from tilewright.ops.view import View

Axes = tuple["int | None", ...]


class Symbol(NamedTuple):
    """A number for each lane of a maximum, as the lanes of a value have it.

    Attributes:
        name: of the maximum.
        axes: for each axis of the value, the axis of the maximum along it; None for no axis.
    """

    name: str
    axes: Axes


Form = Mapping[Symbol, float]
"""A linear form: coefficients by symbol, without zeros."""

TOLERANCE = 1e-9


@record
class Equivariance:
    """How a value changes; see the module's docstring.

    Attributes:
        kind: "inv", "plus", "times", "zero" or "minus infinity".
        form: the coefficients of the symbols, for "plus" and "times".
    """

    kind: str
    form: Form = field(default_factory=dict[Symbol, float])

    @property
    def fixed(self) -> bool:
        """Whether the value does not change."""
        return self.kind in ("inv", "zero", "minus infinity")

    def agrees(self, other: Equivariance) -> bool:
        """Whether the equivariances are the same up to rounding."""
        if self.kind != other.kind:
            return False
        return not _sum(self.form, other.form, -1.0)


INV = Equivariance("inv")
ZERO = Equivariance("zero")
MINUS_INFINITY = Equivariance("minus infinity")


def plus(form: Form) -> Equivariance:
    return Equivariance("plus", form) if form else INV


def times(form: Form) -> Equivariance:
    return Equivariance("times", form) if form else INV


def symbol(name: str, type: Type) -> Symbol:
    """The symbol of a maximum of this type itself. No axis of length 1 is tracked, such as that of
    a row's maximum kept as a tile of one column."""
    axes = enumerate(shape_of(type))
    return Symbol(name, tuple(axis if length > 1 else None for axis, length in axes))


def _sum(a: Form, b: Form, factor: float = 1.0) -> Form:
    total = dict(a)
    for key, coefficient in b.items():
        total[key] = total.get(key, 0.0) + factor * coefficient
    return {key: c for key, c in total.items() if abs(c) >= TOLERANCE}


def _scaled(form: Form, factor: float) -> Form:
    return _sum({}, form, factor)


class InconsistentError(Exception):
    """A loop carries a value that changes differently from iteration to iteration."""


class Equivariances:
    """The equivariances of a function's values.

    Args:
        given: those that are known, of maxima and of what loops carry.

    Attributes:
        maxima: the values that have a symbol of their own, besides those that are given.
    """

    def __init__(self, given: Mapping[Value, Equivariance]) -> None:
        self._known: dict[Value, Equivariance | None] = dict(given)
        self.maxima: list[Value] = []

    def of(self, value: Value) -> Equivariance | None:
        """The equivariance of a value; None if it is unknown.

        Raises:
            InconsistentError: it depends on a value that a loop carries, and whose equivariance is
                not the same in all iterations.
        """
        if value not in self._known:
            owner = value.owner
            if isinstance(owner, Region):
                self._known[value] = self._argument(value, owner)
            else:
                self._known[value] = self._result(owner, value)
        return self._known[value]

    def is_fixed(self, value: Value) -> bool:
        """Whether a value does not change with the maximum.

        Raises:
            InconsistentError: see `of`.
        """
        found = self.of(value)
        return found is not None and found.fixed

    def is_known_fixed(self, value: Value) -> bool:
        """Whether it is known that a value does not change with the maximum."""
        try:
            return self.is_fixed(value)
        except InconsistentError:
            return False

    def _argument(self, value: Value, region: Region) -> Equivariance | None:
        loop = region.parent
        if loop is None or (isinstance(loop, For) and value.index == 0):
            return INV
        if not isinstance(loop, For):
            return self._of_region(loop)
        # The equivariance of what the loop starts with, which the iterations must keep.
        found = self.of(loop.inits[value.index - 1])
        if found is None or not found.fixed:
            raise InconsistentError
        self._known[value] = INV
        if not self.is_fixed(loop.body.terminator.operands[value.index - 1]):
            raise InconsistentError
        return INV

    def _result(self, op: Op, value: Value) -> Equivariance | None:
        if isinstance(op, If):
            if not self.is_fixed(op.condition):
                return None
            ends = [self.of(r.terminator.operands[value.index]) for r in op.regions]
            return joined(*ends)
        if isinstance(op, For):
            return self.of(op.body.args[value.index + 1])
        if isinstance(op, arith.Cmp):
            return INV if self._compares_equally(op) else None
        if is_maximum(op) and is_float(value.type):
            return self._maximum(op)
        rule = _RULES.get(type(op))
        if rule is not None and is_float(value.type):
            equivariances = [self.of(v) for v in op.operands]
            if any(w is None for w in equivariances):
                return None
            return rule(op, equivariances)
        if isinstance(op, View | arith.Cast) and len(op.operands) == 1 and is_float(value.type):
            (operand,) = op.operands
            return viewed(op, self.of(operand))
        return self._of_region(op)

    def _maximum(self, op: Op) -> Equivariance | None:
        equivariances = [self.of(v) for v in op.operands]
        if any(w is None for w in equivariances):
            return None
        found = _RULES[type(op)](op, equivariances)
        if found is None and any(w is not None and w.kind == "plus" for w in equivariances):
            (result,) = op.results
            self.maxima.append(result)
            return plus({symbol(f"maximum {len(self.maxima)}", result.type): 1.0})
        return found

    def _compares_equally(self, op: arith.Cmp) -> bool:
        """Whether the result of a comparison does not change: both sides change alike."""
        a, b = self.of(op.lhs), self.of(op.rhs)
        if a is None or b is None:
            return False
        return (a.fixed and b.fixed) or a.agrees(b)

    def _of_region(self, op: Op) -> Equivariance | None:
        """The equivariance of an op without a rule: all values that it uses must be invariant."""
        inside = {v for inner in op.walk() for v in inner.results}
        inside.update(a for inner in op.walk() for r in inner.regions for a in r.args)
        used = [v for inner in op.walk() for v in inner.operands if v not in inside]
        return INV if all(map(self.is_fixed, used)) else None


def is_maximum(op: Op) -> bool:
    """Whether an op is the maximum of two values, or of a row."""
    if isinstance(op, Reduce):
        return isinstance(simple_combine(op), arith.Max)
    return isinstance(op, arith.Max)


def joined(a: Equivariance | None, b: Equivariance | None) -> Equivariance | None:
    """The equivariance of a value that is one of two, or of the sum of two factors' values."""
    if a is None or b is None:
        return None
    if a.agrees(b):
        return a
    for one, other in ((a, b), (b, a)):
        if one == ZERO and other.kind in ("inv", "times"):
            return other
        if one == MINUS_INFINITY and other.kind in ("inv", "plus"):
            return other
    return None


def viewed(op: Op, equivariance: Equivariance | None) -> Equivariance | None:
    """The equivariance of a value whose elements are moved, or converted."""
    if equivariance is None or equivariance.fixed:
        return equivariance
    form: Form = {}
    for (name, axes), coefficient in equivariance.form.items():
        moved = _moved(op, axes)
        if moved is None:
            return None
        form = _sum(form, {Symbol(name, moved): coefficient})
    return plus(form) if equivariance.kind == "plus" else times(form)


def _moved(op: Op, axes: Axes) -> Axes | None:
    """For each axis of a result the axis of a maximum along it; None if there is no such thing."""
    if op.elementwise:
        return axes
    (found, *others) = op.index_maps()
    if found is None or others or not found.aligned:
        return None
    moved: list[int | None] = [None] * len(found.target)
    for axis, extent, term in zip(axes, found.source, found.axes, strict=True):
        if isinstance(term, Along):
            moved[term.axis] = axis
        elif extent != 1:
            return None
    return tuple(moved)


def _without(equivariance: Equivariance, axis: int) -> Equivariance | None:
    """The equivariance of a combination along an axis, along which the factors must be the same."""
    if any(key.axes[axis] is not None for key in equivariance.form):
        return None
    form = {
        Symbol(name, (*axes[:axis], *axes[axis + 1 :])): c
        for (name, axes), c in equivariance.form.items()
    }
    return Equivariance(equivariance.kind, form)


Rule = Callable[[Any, list[Any]], "Equivariance | None"]
_RULES: dict[type[Op], Rule] = {}


def _rule(*classes: type[Op]) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(classes, rule))
        return rule

    return register


@_rule(arith.Constant)
def _constant(op: arith.Constant, equivariances: list[Equivariance]) -> Equivariance:
    return {0.0: ZERO, -math.inf: MINUS_INFINITY}.get(float(op.value), INV)


@_rule(arith.Add, arith.Sub)
def _add(op: arith.Add | arith.Sub, equivariances: list[Equivariance]) -> Equivariance | None:
    a, b = equivariances
    sign = 1.0 if isinstance(op, arith.Add) else -1.0
    if MINUS_INFINITY in (a, b):
        return MINUS_INFINITY if b != MINUS_INFINITY and b.kind != "times" else None
    if "times" in (a.kind, b.kind):
        return joined(a, b)
    return plus(_sum(a.form, b.form, sign))


@_rule(arith.Mul, arith.Div)
def _mul(op: arith.Mul | arith.Div, equivariances: list[Equivariance]) -> Equivariance | None:
    a, b = equivariances
    is_product = isinstance(op, arith.Mul)
    if MINUS_INFINITY in (a, b):
        return None
    if a == ZERO or (b == ZERO and is_product):
        return ZERO
    if "plus" in (a.kind, b.kind):
        summand, factor = (a, op.rhs) if a.kind == "plus" else (b, op.lhs)
        number = arith.constant_value(factor)
        if not isinstance(number, float) or (summand is b and not is_product) or not number:
            return None
        return plus(_scaled(summand.form, number if is_product else 1 / number))
    return times(_sum(a.form, b.form, 1.0 if is_product else -1.0))


@_rule(arith.Neg)
def _neg(op: arith.Neg, equivariances: list[Equivariance]) -> Equivariance | None:
    (a,) = equivariances
    if a == MINUS_INFINITY:
        return None
    return plus(_scaled(a.form, -1.0)) if a.kind == "plus" else a


@_rule(mathematics.Exp, mathematics.Exp2)
def _exp(op: Op, equivariances: list[Equivariance]) -> Equivariance | None:
    (a,) = equivariances
    if a == MINUS_INFINITY:
        return ZERO
    factor = 1.0 if isinstance(op, mathematics.Exp) else math.log(2)
    return times(_scaled(a.form, factor)) if a.kind == "plus" else INV if a.fixed else None


@_rule(mathematics.Log, mathematics.Log2)
def _log(op: Op, equivariances: list[Equivariance]) -> Equivariance | None:
    (a,) = equivariances
    factor = 1.0 if isinstance(op, mathematics.Log) else 1 / math.log(2)
    if a == ZERO:
        return MINUS_INFINITY
    return plus(_scaled(a.form, factor)) if a.kind == "times" else INV if a.fixed else None


@_rule(arith.Max, arith.Min)
def _extremum(op: Op, equivariances: list[Equivariance]) -> Equivariance | None:
    return joined(*equivariances)


@_rule(arith.Select)
def _select(op: arith.Select, equivariances: list[Equivariance]) -> Equivariance | None:
    condition, a, b = equivariances
    return joined(a, b) if condition.fixed else None


@_rule(Reduce)
def _reduce(op: Reduce, equivariances: list[Equivariance]) -> Equivariance | None:
    (a,) = equivariances if len(equivariances) == 1 else (None,)
    combine = simple_combine(op)
    if a is not None and isinstance(combine, arith.Add) and a.kind != "plus":
        return _without(a, op.axis) if a != MINUS_INFINITY else None
    if a is not None and isinstance(combine, arith.Max | arith.Min):
        return _without(a, op.axis)
    return INV if all(w.fixed for w in equivariances) else None


@_rule(Dot)
def _dot(op: Dot, equivariances: list[Equivariance]) -> Equivariance | None:
    a, b, acc = equivariances
    if ZERO in (a, b):
        return acc
    if any(w.kind in ("plus", "minus infinity") for w in equivariances):
        return None
    if any(key.axes[-1] is not None for key in a.form):
        return None  # it runs along the axis that is summed
    if any(key.axes[-2] is not None for key in b.form):
        return None
    return joined(times(_sum(a.form, b.form)), acc)


@_rule(Load)
def _load(op: Load, equivariances: list[Equivariance]) -> Equivariance | None:
    return INV if all(w.fixed for w in equivariances) else None
