"""Axis information of a value, and the rules that derive it from that of an op's operands.

For each axis d of a value (a scalar counts as one axis of length 1):

- `contiguity[d]` = C: along d the elements form runs of C consecutive integers (x, x + 1, …);
  for pointers, of C consecutive elements in memory. Runs start at indices that are multiples of C;
  C divides the length of the axis.
- `divisibility[d]` = D: the first element of each such run is a multiple of D, a power of two; for
  pointers, the address in **bytes**. If C is 1, that is every element.
- `constancy[d]` = K: along d the elements form runs of K equal values, which start at multiples of
  K; K divides the length of the axis.
- `constant`: the value of all elements, if it is known.
- `scaled`: for products by a power of two, the contiguity and the divisibility of the other factor,
  and the power. They may have wrapped.

The maximum vector length of an access of elements of s bytes is thus min(C, D // s); see
`AxisInfo.vector_length`.

    arange(0, 64)                       C=64 D=2^32 K=1
    splat(n) where 16 divides n         C=1  D=16   K=64
    their sum                           C=64 D=16   K=1
    expand_dims of it, axis=1           C=(64, 1) D=(16, 1) K=(1, 1)

The rules make three assumptions, which hold for every kernel that accesses its arrays in bounds:

- A run of consecutive integers of 32 bits or more does not wrap. (One that starts at a multiple of
  its length never does. Those of 8 and 16 bits, and unsigned ones, are cut where they may: see
  `ranges.may_wrap`.)
- Offsets of elements do not overflow where that decides the sign of a dividend (`signs.py`).
  Quotients and remainders of integers that may be negative form no runs.
- A divisor that is a scalar, repeated or not, is positive: the number of tiles along an axis, for
  example, which is computed from arguments. This one is made on request only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any, NamedTuple, TypeVar

from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Op, Value
from tilewright.ir.index_map import Along, Every, Part, Reversed, Term
from tilewright.ir.op_table import OpTable
from tilewright.ir.types import Pointer, element_of, shape_of
from tilewright.ops import arith, control, gpu, memory, shape
from tilewright.ops.view import View

# Divisibility saturates at this power of two, which is also that of 0.
MAX_DIVISIBILITY = 1 << 32

Facts = tuple[int, ...]


class AxisInfo(NamedTuple):
    """Axis information of a value; see the module docstring."""

    contiguity: Facts
    divisibility: Facts
    constancy: Facts
    constant: int | None = None
    scaled: tuple[Facts, Facts, int] | None = None

    @property
    def rank(self) -> int:
        return len(self.contiguity)

    @property
    def order(self) -> tuple[int, ...]:
        """The axes from the one with the longest runs of consecutive elements, along which vectors
        lie; axes of equal contiguity are in row-major order, the last axis first."""
        return tuple(sorted(reversed(range(self.rank)), key=lambda axis: -self.contiguity[axis]))

    def vector_length(self, axis: int, element_bytes: int) -> int:
        """The maximum number of consecutive elements of one aligned access through this pointer."""
        return max(1, min(self.contiguity[axis], self.divisibility[axis] // element_bytes))

    def multiple_at(self, axis: int, step: int, unit: int = 1) -> int:
        """The divisibility of the elements at indices that are multiples of `step` along an axis,
        if consecutive elements differ by `unit`."""
        run = self.contiguity[axis]
        if step % run == 0:
            return self.divisibility[axis]
        return gcd(self.divisibility[axis], power_of_two_in(gcd(step, run) * unit))

    def multiple_of_all(self, unit: int = 1) -> int:
        """The divisibility of every element."""
        step = power_of_two_in(unit)  # between the elements of runs
        return max(
            [
                d if run == 1 else gcd(d, step)
                for run, d in zip(self.contiguity, self.divisibility, strict=True)
            ]
        )


def power_of_two_in(number: int) -> int:
    """The largest power of two that divides the number, up to MAX_DIVISIBILITY."""
    return min(number & -number, MAX_DIVISIBILITY) if number else MAX_DIVISIBILITY


def _axes(value: Value) -> Facts:
    """The lengths of the axes; one of length 1 for a scalar."""
    return shape_of(value.type) or (1,)


def unit_of(value: Value) -> int:
    """The difference of adjacent elements of a run: 1, or the size of the pointee in bytes."""
    element = element_of(value.type)
    return element.element_ty.nbytes_in_memory if isinstance(element, Pointer) else 1


def unknown(value: Value) -> AxisInfo:
    """The information that holds for any value of this type."""
    ones = (1,) * len(_axes(value))
    return AxisInfo(ones, ones, ones)


def uniform(value: Value, divisibility: int, constant: int | None = None) -> AxisInfo:
    """The information of a value whose elements are all equal."""
    axes = _axes(value)
    return AxisInfo((1,) * len(axes), (divisibility,) * len(axes), axes, constant)


def meet(a: AxisInfo, b: AxisInfo, unit: int = 1) -> AxisInfo:
    """The meet in the lattice: the information of a value that is either of two."""
    contiguity, divisibility, constancy = [], [], []
    for d in range(a.rank):
        run = gcd(a.contiguity[d], b.contiguity[d])
        contiguity.append(run)
        divisibility.append(gcd(a.multiple_at(d, run, unit), b.multiple_at(d, run, unit)))
        constancy.append(gcd(a.constancy[d], b.constancy[d]))
    constant = a.constant if a.constant == b.constant else None
    return AxisInfo(tuple(contiguity), tuple(divisibility), tuple(constancy), constant)


OpT = TypeVar("OpT", bound=Op)
_Rule = Callable[[OpT, Sequence[AxisInfo]], AxisInfo | None]
RULES: OpTable[_Rule[Any]] = OpTable("rules of axis information")

# These have a third argument: whether the dividend is not negative and, of a remainder, the divisor
# is not 0.
_Division = Callable[[OpT, Sequence[AxisInfo], bool], AxisInfo | None]
DIVISIONS: OpTable[_Division[Any]] = OpTable("rules of axis information, for divisions")


def _rule(*classes: type[OpT]) -> Callable[[_Rule[OpT]], _Rule[OpT]]:
    return RULES.of(*classes)


def only_constancy(op: Op, infos: Sequence[AxisInfo]) -> AxisInfo:
    """Equal operands give equal results."""
    found = unknown(op.results[0])
    constancy = list(infos[0].constancy)
    for info in infos[1:]:
        constancy = [gcd(a, b) for a, b in zip(constancy, info.constancy, strict=True)]
    return found._replace(constancy=tuple(constancy))


@_rule(arith.Constant)
def _constant(op: arith.Constant, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    value = op.value
    if isinstance(value, float):
        return uniform(op.results[0], 1)
    return uniform(op.results[0], power_of_two_in(int(value)), int(value))


@_rule(shape.Arange)
def _arange(op: shape.Arange, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    start, end = op.start, op.end
    return AxisInfo((end - start,), (power_of_two_in(start),), (1,))


@_rule(control.ProgramId, control.NumPrograms, gpu.BlockId, gpu.BlockCount)
def _program(op: Op, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    return uniform(op.results[0], 1)


def through_view(op: View, result: Value, info: AxisInfo) -> AxisInfo:
    """The result of a view: properties follow their axes, and the divisibility of all elements is
    preserved."""
    unit = unit_of(result)
    whole = info.multiple_of_all(unit)
    if info.constancy == _axes(op.src):
        return uniform(result, whole, info.constant)
    found = op.index_maps(result.index)[0]
    assert found is not None
    facts = [
        _along(term, extent, info, whole, unit) if found.single else (1, whole, 1)
        for term, extent in zip(found.inverse().axes, found.target, strict=True)
    ]
    contiguity, divisibility, constancy = zip(*facts or [(1, whole, 1)], strict=True)
    return AxisInfo(contiguity, divisibility, constancy, info.constant)


def _along(term: Term, extent: int, info: AxisInfo, whole: int, unit: int) -> tuple[int, int, int]:
    """(contiguity, divisibility, constancy) along an axis of a view whose index in `src` is
    `term`."""
    match term:
        case Along(axis):
            return info.contiguity[axis], info.divisibility[axis], info.constancy[axis]
        case Reversed(axis):
            return 1, whole, info.constancy[axis]
        case Part((*_, last), 1, _):  # runs along the last axis are limited to the new extent
            run = gcd(info.contiguity[last], extent)
            return run, info.multiple_at(last, run, unit), gcd(info.constancy[last], extent)
        case Every():
            return 1, whole, extent
        case _:
            return 1, whole, 1


@_rule(arith.Hint)
def _hint(op: arith.Hint, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    """The stronger of the hint and the known information."""
    info, result = infos[0], op.results[0]
    lengths = _axes(result)

    def joined(known: Facts, hints: Facts) -> Facts:
        return tuple(
            max(k, gcd(h, n)) if h else k for k, h, n in zip(known, hints, lengths, strict=True)
        )

    contiguity = joined(info.contiguity, op.contiguity)
    constancy = joined(info.constancy, op.constancy)
    divisibility = tuple(
        max(info.multiple_at(d, run, unit_of(result)), power_of_two_in(hint) if hint else 1)
        for d, (run, hint) in enumerate(zip(contiguity, op.divisibility, strict=True))
    )
    return AxisInfo(contiguity, divisibility, constancy, info.constant)


@_rule(arith.Cast)
def _cast(op: arith.Cast, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    source, to = element_of(op.operands[0].type), element_of(op.results[0].type)
    info = infos[0]
    if not (source.is_int() and to.is_int()) or to.is_bool() or source.is_bool():
        return only_constancy(op, infos)
    constant = info.constant
    if constant is not None:
        bounds = 1 << to.primitive_bitwidth
        constant %= bounds
        if value_range(op.results[0], 0)[0] < 0 and constant >= bounds // 2:
            constant -= bounds
    return info._replace(constant=constant)


def _combined(
    op: Op,
    infos: Sequence[AxisInfo],
    contiguity: Facts,
    divisibility: Facts,
    fold: Callable[[int, int], int] | None = None,
) -> AxisInfo:
    """The information of a binary op with this contiguity and divisibility, the constancy common to
    both operands, and the constant `fold(a, b)` if both are constant."""
    a, b = infos[:2]
    constancy = tuple(gcd(x, y) for x, y in zip(a.constancy, b.constancy, strict=True))
    constant = None
    if fold is not None and a.constant is not None and b.constant is not None:
        constant = fold(a.constant, b.constant)
        low, high = value_range(op.results[0], 0)
        if not low <= constant <= high:
            constant = None
    if constant is not None:
        return uniform(op.results[0], power_of_two_in(constant), constant)
    return AxisInfo(contiguity, divisibility, constancy)


def _sum(op: Op, infos: Sequence[AxisInfo], sign: int, unit: int) -> AxisInfo:
    """Consecutive plus equal integers are consecutive. `unit` is the factor of the right operand:
    the pointee size in bytes for pointers, otherwise 1."""
    a, b = infos
    contiguity, divisibility = [], []
    for d in range(a.rank):
        run = gcd(a.contiguity[d], b.constancy[d])
        if sign > 0:
            run = max(run, gcd(a.constancy[d], b.contiguity[d]))
        contiguity.append(run)
        right = min(b.multiple_at(d, run) * unit, MAX_DIVISIBILITY)
        right = power_of_two_in(right)
        divisibility.append(gcd(a.multiple_at(d, run, unit), right))
    fold = (lambda x, y: x + sign * y) if unit == 1 else None
    return _combined(op, infos, tuple(contiguity), tuple(divisibility), fold)


@_rule(arith.Add)
def _add(op: arith.Add, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    if not element_of(op.results[0].type).is_int():
        return only_constancy(op, infos)
    return _sum(op, infos, 1, 1)


@_rule(arith.Sub)
def _sub(op: arith.Sub, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    if not element_of(op.results[0].type).is_int():
        return only_constancy(op, infos)
    return _sum(op, infos, -1, 1)


@_rule(memory.AddPtr)
def _addptr(op: memory.AddPtr, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    return _sum(op, infos, 1, unit_of(op.results[0]))._replace(constant=None)


@_rule(arith.Mul)
def _mul(op: arith.Mul, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    if not element_of(op.results[0].type).is_int():
        return only_constancy(op, infos)
    a, b = infos
    if b.constant == 1:
        return a
    if a.constant == 1:
        return b
    whole = min(a.multiple_of_all() * b.multiple_of_all(), MAX_DIVISIBILITY)
    ones = (1,) * a.rank
    product = _combined(op, infos, ones, (whole,) * a.rank, lambda x, y: x * y)
    return _scaled(product, a, b.constant)


@_rule(arith.Shl)
def _shl(op: arith.Shl, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    a, b = infos
    if b.constant is None or not 0 <= b.constant < 64:
        return only_constancy(op, infos)
    whole = min(a.multiple_of_all() << b.constant, MAX_DIVISIBILITY)
    shifted = _combined(op, infos, (1,) * a.rank, (whole,) * a.rank, lambda x, y: x << y)
    return _scaled(shifted, a, 1 << b.constant)


def _scaled(product: AxisInfo, a: AxisInfo, factor: int | None) -> AxisInfo:
    """The information of a product of integers with that of one of them."""
    if factor is None or factor < 2 or power_of_two_in(factor) != factor:
        return product
    return product._replace(scaled=(a.contiguity, a.divisibility, factor))


@DIVISIONS.of(arith.IntDiv)
def _idiv(op: arith.IntDiv, infos: Sequence[AxisInfo], plain: bool) -> AxisInfo | None:
    return _quotient(op, infos, infos[1], plain)


@_rule(arith.Shr)
def _shr(op: arith.Shr, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    """A shift rounds down, so that the quotients of negative integers form runs too."""
    count = infos[1].constant
    if count is None or not 0 <= count < 64:
        return only_constancy(op, infos)
    return _quotient(op, infos, uniform(op.operands[1], 1 << count, 1 << count), True)


def _quotient(
    op: Op, infos: Sequence[AxisInfo], divisor: AxisInfo, rounds_down: bool
) -> AxisInfo | None:
    """Consecutive integers have equal quotients if they start at a multiple of their number, which
    divides the divisor. So have their products by a power of two, if it and their number do: they
    are in one block of as many integers that starts at a multiple, also where they wrap."""
    a = infos[0]
    plain = only_constancy(op, infos)
    number = divisor.constant
    if number == 1:
        return a
    if number is not None and number < 1:
        return plain
    constancy = list(plain.constancy)
    for d in range(a.rank):
        if rounds_down:
            run = gcd(a.contiguity[d], divisor.constancy[d])
            run = gcd(run, gcd(a.divisibility[d], divisor.multiple_of_all()))
            constancy[d] = max(constancy[d], run)
            if a.scaled is not None:
                contiguity, divisibility, factor = a.scaled
                run = gcd(contiguity[d], divisor.constancy[d], divisibility[d])
                constancy[d] = max(constancy[d], gcd(run, divisor.multiple_of_all() // factor or 1))
    whole = 1
    if number is not None and power_of_two_in(number) == number:
        whole = max(1, a.multiple_of_all() // number)
    return AxisInfo(plain.contiguity, (whole,) * a.rank, tuple(constancy))


@DIVISIONS.of(arith.Rem)
def _rem(op: arith.Rem, infos: Sequence[AxisInfo], plain: bool) -> AxisInfo | None:
    """An aligned run is preserved if the divisor is a multiple of its length."""
    if not element_of(op.results[0].type).is_int():
        return only_constancy(op, infos)
    a, b = infos
    contiguity, divisibility = [], []
    for d in range(a.rank):
        run = 1
        if plain:
            length = gcd(a.contiguity[d], b.constancy[d])
            run = gcd(length, gcd(a.divisibility[d], b.multiple_of_all()))
        contiguity.append(run)
        divisibility.append(gcd(a.multiple_at(d, run), b.multiple_at(d, run)))
    return _combined(op, infos, tuple(contiguity), tuple(divisibility))


@_rule(arith.And)
def _and(op: arith.And, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    """x & (2^k - 1) = x mod 2^k; trailing zero bits of either operand are zero in the result."""
    a, b = infos
    mask = b.constant
    if mask is not None and mask > 0 and mask & (mask + 1) == 0:
        contiguity = tuple(
            gcd(gcd(run, multiple), mask + 1)
            for run, multiple in zip(a.contiguity, a.divisibility, strict=True)
        )
        divisibility = tuple(
            min(a.multiple_at(d, run), MAX_DIVISIBILITY) for d, run in enumerate(contiguity)
        )
        return _combined(op, infos, contiguity, divisibility, lambda x, y: x & y)
    whole = max(a.multiple_of_all(), b.multiple_of_all())
    return _combined(op, infos, (1,) * a.rank, (whole,) * a.rank, lambda x, y: x & y)


@_rule(arith.Min, arith.Max)
def _extremum(op: arith.Min | arith.Max, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    if not element_of(op.results[0].type).is_int():
        return only_constancy(op, infos)
    a, b = infos
    whole = gcd(a.multiple_of_all(), b.multiple_of_all())
    pick = min if isinstance(op, arith.Min) else max
    return _combined(op, infos, (1,) * a.rank, (whole,) * a.rank, lambda x, y: pick(x, y))


# Comparisons whose result is the same for an aligned run of consecutive integers on the left, or
# on the right, of an aligned bound.
_LEFT_RUN = frozenset({"lt", "ge"})
_RIGHT_RUN = frozenset({"gt", "le"})


@_rule(arith.Cmp)
def _cmp(op: arith.Cmp, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    """x < n is equal for a run of c consecutive integers that starts at a multiple of c, if c
    divides n."""
    plain = only_constancy(op, infos)
    if not element_of(op.operands[0].type).is_int():
        return plain
    predicate = op.predicate
    constancy = list(plain.constancy)
    for d in range(plain.rank):
        for run, bound, names in (
            (infos[0], infos[1], _LEFT_RUN),
            (infos[1], infos[0], _RIGHT_RUN),
        ):
            if predicate in names:
                aligned = gcd(run.contiguity[d], run.divisibility[d])
                aligned = gcd(aligned, gcd(bound.constancy[d], bound.multiple_at(d, 1)))
                constancy[d] = max(constancy[d], aligned)
    return plain._replace(constancy=tuple(constancy))


@_rule(arith.Select)
def _select(op: arith.Select, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    condition, a, b = infos
    unit = unit_of(op.results[0])
    contiguity, divisibility, constancy = [], [], []
    for d in range(a.rank):
        same = condition.constancy[d]
        run = gcd(gcd(a.contiguity[d], b.contiguity[d]), same)
        contiguity.append(run)
        divisibility.append(gcd(a.multiple_at(d, run, unit), b.multiple_at(d, run, unit)))
        constancy.append(gcd(gcd(a.constancy[d], b.constancy[d]), same))
    return AxisInfo(tuple(contiguity), tuple(divisibility), tuple(constancy))


@_rule(memory.Load)
def _load(op: memory.Load, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    """Equal addresses have equal values, unless another program writes them concurrently."""
    if op.volatile:
        return unknown(op.results[0])
    return only_constancy(op, infos)


@_rule(arith.Bitcast)
def _bitcast(op: arith.Bitcast, infos: Sequence[AxisInfo]) -> AxisInfo | None:
    return only_constancy(op, infos)
