"""Derivatives of reductions, scans and products of tiles."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.autodiff.masked_values import is_finite
from tilewright.autodiff.registry import (
    AdjointPoint,
    Point,
    TangentPoint,
    adjoint,
    derivative_error,
)
from tilewright.autodiff.rules_scan import reduce_adjoint, scan_adjoint
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import (
    derivative_type,
    dtype_of,
    element_of,
    is_float,
    shape_of,
    with_shape,
)
from tilewright.ops import arith
from tilewright.ops.control import Yield
from tilewright.ops.dot import Dot
from tilewright.ops.reduce import Reduce, Scan, simple_combine
from tilewright.ops.shape import Permute


def _combine_of(op: Reduce | Scan) -> type[Op] | None:
    """The class of the one op that the combine function consists of."""
    found = simple_combine(op)
    return type(found) if found is not None else None


# -- tangents: the combine function on pairs of a value and its tangent ---------------------------


def _reduce_tangent(d: TangentPoint, op: Reduce) -> list[Value | None]:
    combine = _combine_of(op)
    t = d.tangent(op.srcs[0])
    if combine is arith.Add and t is not None:
        return [d.emit.sum(t, op.axis)]
    if combine in (arith.Max, arith.Min) and t is not None:
        chosen = _extremum_weights(d, op)
        return [d.emit.sum(d.emit.mul(t, chosen), op.axis)]
    return _dual(d, op)


def _scan_tangent(d: TangentPoint, op: Scan) -> list[Value | None]:
    t = d.tangent(op.srcs[0])
    if _combine_of(op) is arith.Add and t is not None:
        return [d.emit.running_sum(t, op.axis, op.reverse)]
    return _dual(d, op)


def _dual(d: TangentPoint, op: Reduce | Scan) -> list[Value | None]:
    """Combine values together with the tangents of those that are floats."""
    floats = [i for i, src in enumerate(op.srcs) if is_float(src.type)]
    tangents = [d.tangent(op.srcs[i]) for i in floats]
    if not any(t is not None for t in tangents):
        return [None] * len(op.results)
    zeros = [d.emit.zeros(derivative_type(op.srcs[i].type)) for i in floats]
    given = [t if t is not None else zero for t, zero in zip(tangents, zeros, strict=True)]
    plain = [d.plain(src) for src in op.srcs]
    n, m = len(plain), len(given)
    elements = [dtype_of(v.type) for v in (*plain, *given)]
    region = Region(elements * 2)
    left, right = region.args[: n + m], region.args[n + m :]
    with d.emit.builder.combining(region):
        values = [*left[:n], *right[:n]]
        changes: list[Value | None] = [None] * (2 * n)
        for k, i in enumerate(floats):
            changes[i], changes[n + i] = left[n + k], right[n + k]
        results, found = d.differentiated(op.combine_region, values, changes)
        ends = [found[i] for i in floats]
        kinds = [derivative_type(results[i].type) for i in floats]
        yielded = [
            e if e is not None else d.emit.zeros(k) for e, k in zip(ends, kinds, strict=True)
        ]
        d.emit.builder.insert(Yield([*results, *yielded]))
    made = type(op)([*plain, *given], combine=region, **op.attributes)
    d.emit.builder.insert(made)
    out: list[Value | None] = [None] * n
    for k, i in enumerate(floats):
        out[i] = made.results[n + k]
    return out


def _extremum_weights(d: Point, op: Reduce) -> Value:
    """Of an extremum along an axis: 1/n for the n elements that are it, 0 for others.

    It is reduced again here: none of the elements may be equal to one that another kernel has
    stored, which may have rounded them otherwise."""
    src = op.srcs[0]
    kind, elements = derivative_type(src.type), d.plain(src)
    again = op.clone({src: elements})
    d.emit.builder.insert(again)
    extremum = d.emit.repeated(again.results[0], src.type, op.axis)
    is_it = d.emit.compare(elements, extremum, "eq")
    ones = d.emit.where(is_it, d.emit.const(1.0, kind))
    count = d.emit.sum(ones, op.axis)
    return d.emit.div(ones, d.emit.repeated(count, kind, op.axis))


# -- adjoints -------------------------------------------------------------------------------------


@adjoint(Reduce, tangent=_reduce_tangent)
def _reduce(d: AdjointPoint, op: Reduce, adjoints: list[Value | None]) -> None:
    """Of a sum: repeated. Of an extremum: shared evenly by the elements that are it. Of others, as
    of a scan."""
    combine, src = _combine_of(op), op.srcs[0]
    y = adjoints[0]
    if combine not in (arith.Add, arith.Max, arith.Min) or y is None:
        reduce_adjoint(d, op, adjoints)
        return
    repeated = d.emit.repeated(y, derivative_type(src.type), op.axis)
    if combine is not arith.Add:
        repeated = d.emit.mul(repeated, _extremum_weights(d, op))
    d.give(src, repeated)


@adjoint(Scan, tangent=_scan_tangent)
def _scan(d: AdjointPoint, op: Scan, adjoints: list[Value | None]) -> None:
    """Of a running sum: the running sum from the other end."""
    y = adjoints[0]
    if _combine_of(op) is arith.Add and y is not None:
        d.give(op.srcs[0], d.emit.running_sum(y, op.axis, not op.reverse))
    else:
        scan_adjoint(d, op, adjoints)


def _dot_tangent(d: TangentPoint, op: Dot) -> list[Value | None]:
    kind = derivative_type(op.result.type)
    terms: list[Value] = []
    for index in (0, 1):
        t = d.tangent(op.operands[index])
        if t is not None:
            sides = [d.plain(op.lhs), d.plain(op.rhs)]
            sides[index] = d.emit.cast(d.emit.guarded(t), element_of(sides[index].type))
            terms.append(_product(d, sides, op))
    acc = d.tangent(op.acc)
    terms = [d.emit.cast(t, element_of(kind)) for t in terms]
    return [d.emit.total([*terms, *([acc] if acc is not None else [])])]


def _product(d: Point, sides: Sequence[Value], op: Dot) -> Value:
    """The product of two tiles, in fp32 or fp64."""
    lhs, rhs = sides
    lengths = (*shape_of(lhs.type)[:-1], shape_of(rhs.type)[-1])
    acc = d.emit.zeros(with_shape(derivative_type(op.acc.type), lengths))
    return d.emit.op(Dot(lhs, rhs, acc, op.precision, op.max_imprecise))


@adjoint(Dot, tangent=_dot_tangent)
def _dot(d: AdjointPoint, op: Dot, adjoints: list[Value | None]) -> None:
    """Of a @ b + c: y bᵀ, aᵀ y and y, with y in the type of the operand that it multiplies."""
    (y,) = adjoints
    assert y is not None
    if dtype_of(op.lhs.type).is_fp8():
        raise derivative_error(
            op, "no gradient through tl.dot of fp8: the adjoint would be rounded to fp8"
        )
    for index in (0, 1):
        if d.is_active(op.operands[index]):
            _give_factor(d, op, index, y)
    d.give(op.acc, y)


def _give_factor(d: AdjointPoint, op: Dot, index: int, y: Value) -> None:
    """Add the adjoint of a factor. If the factor is the transpose of another tile, the transposed
    product is added to that tile's adjoint, which saves a transpose."""
    factor, other = op.operands[index], op.operands[1 - index]
    rank = len(shape_of(factor.type))
    rows, columns = rank - 2, rank - 1
    swap = (*range(rank - 2), columns, rows)
    added, kept = (rows, columns) if index else (columns, rows)
    y_like = d.emit.cast(d.emit.guarded(y), element_of(other.type))
    with_it = d.emit.factor(d.plain(other), y_like, added)
    exact, batch = is_finite(with_it), {a: a for a in range(rank - 2)}
    source = factor.op
    if isinstance(source, Permute) and source.order == swap and source.parent is op.parent:
        sides = [with_it, d.emit.op(Permute(y_like, swap))]
        product = _product(d, sides if index == 0 else sides[::-1], op)
        axes = {**batch, kept: added}
        d.give(source.src, d.emit.of_axes(product, y_like, axes, exact=exact))
        return
    sides = [y_like, d.emit.builder.value(Permute(with_it, swap))]
    product = _product(d, sides if index == 0 else sides[::-1], op)
    d.give(factor, d.emit.of_axes(product, y_like, {**batch, kept: kept}, exact=exact))
