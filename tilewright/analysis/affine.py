"""The affine form of a tile of integers or pointers: its elements as a function of their indices.

The element at (i0, i1, …) of a tile is

    start + strides[0] * i0 + strides[1] * i1 + … + the sum of coefficient * piece

`start` and the strides are polynomials over the scalars of the kernel. A *piece* stands for what is
not affine: a remainder, a quotient, a loaded index. It says along which axes it changes, so that
the form still holds all that is known along the others. Every tile has a form; of one of which
nothing is known it is that one piece.

    rows = pid * 64 + tl.arange(0, 64)              # start pid*64, strides (1,)
    x + rows[:, None] * stride + cols[None, :]      # base x, start pid*64*stride, (stride, 1)
    (rows % M)[:, None] * stride + cols[None, :]    # strides (0, 1), pieces stride * (rows % M)

**Exactness.** Arithmetic of n bits wraps, and the form does not. The form is congruent to the
tile modulo 2^n, n the bits of its elements (64 for pointers, in elements): sums, differences and
products keep that. When numbers of n bits are extended to more, this is not enough: there the
number itself must be the form's. Where ranges prove that it is (a number of n bits that is
congruent to one in the range of its type is that one), nothing is assumed; else the tile that was
extended is listed in `assumed`. So a consumer decides: code that must be right for all numbers
takes forms with `assumed == ()`; who may take the kernel to stay within its arrays takes all.

Scalars are not taken apart: the product `pid * 64` is one unknown, which a consumer may reuse. To
compare indices, `AffineForms(through_scalars=True)` looks through sums and products of scalars too,
and gives what a `for` counts or moves by equal steps in terms of its `Iteration`.

Forms are kept for each value, and found without recursion: the time is linear in the number of ops,
as the size of a form is bounded (`MAX_TERMS`, `MAX_PIECES`); what is larger becomes a piece. A pass
that changes the IR makes a new `AffineForms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tilewright.analysis.affine_form import (
    MAX_TERMS,
    Affine,
    Piece,
    product_of,
    sum_of,
    viewed,
)
from tilewright.analysis.polynomial import ONE, ZERO, Atom, Iteration, Polynomial, Range
from tilewright.analysis.ranges import type_range, value_range
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import Pointer, Tile, element_of, is_int, is_pointer, shape_of
from tilewright.ops import arith, memory, shape
from tilewright.ops.control import For
from tilewright.ops.view import View

MAX_COEFFICIENT = 2**64
MAX_PIECES = 4
MAX_ASSUMED = 8
MAX_STEPS = 8  # sums in a loop's body by which a carried value moves
_TRIPS: Range = (0, 2**63 - 1)


class AffineForms:
    """The forms of the values of a function, each found once.

    Args:
        through_scalars: whether scalars are taken apart, as tiles are.
    """

    def __init__(self, *, through_scalars: bool = False) -> None:
        self._through_scalars = through_scalars
        self._forms: dict[Value, Affine] = {}
        self._strides: dict[Value, tuple[int | None, ...]] = {}
        self._ranges: dict[Value, Range] = {}
        self._steps: dict[Value, tuple[Value, list[tuple[int, Value]]] | None] = {}

    def of(self, value: Value) -> Affine:
        """The form of a scalar or a tile of integers or pointers.

        Of anything else (a tile of floats) it says along which axes elements may differ.
        """
        forms = self._forms
        known = forms.get(value)
        if known is not None:
            return known
        stack = [value]
        while stack:
            last = stack[-1]
            if last in forms:
                stack.pop()
            elif missing := [v for v in self._needs(last) if v not in forms]:
                stack.extend(missing)
            else:
                stack.pop()
                forms[last] = self._bounded(last, self._form(last))
        return forms[value]

    def constant_strides(self, value: Value) -> tuple[int | None, ...]:
        """Per axis, the difference of neighbours along it (in elements, of pointers), narrow
        arithmetic taken not to wrap; None if it is not a constant.

        Args:
            value: a tile of integers or pointers, or a scalar.
        """
        known = self._strides.get(value)
        if known is None:
            form = self.of(value)
            found = [form.stride(axis) for axis in range(len(form.strides))]
            known = tuple(None if s is None else s.constant for s in found)
            self._strides[value] = known
        return known

    def exactly(self, value: Value) -> Affine:
        """The form of a value as an integer, rather than modulo a power of 2.

        `value` is among its `assumed` unless ranges prove that nothing wraps.
        """
        form = self.of(value)
        if value in form.assumed or _loop_counted_by(value):
            return form
        low, high = self.bounds(form, shape_of(value.type))
        least, most = type_range(value)
        if least <= low and high <= most:
            return form
        return replace(form, assumed=(*form.assumed, value))

    def range_of(self, atom: Atom) -> Range:
        """Bounds of an unknown, both inclusive."""
        if isinstance(atom, Iteration):
            return _TRIPS
        found = self._ranges.get(atom)
        if found is None:
            found = self._ranges[atom] = value_range(atom)
        return found

    def moved_by(self, carried: Value) -> tuple[Value, list[tuple[int, Value]]] | None:
        """How a `for` moves a value that it carries: its first value, and what is added to it in
        each iteration (1) or subtracted (-1), none of which changes in the loop; None where it is
        not moved in this way."""
        if carried not in self._steps:
            self._steps[carried] = _steps_of(carried)
        return self._steps[carried]

    # -- one value --------------------------------------------------------------------------------

    def _needs(self, value: Value) -> Sequence[Value]:
        """What the form of a value is made of."""
        op = value.op
        if isinstance(value.type, Tile):
            if op is None:
                return self._parts_of_carried(value)
            if _has_rule(op):
                return op.operands
            return [v for v in op.operands if isinstance(v.type, Tile)] if op.elementwise else ()
        if not self._through_scalars:
            moves = isinstance(op, memory.AddPtr | arith.Hint) and is_pointer(value.type)
            return op.operands[:1] if op is not None and moves else ()
        if op is None:
            loop = _loop_counted_by(value)
            return (loop.start, loop.step) if loop else self._parts_of_carried(value)
        return op.operands if op.elementwise and _has_rule(op) else ()

    def _parts_of_carried(self, value: Value) -> Sequence[Value]:
        moved = self.moved_by(value)
        return (moved[0], *(step for _, step in moved[1])) if moved else ()

    def _form(self, value: Value) -> Affine:
        op = value.op
        if not isinstance(value.type, Tile):
            return self._of_scalar(value)
        if op is None:
            return self._of_carried(value)
        found = self._by_rule(value, op) if _counts(value) or not op.elementwise else None
        return found or self.opaque(value)

    def _by_rule(self, value: Value, op: Op) -> Affine | None:
        if isinstance(op, View):
            index = op.index_maps(value.index)[0]
            return viewed(self.of(op.src), index) if index is not None else None
        rule = _RULES.get(type(op))
        return rule(self, op) if rule is not None else None

    def _of_scalar(self, value: Value) -> Affine:
        op = value.op
        if is_pointer(value.type):
            if isinstance(op, arith.Hint):
                return self.of(op.src)
            if not isinstance(op, memory.AddPtr):
                return Affine(ZERO, base=value)
            if self._through_scalars:
                return _addptr(self, op)
            form = self.of(op.ptr)
            return replace(form, start=form.start + _number_of(op.offset))
        if not self._through_scalars or not _counts(value):
            return Affine(_number_of(value))
        if op is None:
            loop = _loop_counted_by(value)
            return self._of_counter(loop) if loop else self._of_carried(value)
        found = self._by_rule(value, op) if op.elementwise else None
        return found or self.opaque(value)

    def _of_counter(self, loop: For) -> Affine:
        turns = product_of(self.exactly(loop.step), Affine(Polynomial.of(Iteration(loop))))
        return (
            sum_of(self.exactly(loop.start), turns)
            if turns
            else Affine(Polynomial.of(loop.body.args[0]))
        )

    def _of_carried(self, value: Value) -> Affine:
        moved = self.moved_by(value)
        region = value.owner
        if moved is None or not isinstance(region, Region) or not _counts(value):
            return self.opaque(value)
        assert isinstance(region.parent, For)
        turn = Affine(Polynomial.of(Iteration(region.parent)), (ZERO,) * len(shape_of(value.type)))
        total: Affine | None = self.of(moved[0])
        for sign, step in moved[1]:
            product = product_of(self.of(step), turn)
            total = product and total and sum_of(total, product, sign)
        return total or self.opaque(value)

    def opaque(self, value: Value) -> Affine:
        """A form of which only is known along which axes elements may differ."""
        lengths = shape_of(value.type)
        varying = {axis for axis, n in enumerate(lengths) if n > 1}
        op = value.op
        if op is not None and op.elementwise:  # a constant, too
            forms = [self.of(v) for v in op.operands if isinstance(v.type, Tile)]
            varying = {axis for axis in varying if any(form.varies(axis) for form in forms)}
        zeros = (ZERO,) * len(lengths)
        if not lengths and is_pointer(value.type):
            return Affine(ZERO, base=value)
        if not varying and is_int(value.type):
            return Affine(Polynomial.of(value), zeros)
        piece = Piece(value, tuple(a if a in varying else None for a in range(len(lengths))))
        return Affine(ZERO, zeros, ((ONE, piece),))

    def _bounded(self, value: Value, form: Affine) -> Affine:
        """The form, or a piece where it is too large."""
        if len(form.pieces) > MAX_PIECES or len(form.assumed) > MAX_ASSUMED:
            return self.opaque(value)
        for polynomial in (form.start, *form.strides, *[c for c, _ in form.pieces]):
            if not polynomial.fits(MAX_TERMS, MAX_COEFFICIENT):
                return self.opaque(value)
        return form

    def bounds(self, form: Affine, lengths: Sequence[int]) -> Range:
        """Bounds of the elements of a tile of integers."""
        low, high = form.start.bounds(self.range_of)
        for stride, n in zip(form.strides, lengths, strict=True):
            if stride:
                ends = [e * (n - 1) for e in stride.bounds(self.range_of)]
                low, high = low + min(0, *ends), high + max(0, *ends)
        for coefficient, piece in form.pieces:
            factors = coefficient.bounds(self.range_of)
            corners = [x * y for x in factors for y in self.range_of(piece.value)]
            low, high = low + min(corners), high + max(corners)
        return low, high


def _counts(value: Value) -> bool:
    """Whether its elements are integers (no bools) or pointers."""
    element = element_of(value.type)
    return isinstance(element, Pointer) or (element.is_int() and not element.is_bool())


def _loop_counted_by(value: Value) -> For | None:
    """The loop of which the value is the counter."""
    region = value.owner
    loop = region.parent if isinstance(region, Region) else None
    return loop if isinstance(loop, For) and value.index == 0 else None


def _number_of(scalar: Value) -> Polynomial:
    number = arith.constant_value(scalar)
    return Polynomial.of(int(number) if isinstance(number, int) else scalar)


def _steps_of(carried: Value) -> tuple[Value, list[tuple[int, Value]]] | None:
    region = carried.owner
    loop = region.parent if isinstance(region, Region) else None
    if not isinstance(loop, For) or carried.index == 0:
        return None
    steps: list[tuple[int, Value]] = []
    following = loop.body.terminator.operands[carried.index - 1]
    while following is not carried:
        op = following.op
        if not isinstance(op, arith.Add | arith.Sub) or len(steps) == MAX_STEPS:
            return None
        step = op.rhs
        following = op.lhs
        if _is_within(following, loop.body) < _is_within(step, loop.body):
            if isinstance(op, arith.Sub):
                return None
            following, step = step, following
        if _is_within(step, loop.body):
            return None
        steps.append((-1 if isinstance(op, arith.Sub) else 1, step))
    return loop.inits[carried.index - 1], steps


def _is_within(value: Value, body: Region) -> bool:
    return value.region is not None and value.region.is_within(body)


# -- rules: the form of an op's result from those of its operands ---------------------------------

_Rule = Callable[[AffineForms, Any], Affine | None]
_RuleT = TypeVar("_RuleT", bound=_Rule)
_RULES: dict[type[Op], _Rule] = {}


def _has_rule(op: Op) -> bool:
    return isinstance(op, View) or type(op) in _RULES


def _rule(*classes: type[Op]) -> Callable[[_RuleT], _RuleT]:
    def register(rule: _RuleT) -> _RuleT:
        _RULES.update(dict.fromkeys(classes, rule))
        return rule

    return register


@_rule(arith.Constant)
def _constant(forms: AffineForms, op: arith.Constant) -> Affine:
    return Affine(Polynomial.of(int(op.value)), (ZERO,) * len(shape_of(op.result.type)))


@_rule(shape.Arange)
def _arange(forms: AffineForms, op: shape.Arange) -> Affine:
    return Affine(Polynomial.of(op.start), (ONE,))


@_rule(arith.Add, arith.Sub)
def _add(forms: AffineForms, op: arith.Add | arith.Sub) -> Affine:
    return sum_of(forms.of(op.lhs), forms.of(op.rhs), 1 if isinstance(op, arith.Add) else -1)


@_rule(arith.Mul)
def _mul(forms: AffineForms, op: arith.Mul) -> Affine | None:
    return product_of(forms.of(op.lhs), forms.of(op.rhs))


@_rule(arith.Neg)
def _neg(forms: AffineForms, op: arith.Neg) -> Affine | None:
    lengths = shape_of(op.result.type)
    return product_of(forms.of(op.operands[0]), Affine(Polynomial.of(-1), (ZERO,) * len(lengths)))


@_rule(arith.Shl)
def _shl(forms: AffineForms, op: arith.Shl) -> Affine | None:
    count = arith.constant_value(op.rhs)
    if not isinstance(count, int) or not 0 <= count < element_of(op.lhs.type).primitive_bitwidth:
        return None
    power = Affine(Polynomial.of(1 << count), (ZERO,) * len(shape_of(op.lhs.type)))
    return product_of(forms.of(op.lhs), power)


@_rule(arith.Cast)
def _cast(forms: AffineForms, op: arith.Cast) -> Affine | None:
    source = element_of(op.src.type)
    if not source.is_int() or source.is_bool():
        return None
    widens = element_of(op.result.type).primitive_bitwidth > source.primitive_bitwidth
    return forms.exactly(op.src) if widens else forms.of(op.src)


@_rule(memory.AddPtr)
def _addptr(forms: AffineForms, op: memory.AddPtr) -> Affine:
    narrow = element_of(op.offset.type).primitive_bitwidth < 64
    return sum_of(forms.of(op.ptr), forms.exactly(op.offset) if narrow else forms.of(op.offset))


@_rule(arith.Rem, arith.IntDiv)
def _divided(forms: AffineForms, op: arith.Rem | arith.IntDiv) -> Affine | None:
    """A piece that keeps what was divided by what."""
    divisor = forms.exactly(op.rhs)
    opaque = forms.opaque(op.result)
    if not divisor.is_uniform or not opaque.pieces:
        return opaque
    ((one, piece),) = opaque.pieces
    dividend = forms.exactly(op.lhs)
    dividend = replace(dividend, assumed=(*dividend.assumed, *divisor.assumed))
    return replace(
        opaque, pieces=((one, replace(piece, dividend=dividend, divisor=divisor.start)),)
    )
