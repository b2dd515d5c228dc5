"""Tensor maps of launches: encoded by the driver, and cached by their arguments.

A map is described by a `MapPlan`, which `runtime/launchers/tensor_maps.py` prepares: sums of
products of arguments. Maps are cached in a table that one launch may overwrite while the driver
copies the maps of another, so a launch passes copies in its own frame. The table is only accessed
with the GIL held.
"""

from __future__ import annotations

from tilewright.lowering.emit import I1, I8, I32, I64, I128, PTR, V, const
from tilewright.runtime.native.layout import (
    HASH_FACTOR,
    MAP_ALIGN,
    MAP_BYTES,
    MAP_SETS,
    MAX_MAP_EXTENT,
    MAX_MAP_STRIDE,
    MAX_RANK,
    PROMOTE_TO_128_BYTES,
    STRIDE_ALIGN,
    WORD,
)
from tilewright.runtime.native.routine import (
    MapPlan,
    MapSet,
    MapSum,
    Object,
    Record,
    Routine,
    routine,
)

INVALID = -(1 << 63)


@routine(I1, inline=True)
def add_tensor_maps(r: Routine, record: Record) -> None:
    """Store the addresses of the kernel's tensor maps after those of its arguments; false if Python
    has to create them, or to launch without."""
    count = record["map_count"]
    with r.when(r.eq(count, 0)):
        r.ret(True)
    number = _set_number(r, record)
    kept = r.ref("MapSet", record["map_sets"], number)
    size = r.mul(count, const(I64, MAP_BYTES))
    room = r.gep(I8, record["map_room"], r.mul(number, size))
    with r.when(r.xor(_is_kept(r, record, kept), True)):
        r.require(_make(r, record, kept, room))
    start = r.ptrtoint(r.frame.at("maps"), I64)
    maps = r.inttoptr(r.and_(r.add(start, MAP_ALIGN - 1), -MAP_ALIGN), PTR)
    r.copy(maps, room, r.mul(count, const(I64, MAP_BYTES // WORD)))
    with r.loop(0, count) as loop:
        place = r.gep(I8, maps, r.mul(loop.index, const(I64, MAP_BYTES)))
        r.frame.put("pointers", r.add(record["count"], loop.index), place)
    r.ret(True)


def _argument(r: Routine, record: Record, index: V) -> V:
    """The argument of this number among those that the maps depend on."""
    return r.frame.get("packed", record.get("map_arguments", index))


@routine(I64)
def _set_number(r: Routine, record: Record) -> None:
    """The place in the table for maps of these arguments."""
    hashed = r.alloca(I64)
    r.store(const(I64, 0), hashed)
    with r.loop(0, record["map_word_count"]) as loop:
        mixed = r.xor(r.load(I64, hashed), _argument(r, record, loop.index))
        r.store(r.mul(mixed, const(I64, HASH_FACTOR - (1 << 64))), hashed)
    r.ret(r.lshr(r.load(I64, hashed), 64 - MAP_SETS.bit_length() + 1))


@routine(I1)
def _is_kept(r: Routine, record: Record, kept: MapSet) -> None:
    """Whether the maps of this place are those of these arguments."""
    r.require(r.ne(kept["filled"], 0))
    with r.loop(0, record["map_word_count"]) as loop:
        r.require(r.eq(kept.get("words", loop.index), _argument(r, record, loop.index)))
    r.ret(True)


@routine(I1)
def _make(r: Routine, record: Record, kept: MapSet, room: Object) -> None:
    """Encode the maps of these arguments into their place in the table."""
    kept["filled"] = 0
    with r.loop(0, record["map_count"]) as loop:
        plan = r.ref("MapPlan", record["map_plans"], loop.index)
        place = r.gep(I8, room, r.mul(loop.index, const(I64, MAP_BYTES)))
        r.require(_encode(r, record, plan, place))
    with r.loop(0, record["map_word_count"]) as loop:
        kept.put("words", loop.index, _argument(r, record, loop.index))
    kept["filled"] = 1
    r.ret(True)


@routine(I1)
def _encode(r: Routine, record: Record, plan: MapPlan, place: Object) -> None:
    """Encode one map; false where the hardware can't describe the tensor, or it is empty."""
    rank, size = plan["rank"], plan["element_bytes"]

    def sum_of(number: V | int) -> V:
        found = _sum(r, plan.part("sums", number))
        r.require(r.ne(found, INVALID))
        return found

    base = r.add(r.frame.get("packed", plan["base"]), r.mul(sum_of(0), size))
    r.require(r.eq(r.and_(base, STRIDE_ALIGN - 1), 0))
    with r.loop(0, rank) as loop:
        extent = sum_of(r.add(loop.index, 1))
        r.require(r.icmp("ult", r.sub(extent, 1), MAX_MAP_EXTENT))
        r.frame.put("map_extents", loop.index, extent)
    with r.loop(1, rank) as loop:
        stride = sum_of(r.add(loop.index, MAX_RANK))
        r.require(r.icmp("ult", r.sub(stride, 1), MAX_MAP_STRIDE))
        stride = r.mul(stride, size)
        r.require(r.icmp("ult", stride, MAX_MAP_STRIDE))
        r.require(r.eq(r.and_(stride, STRIDE_ALIGN - 1), 0))
        r.frame.put("map_strides", r.sub(loop.index, 1), stride)
    zero = const(I32, 0)
    status = r.call(record["map_encode"], I32, [
        place, r.trunc(plan["type"], I32), r.trunc(rank, I32), r.inttoptr(base, PTR),
        r.frame.at("map_extents"), r.frame.at("map_strides"), plan.at("box"), plan.at("ones"),
        zero, r.trunc(plan["swizzle"], I32), const(I32, PROMOTE_TO_128_BYTES), zero,
    ])  # fmt: skip
    r.require(r.eq(status, 0))
    r.ret(True)


@routine(I64, failure=INVALID)
def _sum(r: Routine, terms: MapSum) -> None:
    """The value of a sum of products of arguments below 2^32; `INVALID` if there is a larger one,
    which Python multiplies exactly, or the sum does not fit into 62 bits."""
    with r.loop(0, terms["count"], carried=[const(I128, 0)]) as loop:
        term = terms.part("terms", loop.index)
        product = r.sext(term["factor"], I128)
        for side in ("left", "right"):
            index = term[side]
            absent = r.icmp("slt", index, 0)
            value = r.frame.get("packed", r.select(absent, const(I64, 0), index))
            value = r.select(absent, const(I64, 1), value)
            r.require(r.icmp("ult", r.add(value, 1 << 32), 1 << 33))
            product = r.mul(product, r.sext(value, I128))
        loop.yield_([r.add(loop.carried[0], product)])
    total = loop.results[0]
    found = r.trunc(total, I64)
    r.require(r.eq(r.sext(found, I128), total))
    r.require(r.icmp("ult", r.add(found, 1 << 62), const(I64, -(1 << 63))))
    r.ret(found)
