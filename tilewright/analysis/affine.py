"""The affine form of a tile of integers or pointers: its elements as a function of their indices.

The element at (i0, i1, …) of a tile is

    start + strides[0] * i0 + strides[1] * i1 + … + the sum of coefficient * piece

`start` and the strides are polynomials over the scalars of the kernel. A *piece* is a non-affine
term: a remainder, a quotient, a loaded index. It lists the axes along which it varies, so that the
form is still affine along the others. Every tile has a form; that of a completely unknown tile is a
single piece.

    rows = pid * 64 + tl.arange(0, 64)              # start pid*64, strides (1,)
    x + rows[:, None] * stride + cols[None, :]      # base x, start pid*64*stride, (stride, 1)
    (rows % M)[:, None] * stride + cols[None, :]    # strides (0, 1), pieces stride * (rows % M)

**Exactness.** n-bit arithmetic wraps, but polynomials do not. The form is congruent to the tile
modulo 2^n, where n is the number of bits of an element (64 for pointers, in elements); sums,
differences and products preserve this. Where n-bit integers are extended, congruence does not
suffice: the value of the form must be the integer itself. If ranges prove that it is (the value of
the form is within the range of the n-bit type), nothing is assumed; otherwise the extended tile is
listed in `assumed`. Consumers that must be correct for all values require `assumed == ()`;
consumers that may assume that the kernel does not access memory outside its arrays accept any.

By default, scalars are opaque: the product `pid * 64` is one unknown, which a consumer may reuse.
To compare indices, `AffineForms(through_scalars=True)` also looks through sums and products of
scalars, and expresses induction variables, and values that a `for` increments by equal steps, in
terms of its `Iteration`.

Forms are cached for each value and computed without recursion. The time is linear in the number of
ops, because the size of a form is bounded (`MAX_TERMS`, `MAX_PIECES`); larger ones become a piece.
The IR is not modified; a pass that modifies it must create a new `AffineForms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from tilewright.analysis.ranges import may_wrap, type_range, value_range
from tilewright.base.record import replace
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.op_table import OpTable
from tilewright.ir.types import Pointer, Tile, element_of, is_int, is_pointer, shape_of
from tilewright.ops import arith, memory, shape
from tilewright.ops.control import For
from tilewright.ops.view import View

MAX_COEFFICIENT = 2**64  # of a term of a polynomial
MAX_PIECES = 4  # of a form
MAX_ASSUMED = 8  # values that a form assumes not to wrap
MAX_STEPS = 8  # increments of a loop-carried value per iteration
_TRIPS: Range = (0, 2**63 - 1)


class AffineForms:
    """The affine forms of the values of a function, cached.

    Args:
        through_scalars: whether to look through the arithmetic of scalars, as through that of
            tiles.
    """

    def __init__(self, *, through_scalars: bool = False) -> None:
        self._through_scalars = through_scalars
        self._forms: dict[Value, Affine] = {}
        self._strides: dict[Value, tuple[int | None, ...]] = {}
        self._ranges: dict[Value, Range] = {}
        self._increments: dict[Value, tuple[Value, list[tuple[int, Value]]] | None] = {}

    def of(self, value: Value) -> Affine:
        """The form of a scalar or a tile of integers or pointers.

        That of other values (a tile of floats) is a piece with the axes along which it varies.
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
            elif missing := [v for v in self._dependencies(last) if v not in forms]:
                stack.extend(missing)
            else:
                stack.pop()
                forms[last] = self._bounded(last, self._form(last))
        return forms[value]

    def constant_strides(self, value: Value) -> tuple[int | None, ...]:
        """For each axis, the stride (for pointers, in elements), assuming that narrow arithmetic
        does not wrap; None if it is not constant.

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

        `value` is among its `assumed` unless ranges prove that nothing wraps. Without a proof, a
        value of 8 or 16 bits, or an unsigned one, has no form: its arithmetic may be meant to wrap.
        """
        form = self.of(value)
        if value in form.assumed or _loop_of_induction_variable(value):
            return form
        low, high = self.bounds(form, shape_of(value.type))
        minimum, maximum = type_range(value)
        if minimum <= low and high <= maximum:
            return form
        if may_wrap(value):
            return self.opaque(value)
        return replace(form, assumed=(*form.assumed, value))

    def range_of(self, atom: Atom) -> Range:
        """Bounds of an unknown, both inclusive."""
        if isinstance(atom, Iteration):
            return _TRIPS
        result = self._ranges.get(atom)
        if result is None:
            result = self._ranges[atom] = value_range(atom)
        return result

    def increments_of(self, carried: Value) -> tuple[Value, list[tuple[int, Value]]] | None:
        """See the function of this name."""
        if carried not in self._increments:
            self._increments[carried] = increments_of(carried)
        return self._increments[carried]

    # -- one value --------------------------------------------------------------------------------

    def _dependencies(self, value: Value) -> Sequence[Value]:
        """The values whose forms the form of a value depends on."""
        op = value.op
        if isinstance(value.type, Tile):
            if op is None:
                return self._dependencies_of_carried(value)
            if _has_rule(op):
                return op.operands
            return [v for v in op.operands if isinstance(v.type, Tile)] if op.elementwise else ()
        if not self._through_scalars:
            moves = isinstance(op, memory.AddPtr | arith.Hint) and is_pointer(value.type)
            return op.operands[:1] if op is not None and moves else ()
        if op is None:
            loop = _loop_of_induction_variable(value)
            return (loop.start, loop.step) if loop else self._dependencies_of_carried(value)
        return op.operands if op.elementwise and _has_rule(op) else ()

    def _dependencies_of_carried(self, value: Value) -> Sequence[Value]:
        increments = self.increments_of(value)
        return (increments[0], *(step for _, step in increments[1])) if increments else ()

    def _form(self, value: Value) -> Affine:
        op = value.op
        if not isinstance(value.type, Tile):
            return self._of_scalar(value)
        if op is None:
            return self._of_carried(value)
        found = self._by_rule(value, op) if _is_integral(value) or not op.elementwise else None
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
            return replace(form, start=form.start + _polynomial_of(op.offset))
        if not self._through_scalars or not _is_integral(value):
            return Affine(_polynomial_of(value))
        if op is None:
            loop = _loop_of_induction_variable(value)
            return self._of_induction_variable(loop) if loop else self._of_carried(value)
        found = self._by_rule(value, op) if op.elementwise else None
        return found or self.opaque(value)

    def _of_induction_variable(self, loop: For) -> Affine:
        distance = product_of(self.exactly(loop.step), Affine(Polynomial.of(Iteration(loop))))
        return (
            sum_of(self.exactly(loop.start), distance)
            if distance
            else Affine(Polynomial.of(loop.body.args[0]))
        )

    def _of_carried(self, value: Value) -> Affine:
        increments = self.increments_of(value)
        region = value.owner
        if increments is None or not isinstance(region, Region) or not _is_integral(value):
            return self.opaque(value)
        assert isinstance(region.parent, For)
        iteration = Affine(
            Polynomial.of(Iteration(region.parent)), (ZERO,) * len(shape_of(value.type))
        )
        total: Affine | None = self.of(increments[0])
        for sign, step in increments[1]:
            product = product_of(self.of(step), iteration)
            total = product and total and sum_of(total, product, sign)
        return total or self.opaque(value)

    def opaque(self, value: Value) -> Affine:
        """The form of a value as an unknown or a piece, with the axes along which it varies."""
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
        """The form, or an opaque one if its size exceeds the bounds."""
        if len(form.pieces) > MAX_PIECES or len(form.assumed) > MAX_ASSUMED:
            return self.opaque(value)
        for polynomial in (form.start, *form.strides, *[c for c, _ in form.pieces]):
            if not polynomial.fits(MAX_TERMS, MAX_COEFFICIENT):
                return self.opaque(value)
        return form

    def bounds(self, form: Affine, lengths: Sequence[int]) -> Range:
        """The minimum and maximum of the elements of a tile of integers of shape `lengths`."""
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


