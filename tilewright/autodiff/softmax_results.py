"""Results of the softmax of a row, which gradient kernels load instead of recomputing them.

    m = max(x)                                  of a row in a tile
    e = exp(x - m)
    y = e / sum(e)                              stored

No result depends on m (`running_maxima.py`): for any other number, all exponentials are multiplied
by the same factor. For m + log(sum(e)) the sum is 1, and e is y. So a gradient kernel loads e from
where y is stored, and uses neither the row nor its maximum and sum: x̄ = y (ȳ - sum(y ȳ)).
`replay.py` looks them up when it rematerialises a value of the kernel.

All of this is required:

- Each element of y is stored once, as the launch has proven, by the program that computes it.
- The sum is positive. e and the sum change with m by the same factors, and no other value that the
  gradient uses depends on m. This is known only after derivation: `NeedsMaximumError` is raised
  otherwise.
- Lanes that are not stored are 0, such as those of columns that were loaded as -inf.
- A result that is stored in a narrower type is not used in a condition (`smooth.py`).
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.analysis.pointers import base_of
from tilewright.autodiff.equivariance import (
    Equivariances,
    InconsistentError,
    is_maximum,
    plus,
    symbol,
)
from tilewright.autodiff.memo import once_for_each_value
from tilewright.autodiff.running_maxima import FreeMaxima
from tilewright.autodiff.smooth import is_rounded, is_used_smoothly
from tilewright.base.record import field, record
from tilewright.ir.core import Function, Value
from tilewright.ir.types import is_float
from tilewright.ops import arith, marks
from tilewright.ops.math import Exp, Exp2
from tilewright.ops.memory import Load, Store
from tilewright.ops.reduce import Reduce, simple_combine
from tilewright.ops.view import View, viewed


class NeedsMaximumError(Exception):
    """A maximum is used for which a sum is not 1."""


@record(frozen=False)
class SoftmaxResults:
    """Values for other maxima than the kernel has.

    Attributes:
        stored: the stores of results, by result and by exponential.
        sums: the sums, which are 1, and tiles that repeat them.
        maxima: the maxima for which that is so.
    """

    stored: dict[Value, Store] = field(default_factory=dict[Value, Store])
    sums: set[Value] = field(default_factory=set[Value])
    maxima: set[Value] = field(default_factory=set[Value])


def find_softmax_results(
    fn: Function, maxima: FreeMaxima, stored: Collection[Value]
) -> SoftmaxResults:
    """The results of softmax that are stored.

    Args:
        maxima: the maxima on which no result depends.
        stored: the arrays that the kernel only stores, each element once.
    """
    found = SoftmaxResults()
    stores = [op for op in fn.walk() if isinstance(op, Store) and base_of(op.ptr) in stored]
    for op in fn.walk() if stores else ():
        if isinstance(op, Reduce) and is_maximum(op) and op.results[0] in maxima.constants:
            _add_results(found, op.results[0], stores)
    return found


def _add_results(found: SoftmaxResults, maximum: Value, stores: Collection[Store]) -> None:
    """Add the results of the softmax that has a maximum."""
    own = symbol("c", maximum.type)
    equivariances = Equivariances({maximum: plus({own: 1.0})})
    total: Value | None = None
    for store in stores:
        quotient = _quotient(store.value)
        if quotient is None or maximum.region is not store.parent:
            continue
        result, term, divisor = quotient
        if total not in (None, divisor) or divisor.type != maximum.type:
            continue
        in_region = all(v.region is store.parent for v in (term, divisor))
        if not in_region or not _is_zero_where_not_stored(term, store.mask):
            continue
        if not _has_factor_of(equivariances, divisor, own) or not _is_positive(divisor):
            continue
        if not _is_exact_enough(store, result, term):
            continue
        if equivariances.is_known_fixed(store.value):  # the term changes as the sum does
            total = divisor
            found.stored[term] = found.stored[result] = store
            selected = _selected(term, store.mask)
            if selected is not None and list(selected.users) == [term.op]:
                found.stored[selected] = store
    if total is not None:
        found.sums.update(_views(total))
        found.maxima.add(maximum)


def _is_exact_enough(store: Store, result: Value, term: Value) -> bool:
    """Whether a result may be rounded as it is stored: to 16 bits or more, and not if it is used in
    a condition."""
    rounded = is_rounded(store.value, result)
    return not rounded or (is_used_smoothly(result) and is_used_smoothly(term))


def _views(total: Value) -> set[Value]:
    """A value, and tiles that repeat it."""
    found, work = set[Value](), [total]
    while work:
        value = work.pop()
        found.add(value)
        work += [u.results[0] for u in value.users if isinstance(u, View) and len(u.operands) == 1]
    return found


def _quotient(value: Value) -> tuple[Value, Value, Value] | None:
    """The quotient that a value is, perhaps in another type, its dividend, and its divisor."""
    while isinstance(value.op, arith.Cast | marks.Residual) and is_float(value.op.src.type):
        value = value.op.src
    op = value.op
    if isinstance(op, arith.Div):
        return value, op.lhs, viewed(op.rhs)
    if isinstance(op, arith.Mul):
        for term, factor in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            inverse = viewed(factor).op
            if isinstance(inverse, arith.Div) and arith.constant_value(inverse.lhs) == 1.0:
                return value, term, viewed(inverse.rhs)
    return None


def _has_factor_of(equivariances: Equivariances, total: Value, own: object) -> bool:
    """Whether a sum has a factor for each lane of its maximum, so that there is one for which the
    sum is 1."""
    try:
        found = equivariances.of(total)
    except InconsistentError:
        return False
    return found is not None and found.kind == "times" and list(found.form) == [own]


@once_for_each_value
def _is_positive(value: Value) -> bool:
    """Whether a value is a sum of exponentials, or 0: that a result does not depend on a maximum
    is known for positive factors only."""
    match value.op:
        case Exp() | Exp2():
            return True
        case arith.Add(a, b) | arith.Select(_, a, b):
            return _is_positive(a) and _is_positive(b)
        case arith.Cast(src) if is_float(src.type):
            return _is_positive(src)
        case Reduce() as op if isinstance(simple_combine(op), arith.Add):
            return all(map(_is_positive, op.srcs))
        case View() as op if len(op.operands) == 1:
            return _is_positive(op.operands[0])
        case _:
            return arith.constant_value(value) == 0


# -- lanes ----------------------------------------------------------------------------------------


def _is_zero_where_not_stored(value: Value, mask: Value | None) -> bool:
    """Whether a value is 0 in the lanes that a mask excludes."""
    if mask is None:
        return True
    match value.op:
        case Exp(src) | Exp2(src):
            return _is_minus_infinity(src, mask)
        case arith.Select():
            return _selected(value, mask) is not None
        case arith.Cast(src) if is_float(src.type):
            return _is_zero_where_not_stored(src, mask)
        case _:
            return False


def _selected(value: Value, mask: Value | None) -> Value | None:
    """The value in the lanes of a mask, if a select makes it 0 in others."""
    match value.op:
        case arith.Select(condition, selected, on_false) if condition is mask:
            return selected if arith.constant_value(on_false) == 0 else None
        case _:
            return None


def _is_minus_infinity(value: Value, mask: Value) -> bool:
    """Whether a value is -inf in the lanes that a mask excludes, where its row has a maximum."""
    match value.op:
        case Load(_, other_mask, other) if other_mask is mask and other is not None:
            return _is_lowest(other)
        case arith.Select(condition, _, on_false) if condition is mask:
            return _is_lowest(on_false)
        case arith.Cast(src) if is_float(src.type):
            return _is_minus_infinity(src, mask)
        case arith.Sub(lhs, _):
            return _is_minus_infinity(lhs, mask)
        case arith.Mul(lhs, rhs):
            for factor, number in ((lhs, rhs), (rhs, lhs)):
                constant = arith.constant_value(number)
                if isinstance(constant, float) and constant > 0:
                    return _is_minus_infinity(factor, mask)
            return False
        case _:
            return False


def _is_lowest(value: Value) -> bool:
    return arith.constant_value(value) == -float("inf")
