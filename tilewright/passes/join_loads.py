"""Merges loads of adjacent fields of elements into one load with wider accesses.

    x = load(p + 4 * i)                becomes      v = load(p + 4 * i[:, None] + arange(0, 4))
    y = load(p + (4 * i + 1))                       x, y, z, w = the columns of v
    z = load(p + (4 * i + 2))
    w = load(p + (4 * i + 3))

Arrays of boxes, complex numbers or pairs are loaded in this way. Each of the loads accesses as many
sectors of memory as the merged one, with an access for each element.

Input: tile IR with pointers in canonical form. Output: the same effects; dead ops are left to dce.
Loads are merged if they differ only in a constant offset, memory is not written between them, all
fields are loaded, and elements of a tile are not adjacent: the fields of an element are aligned,
and together a power of two of bytes, at least `LEAST_BYTES`. Linear in the number of ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_before
from tilewright.ir.types import I32, I64, Tile, dtype_of, element_of, shape_of
from tilewright.ops.arith import Add, Cast, Constant, constant_value
from tilewright.ops.dot import Dot
from tilewright.ops.memory import AddPtr, Load
from tilewright.ops.shape import Arange, Broadcast, Reshape, Splat, Split, broadcast_along

NAME = "join_loads"
LEAST_BYTES = 8
"""Of the fields of an element. Threads have elements in another order than those of other tiles
then: for pairs of 2 bytes, the step of a convolution took 177 instead of 135 instructions."""


class _Place(NamedTuple):
    """The common part of loads of fields of the same elements."""

    base: Value
    offsets: Value
    mask: Value | None
    other: Value | None
    cache: str
    evict: str


_Fields = dict[int, Load]  # by their offset from the base, in elements


@compiler_pass(NAME)
def join_loads(fn: Function, ctx: PassContext) -> bool:
    """Load adjacent fields at once; see the module docstring."""
    groups: list[tuple[_Place, _Fields]] = []
    _collect(fn.body, groups)
    groups = [(place, fields) for place, fields in groups if len(fields) > 1]
    if not groups:
        return False
    infos = axis_info(fn)
    joined = 0
    for place, fields in groups:
        for run in _runs(fields, infos, ctx.gpu.access_bytes):
            loads = [fields[at] for at in run]
            ctx.did(NAME, f"loads {len(run)} adjacent fields of each element at once", loads[0].loc)
            _join(place, run[0], loads, next(op for op in fields.values() if op in loads))
            joined += len(run)
    ctx.count("joined", joined)
    return joined > 0


def _collect(region: Region, groups: list[tuple[_Place, _Fields]]) -> None:
    """Add the loads of a region by their places, in groups between which memory is written."""
    current: dict[_Place, _Fields] = {}
    for op in region:
        for inner in op.regions:
            _collect(inner, groups)
        found = _field(op)
        if found is not None:
            place, at, load = found
            current.setdefault(place, {}).setdefault(at, load)
        elif op.writes():
            groups += current.items()
            current = {}
    groups += current.items()


def _field(op: Op) -> tuple[_Place, int, Load] | None:
    """The place of a load of a tile, and its offset from there."""
    if not isinstance(op, Load) or op.volatile or not isinstance(op.result.type, Tile):
        return None
    ptr = op.ptr.op
    if not isinstance(ptr, AddPtr) or not isinstance(ptr.ptr.op, Splat):
        return None
    if any(isinstance(user, Dot) for user in op.result.users):
        return None  # operands are copied as they lie in memory
    base, at = ptr.ptr.op.src, 0
    if isinstance(base.op, AddPtr) and (offset := constant_value(base.op.offset)) is not None:
        base, at = base.op.ptr, int(offset)
    return _Place(base, ptr.offset, op.mask, op.other, op.cache, op.evict), at, op


def _runs(fields: _Fields, infos: AxisMap, access_bytes: int) -> list[range]:
    """The runs of adjacent fields that one access per element loads, as long as possible."""
    result: list[range] = []
    size = element_of(next(iter(fields.values())).result.type).nbytes_in_memory
    for at in sorted(fields):
        if result and at in result[-1]:
            continue
        count = access_bytes // size
        while count > 1 and count * size >= LEAST_BYTES:
            run = range(at, at + count)
            if all(i in fields for i in run) and _is_aligned(fields[at], count, size, infos):
                result.append(run)
                break
            count //= 2
    return result


def _is_aligned(load: Load, count: int, size: int, infos: AxisMap) -> bool:
    """Whether `count` elements from each element on are an aligned access. The offset is a multiple
    of their number, too, so that those of its neighbours do not overflow."""
    assert isinstance(load.ptr.op, AddPtr)
    info, offsets = infos[load.ptr], infos[load.ptr.op.offset]
    return (
        all(run == 1 for run in info.contiguity)
        and all(multiple % (count * size) == 0 for multiple in info.divisibility)
        and all(run == 1 for run in offsets.contiguity)
        and all(multiple % count == 0 for multiple in offsets.divisibility)
    )


def _join(place: _Place, at: int, loads: Sequence[Load], first: Load) -> None:
    """Load fields from `at` on before the first of their loads, and replace these."""
    shape = (*shape_of(first.result.type), len(loads))

    def insert(op: Op) -> Value:
        return insert_before(op, first).results[0]

    def widened(value: Value) -> Value:
        return broadcast_along(insert, value, (len(shape) - 1,), shape)

    base = insert(AddPtr(place.base, insert(Constant(at, I64)))) if at else place.base
    within = insert(Arange(0, len(loads)))
    if dtype_of(place.offsets.type) != I32:
        within = insert(Cast(within, dtype_of(place.offsets.type), "rtne"))
    one_row = insert(Reshape(within, (*[1] * (len(shape) - 1), len(loads))))
    offsets = insert(Add(widened(place.offsets), insert(Broadcast(one_row, shape))))
    ptr = insert(AddPtr(insert(Splat(base, shape)), offsets))
    mask, other = (value and widened(value) for value in (place.mask, place.other))
    joined = insert(Load(ptr, mask, other, **first.attributes))
    for load, field in zip(loads, _columns(joined, first), strict=True):
        load.result.replace_with(field)
        load.erase()


def _columns(value: Value, anchor: Op) -> Sequence[Value]:
    """The slices along the last axis of a tile, computed before the anchor."""
    *shape, count = shape_of(value.type)
    if count > 2:
        value = insert_before(Reshape(value, (*shape, count // 2, 2)), anchor).result
    even, odd = insert_before(Split(value), anchor).results
    if count == 2:
        return even, odd
    halves = zip(_columns(even, anchor), _columns(odd, anchor), strict=True)
    return [column for pair in halves for column in pair]