def _is_integral(value: Value) -> bool:
    """Whether the elements are integers (not bools) or pointers."""
    element = element_of(value.type)
    return isinstance(element, Pointer) or (element.is_int() and not element.is_bool())


def _loop_of_induction_variable(value: Value) -> For | None:
    """The loop whose induction variable the value is."""
    region = value.owner
    loop = region.parent if isinstance(region, Region) else None
    return loop if isinstance(loop, For) and value.index == 0 else None


def _polynomial_of(scalar: Value) -> Polynomial:
    number = arith.constant_value(scalar)
    return Polynomial.of(int(number) if isinstance(number, int) else scalar)


def increments_of(carried: Value) -> tuple[Value, list[tuple[int, Value]]] | None:
    """The initial value and the loop-invariant increments of a loop-carried value of a `for`, each
    with the sign 1 (added) or -1 (subtracted); None if an iteration changes the value in another
    way."""
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
        if loop.contains(following) < loop.contains(step):
            if isinstance(op, arith.Sub):
                return None
            following, step = step, following
        if loop.contains(step):
            return None
        steps.append((-1 if isinstance(op, arith.Sub) else 1, step))
    return loop.inits[carried.index - 1], steps


# -- rules: the form of an op's result from those of its operands ---------------------------------

_Rule = Callable[[AffineForms, Any], Affine | None]
_RuleT = TypeVar("_RuleT", bound=_Rule)
_RULES: OpTable[_Rule] = OpTable("rules of affine forms")


def _has_rule(op: Op) -> bool:
    return isinstance(op, View) or type(op) in _RULES


def _rule(*classes: type[Op]) -> Callable[[_RuleT], _RuleT]:
    return _RULES.of(*classes)


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
def _quotient_or_remainder(forms: AffineForms, op: arith.Rem | arith.IntDiv) -> Affine | None:
    """A piece with the forms of the dividend and the divisor."""
    divisor = forms.exactly(op.rhs)
    opaque = forms.opaque(op.result)
    if not divisor.is_uniform or not opaque.pieces:
        return opaque
    ((one, piece),) = opaque.pieces
    index = _assuming(forms.exactly(op.lhs), divisor)
    return replace(opaque, pieces=((one, replace(piece, index=index, divisor=divisor.start)),))


def _assuming(form: Affine, *others: Affine) -> Affine:
    """The form, with the assumptions of other forms added."""
    return replace(form, assumed=tuple(a for f in (form, *others) for a in f.assumed))


@_rule(arith.Select)
def _limited(forms: AffineForms, op: arith.Select) -> Affine | None:
    """A piece that keeps the limit of ``select(i < limit, i, other)``."""
    opaque, compared = forms.opaque(op.result), op.condition.op
    if not opaque.pieces or not isinstance(compared, arith.Cmp) or compared.predicate != "lt":
        return opaque
    if compared.lhs is not op.on_true or not element_of(op.on_true.type).is_int_signed():
        return opaque
    limit, other = forms.exactly(compared.rhs), forms.exactly(op.on_false)
    if not limit.is_uniform or not other.is_uniform:
        return opaque
    ((one, piece),) = opaque.pieces
    index = _assuming(forms.exactly(op.on_true), limit, other)
    known = replace(piece, index=index, limit=limit.start, other=other.start)
    return replace(opaque, pieces=((one, known),))
