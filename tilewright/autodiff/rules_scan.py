"""Adjoints of scans and reductions with any combine function.

    y[0] = x[0],   y[i] = f(y[i - 1], x[i])

Let A[i] and B[i] be the partial derivatives of f at (y[i - 1], x[i]). The adjoint of y[i],
including the contribution of y[i + 1], is

    λ[i] = ȳ[i] + A[i + 1]ᵀ λ[i + 1],      x̄[i] = B[i]ᵀ λ[i],      x̄[0] = λ[0]

a recurrence of affine maps v + T λ, whose composition is associative: a reverse scan over pairs
(T, v). T has an entry for each pair of components, except those that are always zero.

A reduction is treated as the last element of a scan.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.autodiff.combine_on_tiles import CombineOnTiles
from tilewright.autodiff.emitter import Emitter
from tilewright.autodiff.registry import AdjointPoint
from tilewright.ir.core import Region, Value
from tilewright.ir.types import (
    FP32,
    FP64,
    I32,
    DType,
    Type,
    derivative_type,
    element_of,
    is_float,
    shape_of,
    with_element,
    with_shape,
)
from tilewright.ops import arith
from tilewright.ops.control import Yield
from tilewright.ops.reduce import Reduce, Scan
from tilewright.ops.shape import Gather

Pairs = dict[tuple[int, int], Value]


def scan_adjoint(d: AdjointPoint, op: Scan, adjoints: Sequence[Value | None]) -> None:
    """Add the adjoints of a scan to those of its operands."""
    results = [d.plain(r) for r in op.results]
    found = _Recurrence(d, op, results, op.reverse).adjoints(adjoints)
    for src, y in zip(op.srcs, found, strict=True):
        d.give(src, y)


def reduce_adjoint(d: AdjointPoint, op: Reduce, adjoints: Sequence[Value | None]) -> None:
    """Add the adjoints of a reduction to those of its operands."""
    made = Scan(
        [d.plain(src) for src in op.srcs], op.axis, False, _copied(d.emit, op.combine_region)
    )
    results = d.emit.builder.insert(made).results
    recurrence = _Recurrence(d, op, results, reverse=False)
    last = recurrence.is_at(shape_of(op.srcs[0].type)[op.axis] - 1)
    given: list[Value | None] = []
    for src, y in zip(op.srcs, adjoints, strict=True):
        if y is not None:
            y = d.emit.where(last, d.emit.repeated(y, derivative_type(src.type), op.axis))
        given.append(y)
    for src, y in zip(op.srcs, recurrence.adjoints(given), strict=True):
        d.give(src, y)


class _Recurrence:
    """The elements of a scan along an axis, and their adjoints.

    Args:
        d: the place.
        op: the scan, or the reduction.
        results: those of the scan, here.
        reverse: whether it goes from the last element to the first.
    """

    def __init__(
        self, d: AdjointPoint, op: Scan | Reduce, results: Sequence[Value], reverse: bool
    ) -> None:
        self._emit, self._region, self._axis = d.emit, op.combine_region, op.axis
        self._reverse, self._results = reverse, list(results)
        self._elements = [d.plain(src) for src in op.srcs]
        self._floats = [i for i, v in enumerate(self._elements) if is_float(v.type)]
        wide = any(element_of(v.type) == FP64 for v in self._elements)
        self._element: DType = FP64 if wide else FP32
        self._shape = shape_of(self._elements[0].type)
        self._first = self._shape[self._axis] - 1 if reverse else 0

    @property
    def _type(self) -> Type:
        return with_element(self._elements[self._floats[0]].type, self._element)

    def adjoints(self, given: Sequence[Value | None]) -> list[Value | None]:
        """The adjoints of the elements, from those of the results."""
        emit = self._emit
        parts = self._parts_by_result()
        reached = {i for i in self._floats if given[i] is not None}
        while more := {c for (r, c) in parts if r in reached} - reached:
            reached |= more
        parts = {(r, c): a for (r, c), a in parts.items() if r in reached}
        totals = self._scanned(given, sorted(reached), parts)
        if not totals:
            return [None] * len(given)
        before = [self._shifted(v, -1) for v in self._results]
        combine = CombineOnTiles(emit, self._region, [*before, *self._elements])
        back = combine.pulled_back([totals.get(i) for i in range(len(given))])[len(given) :]
        differs = self._any_differs(list(totals.values()))
        found: list[Value | None] = []
        for i, y in enumerate(back):
            if y is None and i not in totals:
                found.append(None)
                continue
            zeros = emit.zeros(self._type)
            later = emit.cast(y, self._element) if y is not None else zeros
            kept = emit.where(self.is_at(self._first), totals.get(i, zeros), later)
            emit.zero_outside(kept, differs)
            found.append(kept)
        return found

    def _parts_by_result(self) -> Pairs:
        """∂f_r/∂a_c where f computes the next result, by (r, c), unless it is always zero; of the
        last element anything."""
        emit, count = self._emit, len(self._elements)
        after = [self._shifted(v, 1) for v in self._elements]
        combine = CombineOnTiles(emit, self._region, [*self._results, *after])
        found: Pairs = {}
        for r in self._floats:
            one: list[Value | None] = [None] * count
            one[r] = emit.const(1.0, derivative_type(self._results[r].type))
            for c, part in enumerate(combine.pulled_back(one)[:count]):
                if part is not None:
                    found[r, c] = emit.cast(part, self._element)
        return found

    def _scanned(
        self, given: Sequence[Value | None], reached: Sequence[int], parts: Pairs
    ) -> dict[int, Value]:
        """The adjoint of each component of the results, with the contributions of later results."""
        emit = self._emit
        pairs = closed({(c, r) for r, c in parts})
        zeros = emit.zeros(self._type)
        ends = [given[i] for i in reached]
        values = [zeros if y is None else emit.cast(emit.guarded(y), self._element) for y in ends]
        factors = [parts.get((r, c), zeros) for c, r in pairs]
        if not values:
            return {}
        count = len(values) + len(factors)
        region = Region([self._element] * (2 * count))
        with emit.builder.combining(region):
            self._compose(region.args[:count], region.args[count:], reached, pairs)
        made = Scan([*values, *factors], self._axis, not self._reverse, region)
        results = emit.builder.insert(made).results
        return {i: emit.zero_with_itself(y) for i, y in zip(reached, results, strict=False)}

    def _compose(
        self, running: Sequence[Value], here: Sequence[Value], reached: Sequence[int],
        pairs: Sequence[tuple[int, int]],
    ) -> None:  # fmt: skip
        """Yield the composition v + T (v' + T' λ) of two affine maps, each v and entries of T."""
        emit, n = self._emit, len(reached)
        places = {pair: n + i for i, pair in enumerate(pairs)}
        yielded: list[Value] = []
        for i, c in enumerate(reached):
            total = here[i]
            for j, r in enumerate(reached):
                if (c, r) in places:
                    total = emit.add(total, self._passed(here[places[c, r]], running[j]))
            yielded.append(total)
        for c, r in pairs:
            terms = [
                emit.mul(here[places[c, k]], running[places[k, r]])
                for k in reached
                if (c, k) in places and (k, r) in places
            ]
            yielded.append(emit.total(terms) or emit.zeros(self._element))
        emit.builder.insert(Yield(yielded))

    def _passed(self, factor: Value, ahead: Value) -> Value:
        """The contribution of later elements: none for zeros, whatever the factor is in masked-off
        lanes."""
        differs = self._emit.compare(ahead, self._emit.zeros(ahead.type), "ne")
        return self._emit.where(differs, self._emit.mul(factor, ahead))

    def _any_differs(self, values: Sequence[Value]) -> Value:
        """The lanes in which one of the values is not zero."""
        mask: Value | None = None
        for value in values:
            differs = self._emit.compare(value, self._emit.zeros(value.type), "ne")
            mask = differs if mask is None else self._emit.builder.value(arith.Or(mask, differs))
        assert mask is not None
        return mask

    # -- positions --------------------------------------------------------------------------------

    def _positions(self) -> Value:
        """The position of each element along the axis."""
        return self._emit.positions(self._shape, self._axis)

    def is_at(self, position: int) -> Value:
        """The mask of the elements at a position."""
        number = self._emit.integer(position, with_shape(I32, self._shape))
        return self._emit.compare(self._positions(), number, "eq")

    def _shifted(self, value: Value, by: int) -> Value:
        """For each element the one that comes so many later in the scan; any at the end."""
        step = self._emit.integer(-by if self._reverse else by, with_shape(I32, self._shape))
        at = self._emit.builder.value(arith.Add(self._positions(), step))
        return self._emit.builder.value(Gather(value, at, self._axis))


def closed(pairs: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs, and those of which products of such matrices have entries."""
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs = pairs | more
    return sorted(pairs)


def _copied(emit: Emitter, region: Region) -> Region:
    """A copy of a combine function."""
    made = Region([a.type for a in region.args])
    mapping = dict(zip(region.args, made.args, strict=True))
    with emit.builder.combining(made):
        for op in region:
            emit.builder.insert(op.clone(mapping))
    return made
