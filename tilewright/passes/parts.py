"""Computing a part of each tile of a sequence of ops, for `strip_mine` and `reduce_in_parts`.

A tile is divided into equal parts along an axis, which may differ from value to value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import gcd

from tilewright.ir.builder import Builder
from tilewright.ir.core import Op, Value, is_tile
from tilewright.ir.index_map import Along, Every
from tilewright.ir.types import is_float, shape_of, with_shape
from tilewright.ops import arith
from tilewright.ops.memory import Load
from tilewright.ops.shape import Arange, Broadcast, Reshape, Splat
from tilewright.ops.view import View

MAX_RECOMPUTED = 16  # the maximum number of index ops outside the sequence to recompute per part


class Part:
    """The body of the loop: computes the part of each value that starts at index `begin` along its
    axis, one of `parts` equal ones."""

    def __init__(self, b: Builder, axes: dict[Value, int], begin: Value, parts: int) -> None:
        self.b = b
        self.axes = axes
        self.begin = begin
        self.parts = parts
        self.mapping: dict[Value, Value] = {}

    def copy(self, op: Op) -> None:
        """Insert a copy of the op that computes a part of its result."""
        copy = op.clone(self.mapping)
        for old, new in zip(op.results, copy.results, strict=True):
            axis = self.axes[old]
            shape = list(shape_of(old.type))
            shape[axis] //= self.parts
            new.type = with_shape(old.type, tuple(shape))
            match copy:
                case Splat() | Broadcast() | Reshape():
                    copy.shape = tuple(shape)
                case arith.Constant():
                    copy.type = new.type
                case Arange():
                    copy.end = copy.start + shape[axis]
                case arith.Hint():
                    # A part may start in the middle of a run.
                    facts = list(copy.divisibility)
                    facts[axis] = gcd(facts[axis], shape[axis]) if facts[axis] else 0
                    copy.divisibility = tuple(facts)
                case _:
                    pass
        self.b.insert(copy)
        if isinstance(copy, Arange):
            begin = self.b.value(Splat(self.begin, shape_of(copy.result.type)))
            self.mapping[op.results[0]] = self.b.value(arith.Add(copy.result, begin))


def operands_first(ops: dict[Op, None]) -> list[Op]:
    """The ops in topological order. The recursion is bounded by `MAX_RECOMPUTED`."""
    ordered: dict[Op, None] = {}

    def visit(op: Op) -> None:
        for value in op.operands:
            if value.op in ops and value.op not in ordered:
                visit(value.op)
        ordered[op] = None

    for op in ops:
        if op not in ordered:
            visit(op)
    return list(ordered)


def divided_axes(
    values: Iterable[tuple[Value, int]], may_divide: Callable[[Op], bool]
) -> dict[Value, int] | None:
    """The axes along which values are divided if `values`, each with an axis, are computed part by
    part: theirs, and those of all values that they depend on. None if a value would be divided
    along two axes, or an op cannot be divided or, by `may_divide`, must not be."""
    axes: dict[Value, int] = {}
    pending = list(values)
    while pending:
        value, axis = pending.pop()
        if value in axes:
            if axes[value] != axis:
                return None
            continue
        op = value.op
        needed = None if op is None else operand_axes(op, axis)
        if op is None or needed is None or not may_divide(op):
            return None
        axes[value] = axis
        pending += [(v, a) for v, a in zip(op.operands, needed, strict=True) if a is not None]
    return axes


def pressure(ops: Sequence[Op], shape: tuple[int, ...], cost: Callable[[Value], int]) -> int:
    """The maximum cost of the tiles of a shape that are live at a time while a sequence of ops
    runs, for each of their elements. Values that do not depend on loads are assumed to be
    rematerialised, and do not count.

    Args:
        cost: of an element of a value, in any unit.
    """
    steps = [(op, list(_reads(op))) for op in ops if not _is_fused(op)]
    last = {v: op for op, needed in steps for v in needed}
    loaded: set[Value] = set()
    now = peak = 0
    for op, needed in steps:
        if isinstance(op, Load) or any(v in loaded for v in needed):
            live = [r for r in op.results if shape_of(r.type) == shape and r in last]
            loaded.update(live)
            now += sum(map(cost, live))
        now -= sum(cost(v) for v in set(needed) & loaded if last[v] is op)
        peak = max(peak, now)
    return peak


def _is_fused(op: Op) -> bool:
    """Whether the op is a product that is fused with its only user to an fma."""
    if not isinstance(op, arith.Mul) or not is_float(op.result.type):
        return False
    users = list(op.result.users)
    return len(users) == 1 and isinstance(users[0], arith.Add | arith.Sub)


def _reads(op: Op) -> Iterator[Value]:
    """The values that the instruction of an op reads."""
    for value in op.operands:
        if value.op is not None and _is_fused(value.op):
            yield from value.op.operands
        else:
            yield value


def is_index(op: Op) -> bool:
    """Whether the op is cheap to recompute: a constant, or arithmetic of indices, masks and
    pointers without divisions."""
    if isinstance(op, arith.Constant | Arange) or (isinstance(op, View) and op.aligned):
        return True
    costs = isinstance(op, arith.IntDiv | arith.Rem) or any(is_float(r.type) for r in op.results)
    return op.elementwise and not costs


def operand_axes(op: Op, axis: int) -> list[int | None] | None:
    """For each operand, the axis along which it is divided if the result is divided along `axis`;
    None for an operand that is used whole. Returns None if the result cannot be divided."""
    if op.elementwise or isinstance(op, Load):
        return [axis if is_tile(v) else None for v in op.operands]
    if isinstance(op, Arange):
        return []
    found = op.index_maps()[0] if isinstance(op, View) and op.aligned else None
    match found and found.inverse().axes[axis]:
        case Along(own):
            return [own]
        case Every():
            return [None]
        case _:
            return None
