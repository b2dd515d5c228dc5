"""Residuals that a gradient kernel loads from results of the kernel instead of rerunning a loop.

A loop with a running maximum m, on which no result depends (`running_maxima.py`), ends with a sum
of exponentials l, and with sums that are divided by it:

    o   = acc / l                       stored
    lse = m + log(l)                    stored

m may be replaced by any number. With M = m + log(l) the sum l is 1, and acc is o. For this choice,
the results of the loop are those that the kernel stored: M = lse, l = 1, acc = o.

The number M for which l is 1 is computed from a stored value that is linear in m and log(l) and
does not depend on the choice: for l = 1 the logarithm is 0, and the value is a multiple of M.

Masked-off lanes of these stores are not in memory, so they must not be used: all values computed
from them are stored under the same conditions, or in arrays without a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from tilewright.analysis.pointers import base_of
from tilewright.autodiff.equivariance import Equivariances, Form
from tilewright.autodiff.lanes import lanes_of
from tilewright.autodiff.masked_values import are_equal, common, conditions
from tilewright.autodiff.memo import once_for_each_value
from tilewright.autodiff.running_maxima import FreeMaxima, RunningMaximum, equivariances_of_results
from tilewright.autodiff.smooth import is_only_rounded, is_used_smoothly
from tilewright.base.record import record
from tilewright.ir.builder import Builder
from tilewright.ir.core import Op, Value
from tilewright.ir.numbers import array_of, first_number
from tilewright.ir.types import DType, element_of, is_float
from tilewright.ops import arith, marks
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.control import For
from tilewright.ops.math import Log, Log2
from tilewright.ops.memory import Load, Store
from tilewright.ops.view import viewed

SINGLE = 32  # bits of the narrowest float in which a logarithm of sums is exact enough


@record
class Residual:
    """The results of a loop, by their index.

    Attributes:
        running: the loop's running maximum.
        logarithm: the store of a multiple of the maximum for which the sum is 1, and the multiple.
        factor: the multiple.
        unit: the index of that sum.
        stored: the stores of what the other sums are for this maximum.
    """

    running: RunningMaximum
    logarithm: Store
    factor: float
    unit: int
    stored: dict[int, Store]


class _Linear(NamedTuple):
    """maximum * m + logarithm * log(sum), with the natural logarithm of one of the sums."""

    maximum: float
    logarithm: float
    of: int | None


def find_residuals(
    maxima: FreeMaxima, stored: Collection[Value], outputs: Collection[Value]
) -> dict[For, Residual]:
    """The loops whose results are in memory.

    Args:
        stored: the arrays that the kernel only stores, each element once.
        outputs: the arrays that have gradients.
    """
    found: dict[For, Residual] = {}
    for loop, running in maxima.loops.items():
        residual = _residual(running, stored) if running.after is None else None
        if residual is not None and _are_lanes_in_memory(residual, outputs):
            found[loop] = residual
    return found


def _are_lanes_in_memory(residual: Residual, outputs: Collection[Value]) -> bool:
    """Whether no lane of the loop's results is used that is not loaded."""
    results, logarithm = residual.running.loop.results, residual.logarithm
    loaded = [(residual.running.index, logarithm), (residual.unit, logarithm)]
    loaded += residual.stored.items()
    return all(_is_used_where_stored(results[i], store, outputs) for i, store in loaded)


def _is_used_where_stored(value: Value, store: Store, outputs: Collection[Value]) -> bool:
    """Whether the lanes of a value that a store's mask excludes get to no result."""
    if store.mask is None:
        return True
    found, whole = conditions(store.mask)
    return whole and all(_gets_only_to(value, axis, c, outputs) for axis, c in found)


def _gets_only_to(value: Value, axis: int, condition: Value, outputs: Collection[Value]) -> bool:
    """Whether lanes of a value that a condition along an axis excludes get to no result."""
    lanes = lanes_of(value, axis)
    return lanes is not None and all(
        isinstance(op, Store | AtomicRMW)
        and op.operands[place] is op.value
        and (base_of(op.ptr) not in outputs or _has_condition(op.mask, at, condition))
        for op, place, at in lanes.uses
    )


def _has_condition(mask: Value | None, axis: int, condition: Value) -> bool:
    return mask is not None and any(are_equal(v, condition) for v in common([mask], axis))


def _residual(running: RunningMaximum, stored: Collection[Value]) -> Residual | None:
    loop = running.loop
    known = {running.index, *running.states}
    if any(r.users for r in loop.results if r.index not in known):
        return None
    equivariances = equivariances_of_results(running)
    for store in _stores_after(loop, stored):
        linear = _linear(store.value, running)
        if linear is None or linear.of is None or not linear.maximum:
            continue
        if not _is_decreasing(running.states[linear.of]):
            continue
        if not equivariances.is_known_fixed(store.value):
            continue
        others = _quotients(running, linear.of, stored, equivariances)
        if others is not None:
            return Residual(running, store, linear.maximum, linear.of, others)
    return None


def _quotients(
    running: RunningMaximum, unit: int, stored: Collection[Value], equivariances: Equivariances
) -> dict[int, Store] | None:
    """The stores of all other sums, divided by one of them."""
    results = running.loop.results
    found: dict[int, Store] = {}
    for i in running.states:
        if i == unit or not results[i].users:
            continue
        store = _stored_quotient(results[i], results[unit], stored)
        if store is None or not equivariances.is_known_fixed(store.value):
            return None
        if not is_used_smoothly(results[i]):
            return None
        found[i] = store
    return found


