"""Common subexpression elimination, including loads.

Input and output: verified SSA. Afterwards there are no duplicates among pure ops, nor among
non-volatile loads without a write between them, where one dominates the other. One traversal with a
scoped hash table, linear in the number of ops: keys are (op class, operands, attributes), for loads
also a version of memory, for reductions and scans also the combine region.
"""

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
    """Replace ops by equal ops that dominate them: those that precede them in the same region or in
    an enclosing one."""
    merged = _Merger().region(fn.body, {})
    ctx.count("merged", merged)
    return merged > 0


class _Merger:
    def __init__(self) -> None:
        self.version = 0  # of memory: incremented at each possible write

    def region(self, region: Region, outer: dict[Key, Op]) -> int:
        """Merge the ops of the region; `outer` are the ops that dominate it. Returns the number of
        merged ops."""
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
        # The body of a loop reads what earlier iterations wrote.
        self.version += writes
        merged = 0
        for region in op.regions:
            merged += self.region(region, seen)
            self.version += writes
        return merged

    def _key(self, op: Op) -> Key | None:
        """A key that is equal for ops with equal results; None for an op that must not be
        merged."""
        if isinstance(op, Load):
            return None if op.volatile else (self.version, *_shallow_key(op))
        if op.reads_memory or op.writes_memory:
            return None
        if not op.regions:
            return _shallow_key(op)
        return _combine_key(op) if isinstance(op, Reduce | Scan) else None


def _attribute_key(value: Any) -> Hashable:
    """The key of an attribute, which distinguishes 0.0 from -0.0, and treats a NaN as equal to
    itself."""
    return value.hex() if isinstance(value, float) else value


def _shallow_key(op: Op) -> Key:
    operands: list[Any] = op.operands
    if op.commutative and id(operands[0]) > id(operands[1]):
        operands = [operands[1], operands[0], *operands[2:]]
    attributes = [_attribute_key(getattr(op, name)) for name in op.attr_names]
    layouts = [r.layout for r in op.results]
    return (type(op), op.spans, *operands, *attributes, *layouts)


def _combine_key(op: Op) -> Key:
    """The key of an op with regions, whose values are identified by the order of their
    definitions."""
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
