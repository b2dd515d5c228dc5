"""One computation of each value."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.memory import Load
from tilewright.ops.reduce import Reduce, Scan

Key = tuple[Any, ...]


@compiler_pass("cse")
def merge_equal_values(fn: Function, ctx: PassContext) -> bool:
    """Replace an op by an earlier one that computes the same value.

    Needs: verified SSA.  Leaves: no duplicates among ops without effects, nor among loads with no
    write between them.

    Keys are (op class, operands, attributes), for a reduction its combine region too. Only an op
    that dominates may replace: one before it in its region, or in a region around it.
    """
    merged = _Merger().region(fn.body, {})
    ctx.count("merged", merged)
    return merged > 0


class _Merger:
    def __init__(self) -> None:
        self.version = 0  # grows where memory may have changed; part of a load's key

    def region(self, region: Region, outer: dict[Key, Op]) -> int:
        """Merge within the region; `outer` are the ops that dominate it."""
        seen = outer
        added: list[Key] = []
        merged = 0
        for op in region:
            if op.terminator:
                continue
            key = self._key(op)
            if key is None:
                merged += self._nested(op, seen)
                continue
            first = seen.get(key)
            if first is None:
                seen[key] = op
                added.append(key)
                continue
            for old, new in zip(op.results, first.results, strict=True):
                old.replace_with(new)
            op.erase()
            merged += 1
        for key in added:
            del seen[key]
        return merged

    def _nested(self, op: Op, seen: dict[Key, Op]) -> int:
        writes = op.writes()
        # A loop's body may see what its end wrote.
        self.version += writes
        merged = 0
        for region in op.regions:
            merged += self.region(region, seen)
            self.version += writes
        return merged

    def _key(self, op: Op) -> Key | None:
        """Equal for ops that give equal results; None for an op that may not be merged."""
        if isinstance(op, Load):
            return None if op.volatile else (self.version, *_shallow_key(op))
        if op.reads_memory or op.writes_memory:
            return None
        if not op.regions:
            return _shallow_key(op)
        return _combine_key(op) if isinstance(op, Reduce | Scan) else None


def _attribute_key(value: Any) -> Hashable:
    """Tells 0.0 from -0.0 and takes a NaN as equal to itself."""
    return value.hex() if isinstance(value, float) else value


def _shallow_key(op: Op) -> Key:
    operands: list[Any] = op.operands
    if op.commutative and id(operands[0]) > id(operands[1]):
        operands = [operands[1], operands[0], *operands[2:]]
    attributes = [_attribute_key(getattr(op, name)) for name in op.attr_names]
    layouts = [r.layout for r in op.results]
    return (type(op), op.spans, *operands, *attributes, *layouts)


def _combine_key(op: Op) -> Key:
    """The key of an op with regions of its own values: these count by where they are defined."""
    numbers: dict[Value, int] = {}
    parts: list[Any] = [_shallow_key(op)]
    for region in op.regions:
        for arg in region.args:
            numbers[arg] = len(numbers)
        for inner in region:
            if inner.regions:
                return (op,)  # equal to itself only
            for result in inner.results:
                numbers[result] = len(numbers)
            attributes = [_attribute_key(getattr(inner, name)) for name in inner.attr_names]
            parts.append((type(inner), *[numbers.get(v, v) for v in inner.operands], *attributes))
    return tuple(parts)
