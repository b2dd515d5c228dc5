"""Reduces accumulators in each iteration of their loop instead of after it.

    for …:                                    for …:
        acc = where(mask, acc + x, acc)   →       s = s + sum(where(mask, x, 0), axis)
    s = sum(acc, axis)

An accumulator is in memory: each iteration loads and stores it, in the order of its elements,
regardless of the order in which x is contiguous. A reduction may choose its order, and keeps its
results in registers.

A reduction qualifies if all its operands are results of one loop, which combines them with tiles by
the reduction's own combine region, under one mask or none, and does not use them otherwise. Their
initial elements must be one constant c with combine(c, c) = c, such as 0 for sums: it replaces
masked-off elements, since one c is already among the reduced elements. Exact except for sums and
products of floats, whose order in reductions is unspecified. Linear in the number of ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.numbers import array_of, first_number, with_numbers
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import element_of
from tilewright.ops.arith import Constant, Select
from tilewright.ops.control import For
from tilewright.ops.numeric import Array
from tilewright.ops.reduce import Reduce
from tilewright.passes.reduce_in_parts import combined, is_elementwise

NAME = "advance_reductions"


class _Accumulation(NamedTuple):
    """A reduction of accumulators of a loop.

    Attributes:
        positions: of the accumulators among the loop-carried values.
        initial: the constants that they begin with.
        tiles: what an iteration combines them with.
        mask: where it does; None for everywhere.
    """

    reduce: Reduce
    loop: For
    positions: list[int]
    initial: list[Constant]
    tiles: list[Value]
    mask: Value | None


@compiler_pass(NAME)
def advance_reductions(fn: Function, ctx: PassContext) -> bool:
    """Reduce accumulators of loops in each iteration; see the module docstring.

    Leaves: accumulators that nothing uses, for dce.
    """
    changed = False
    for op in list(fn.walk()):
        found = _accumulation(op) if isinstance(op, Reduce) else None
        if found is not None:
            ctx.did(NAME, "fused into the loop before it: each iteration reduces a part", op.loc)
            ctx.count("advanced")
            _rewrite(found)
            changed = True
    return changed


# -- analysis -------------------------------------------------------------------------------------


def _accumulation(reduce: Reduce) -> _Accumulation | None:
    loop = reduce.srcs[0].op
    if not isinstance(loop, For) or not is_elementwise(reduce.combine):
        return None
    if any(v.op is not loop or sum(v.users.values()) != 1 for v in reduce.srcs):
        return None
    positions = [loop.results.index(v) for v in reduce.srcs]
    initial = [c for i in positions if isinstance(c := loop.inits[i].op, Constant)]
    if len(initial) < len(positions) or not _is_idempotent(reduce.combine, initial):
        return None
    matched = _Match(reduce, loop, positions)
    if not matched.succeeds():
        return None
    return _Accumulation(reduce, loop, positions, initial, matched.tiles(), matched.mask)


def _is_idempotent(combine: Region, numbers: Sequence[Constant]) -> bool:
    """Whether a combine region returns these numbers for twice these numbers."""
    identities = [array_of(n.value, element_of(n.type)) for n in numbers]
    values: dict[Value, Array] = dict(zip(combine.args, [*identities, *identities], strict=True))
    with np.errstate(all="ignore"):
        for op in combine:
            if not op.terminator:
                values[op.result] = with_numbers(op)(*(values[v] for v in op.operands))
    found = [first_number(values[v], v.type) for v in combine.terminator.operands]
    return found == [n.value for n in numbers]


class _Match:
    """Compares the updates of accumulators in a loop with the combine region of their reduction.

    Attributes:
        mask: of the updates; None if they have none.
    """

    def __init__(self, reduce: Reduce, loop: For, positions: list[int]) -> None:
        self.combine = reduce.combine
        self.end = loop.body.terminator
        self.body = loop.body
        self.mask: Value | None = None
        self.accumulators = [loop.body.args[i + 1] for i in positions]
        self.updated = [self.end.operands[i] for i in positions]
        count = len(positions)
        self.known = dict(zip(self.combine.args[:count], self.accumulators, strict=True))
        self.ops: set[Op] = set()

    def succeeds(self) -> bool:
        """Whether each accumulator is combined with a tile, and has no other use."""
        combined = [
            self._unmasked(new, old)
            for new, old in zip(self.updated, self.accumulators, strict=True)
        ]
        masks = {mask for _, mask in combined}
        if len(masks) > 1:
            return False
        (self.mask,) = masks
        results = self.combine.terminator.operands
        if not all(map(self._matches, results, [value for value, _ in combined])):
            return False
        return all(v in self.known for v in self.combine.args) and self._is_separate()

    def tiles(self) -> list[Value]:
        """The tiles with which the accumulators are combined."""
        return [self.known[v] for v in self.combine.args[len(self.accumulators) :]]

    def _unmasked(self, new: Value, old: Value) -> tuple[Value, Value | None]:
        if isinstance(new.op, Select) and new.op.on_false is old:
            self.ops.add(new.op)
            return new.op.on_true, new.op.condition
        return new, None

    def _matches(self, expected: Value, found: Value) -> bool:
        """Whether a value of the loop is that of the combine region, with the known arguments."""
        known = self.known.get(expected)
        if known is not None:
            return known is found
        if expected.op is None:
            self.known[expected] = found
            return True
        op, like = found.op, expected.op
        if op is None or type(op) is not type(like) or op.parent is not self.body:
            return False
        if isinstance(op, Constant) and isinstance(like, Constant):
            return op.value == like.value
        if op.attributes != like.attributes:
            return False
        if not all(map(self._matches, like.operands, op.operands)):
            return False
        self.known[expected] = found
        self.ops.add(op)
        return True

    def _is_separate(self) -> bool:
        """Whether the accumulators and values computed from them are used only by the updates."""
        if any(not self.ops.issuperset(v.users) for v in self.accumulators):
            return False
        if any(self.end.operands.count(v) != 1 for v in self.updated):
            return False
        inner = (v for op in self.ops for v in op.results)
        return all(
            self.ops.issuperset(set(v.users) - ({self.end} if v in self.updated else set()))
            for v in inner
        )


# -- transformation -------------------------------------------------------------------------------


def _rewrite(found: _Accumulation) -> None:
    """Replace the loop by one that also carries the results, so that the accumulators that it
    returns are unused."""
    reduce, old = found.reduce, found.loop
    types = [v.type for v in reduce.results]
    body = Region([*(v.type for v in old.body.args), *types])
    for op in old.body:
        op.remove()
        body.append(op)
    arguments = dict(zip(old.body.args, body.args, strict=False))
    for before, after in arguments.items():
        before.replace_with(after)
    _update(found, body, arguments)
    b = Builder()
    with b.before(old):
        starts = [b.value(Constant(c.value, t)) for c, t in zip(found.initial, types, strict=True)]
        new = b.insert(old.rebuilt([*old.inits, *starts], body))
    for before, after in zip([*old.results, *reduce.results], new.results, strict=True):
        before.replace_with(after)
    reduce.erase()
    old.erase()


def _update(found: _Accumulation, body: Region, arguments: dict[Value, Value]) -> None:
    """Reduce the tiles of an iteration, and combine the results with those before.

    Args:
        arguments: of the body, by those of the loop that is replaced; tiles and the mask may be
            among these.
    """
    reduce, end = found.reduce, body.terminator
    before = body.args[-len(reduce.results) :]
    b = Builder()
    with b.before(end):
        b.loc = reduce.loc
        tiles = [arguments.get(tile, tile) for tile in found.tiles]
        if found.mask is not None:
            mask = arguments.get(found.mask, found.mask)
            tiles = [
                b.value(Select(mask, tile, _repeated(b, c)))
                for tile, c in zip(tiles, found.initial, strict=True)
            ]
        parts = b.insert(Reduce(tiles, axis=reduce.axis, combine=reduce.combine.clone({})))
        after = combined(b, reduce, before, parts.results)
    end.add_operands(after)


def _repeated(b: Builder, constant: Constant) -> Value:
    return b.value(Constant(constant.value, constant.type))