def _is_decreasing(form: Form) -> bool:
    """Whether a sum becomes smaller if the maximum becomes larger."""
    return bool(form) and all(coefficient < 0 for coefficient in form.values())


def _stores_after(loop: For, stored: Collection[Value]) -> Iterator[Store]:
    """The stores to arrays after a loop, in its region."""
    op: Op | None = loop.next
    while op is not None:
        if isinstance(op, Store) and base_of(op.ptr) in stored:
            yield op
        op = op.next


@once_for_each_value
def _linear(value: Value, running: RunningMaximum) -> _Linear | None:
    """A value as a linear form of the maximum and a logarithm."""
    results = running.loop.results
    if value is results[running.index]:
        return _Linear(1.0, 0.0, None)
    op = value.op
    match op:
        case arith.Cast(src) if is_float(src.type) and _bits(value) >= SINGLE:
            return _linear(src, running)
        case marks.Residual(src, True):
            return _linear(src, running)
        case Log(src) | Log2(src):
            index = next((i for i in running.states if results[i] is src), None)
            base = 1.0 if isinstance(op, Log) else math.log(2)
            return None if index is None else _Linear(0.0, 1 / base, index)
        case arith.Neg(src):
            return _scaled(_linear(src, running), -1.0)
        case arith.Add(lhs, rhs):
            return _sum(_linear(lhs, running), _linear(rhs, running))
        case arith.Sub(lhs, rhs):
            return _sum(_linear(lhs, running), _scaled(_linear(rhs, running), -1.0))
        case arith.Mul(lhs, rhs):
            for one, other in ((lhs, rhs), (rhs, lhs)):
                number = arith.constant_value(one)
                if isinstance(number, float):
                    return _scaled(_linear(other, running), number)
            return None
        case _:
            return None


def _scaled(a: _Linear | None, factor: float) -> _Linear | None:
    return None if a is None else _Linear(a.maximum * factor, a.logarithm * factor, a.of)


def _sum(a: _Linear | None, b: _Linear | None) -> _Linear | None:
    if a is None or b is None or (a.of is not None and b.of is not None and a.of != b.of):
        return None
    of = a.of if a.of is not None else b.of
    return _Linear(a.maximum + b.maximum, a.logarithm + b.logarithm, of)


def _bits(value: Value) -> int:
    return element_of(value.type).primitive_bitwidth


def _stored_quotient(total: Value, unit: Value, stored: Collection[Value]) -> Store | None:
    """The store of a sum that is divided by another one."""
    for user in total.users:
        match user:
            case arith.Div(lhs, rhs) if lhs is total and viewed(rhs) is unit:
                pass
            case arith.Mul(lhs, rhs) if _is_reciprocal(rhs if lhs is total else lhs, unit):
                pass
            case _:
                continue
        found = _store_of(user.results[0], user, stored)
        if found is not None:
            return found
    return None


def _is_reciprocal(value: Value, unit: Value) -> bool:
    """Whether a value is 1 / unit, for each element of unit along the same axis."""
    op = viewed(value).op
    return isinstance(op, arith.Div) and arith.constant_value(op.lhs) == 1.0 and op.rhs is unit


def _store_of(value: Value, behind: Op, stored: Collection[Value]) -> Store | None:
    """The store of a value, perhaps in another type, in the region of an op."""
    for user in value.users:
        if (isinstance(user, arith.Cast) and is_only_rounded(user)) or (
            isinstance(user, marks.Residual) and user.saved
        ):
            found = _store_of(user.result, behind, stored)
            if found is not None:
                return found
        elif (
            isinstance(user, Store)
            and user.value is value
            and user.parent is behind.parent
            and base_of(user.ptr) in stored
        ):
            return user
    return None


def emit_residual(
    residual: Residual, builder: Builder, plain: Callable[[Value], Value]
) -> list[Value]:
    """The results of a loop, loaded; unused ones are zeros.

    Args:
        plain: a value of the kernel, here.
    """
    loop = residual.running.loop
    found = [
        builder.value(arith.Constant(0.0 if is_float(r.type) else 0, r.type)) for r in loop.results
    ]
    for i, store in residual.stored.items():
        found[i] = emit_loaded(store, 0.0, loop.results[i], builder, plain)
    unit = loop.results[residual.unit]
    found[residual.unit] = builder.value(arith.Constant(1.0, unit.type))
    # Where nothing was stored, exponentials of what is less than the maximum are 0.
    not_stored = math.copysign(math.inf, residual.factor)
    index = residual.running.index
    maximum = emit_loaded(residual.logarithm, not_stored, loop.results[index], builder, plain)
    if residual.factor != 1.0:
        factor = builder.value(
            arith.Constant(
                first_number(array_of(residual.factor, maximum.type), maximum.type), maximum.type
            )
        )
        maximum = builder.value(arith.Div(maximum, factor, False))
    found[index] = maximum
    return found


def emit_loaded(
    store: Store, other: float, like: Value, builder: Builder, plain: Callable[[Value], Value]
) -> Value:
    """The stored value, in the type of another one; `other` in lanes that were not stored."""
    mask = plain(store.mask) if store.mask is not None else None
    filled = None
    if mask is not None:
        filled = builder.value(arith.Constant(other, store.value.type))
    loaded = builder.value(Load(plain(store.ptr), mask, filled, "", "", False))
    element = element_of(like.type)
    if element_of(loaded.type) == element:
        return loaded
    assert isinstance(element, DType)
    return builder.value(arith.Cast(loaded, element, "rtne"))
