"""Splits reductions of tiles that are too large for a target's fast memory into loops over parts.

    s = reduce(exp(load(p + arange(0, N))))     becomes    s = reduce(part 0)
                                                           for i in 1 … k - 1:
                                                               s = combine(s, reduce(part i))

Input: tile IR without layouts, with pointers in canonical form. Output: a reduction of loaded tiles
loads and reduces them part by part along its axis, in the order of the elements, so that it relies
only on the associativity of the combine function; the originals are left dead. For other uses, the
tiles are recomputed after the loops, next to the uses, so that `strip_mine` finds them together: a
softmax becomes two loops that reduce and one that stores.

It applies to reductions of elementwise functions of loads, if the loaded memory is not written
before the reduction, and the combine function is elementwise. The target determines the number of
parts. Linear in the number of ops for each reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tilewright.analysis.pointers import may_change
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Region, Value, is_tile
from tilewright.ir.passes import PassContext
from tilewright.ir.types import I32, shape_of, with_shape
from tilewright.ops import arith
from tilewright.ops.control import For, Yield
from tilewright.ops.memory import Load
from tilewright.ops.reduce import Reduce
from tilewright.passes.parts import MAX_RECOMPUTED, Part, divided_axes, is_index, operands_first

NAME = "reduce_in_parts"

Decide = Callable[[Sequence[Op], tuple[int, ...]], int]
"""The number of parts, a power of two, for the tiles of a sequence of ops to fit; 1 if they do."""


class _Source(NamedTuple):
    """The loads and ops from which a reduction computes its operands.

    Attributes:
        ops: in an order in which each follows its operands.
        axes: for each value of them, the axis along which it is divided.
    """

    ops: list[Op]
    axes: dict[Value, int]


def reduce_in_parts(fn: Function, ctx: PassContext, decide: Decide) -> bool:
    """Reduce large tiles part by part; see the module docstring."""
    regions: dict[Region, None] = {}
    for op in list(fn.walk()):
        if not isinstance(op, Reduce) or not is_elementwise(op.combine):
            continue
        source = _source(fn, op)
        shape = shape_of(op.srcs[0].type)
        parts = decide([*source.ops, op], shape) if source is not None else 1
        if source is not None and parts > 1 and shape[op.axis] % parts == 0:
            assert op.parent is not None
            regions[op.parent] = None
            ctx.did(
                NAME, f"a tile of {'x'.join(map(str, shape))} is reduced in {parts} parts", op.loc
            )
            ctx.count("reduced in parts")
            _rewrite(op, source, parts)
    for region in regions:
        _sink(fn, region)
    return bool(regions)


def is_elementwise(combine: Region) -> bool:
    """Whether a combine region can be applied to tiles: `combined`."""
    return all(op.terminator or (op.elementwise and not op.regions) for op in combine)


def _source(fn: Function, op: Reduce) -> _Source | None:
    """None if an operand cannot be computed part by part where it is reduced."""
    elsewhere: set[Op] = set()

    def may_divide(made: Op) -> bool:
        if made.parent is op.parent:
            return _stays(fn, made, op)
        elsewhere.add(made)
        return is_index(made) and len(elsewhere) <= MAX_RECOMPUTED

    axes = divided_axes([(value, op.axis) for value in op.srcs], may_divide)
    found = dict.fromkeys(v.op for v in axes or () if v.op is not None)
    if axes is None or not any(isinstance(o, Load) for o in found):
        return None
    return _Source(operands_first(found), axes)


def _stays(fn: Function, op: Op, until: Op) -> bool:
    """Whether an op has the same result at a later place of its region."""
    if not isinstance(op, Load):
        return op.pure and not op.regions
    return not op.volatile and not any(may_change(fn, o, op.ptr) for o in _between(op, until))


def _between(op: Op, until: Op) -> Iterator[Op]:
    after = op.next
    while after is not None and after is not until:
        yield after
        for region in after.regions:
            yield from region.walk()
        after = after.next


# -- transformation -------------------------------------------------------------------------------


def _rewrite(op: Reduce, source: _Source, parts: int) -> None:
    extent = shape_of(op.srcs[0].type)[op.axis]
    b = Builder()
    with b.before(op):
        b.loc = op.loc
        zero, first, stop = (b.value(arith.Constant(n, I32)) for n in (0, extent // parts, extent))
        inits = _reduced(b, op, source, zero, parts)
        body = Region([I32, *(v.type for v in inits)])
        with b.at_end(body):
            begin, *before = body.args
            b.insert(Yield(combined(b, op, before, _reduced(b, op, source, begin, parts))))
        loop = b.insert(For(first, stop, first, inits, num_stages=0, unroll=0, hints=(), body=body))
    for old, new in zip(op.results, loop.results, strict=True):
        old.replace_with(new)
    op.erase()


def _reduced(b: Builder, op: Reduce, source: _Source, begin: Value, parts: int) -> list[Value]:
    """The reduction of the part that begins at an index."""
    part = Part(b, source.axes, begin, parts)
    for made in source.ops:
        part.copy(made)
    reduction = op.clone(dict(part.mapping))
    b.insert(reduction)
    return list(reduction.results)


def combined(b: Builder, op: Reduce, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
    """The combining function, of the elements of tiles or of scalars."""
    shape = shape_of(left[0].type)
    mapping = dict(zip(op.combine.args, (*left, *right), strict=True))
    for inner in op.combine:
        if inner.terminator:
            break
        copy = inner.clone(mapping)
        for result in copy.results:
            result.type = with_shape(result.type, shape)
        if isinstance(copy, arith.Constant):
            copy.type = copy.result.type
        b.insert(copy)
    return [mapping.get(v, v) for v in op.combine.terminator.operands]


def _sink(fn: Function, region: Region) -> None:
    """Move loads of tiles, and ops on tiles, to their first use."""
    for op in reversed(list(region)):
        tiles = any(map(is_tile, op.results))
        if op.terminator or op.regions or not tiles or not (op.pure or isinstance(op, Load)):
            continue
        users = region.users_of(op)
        first = next((o for o in _following(op) if o in users), None)
        if first is not None and first is not op.next and _stays(fn, op, first):
            op.remove()
            region.insert_before(op, first)


def _following(op: Op) -> Iterator[Op]:
    after = op.next
    while after is not None:
        yield after
        after = after.next
