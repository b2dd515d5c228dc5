"""Reads arguments that have parts: tuples and tensor descriptors."""

from __future__ import annotations

from tilewright.lowering.emit import I64, V, array, const
from tilewright.runtime.descriptors import ALIGNMENT, EXTENT_LIMIT
from tilewright.runtime.kinds import ARRAY, DIVISIBLE, FOREIGN, TORCH, Kind
from tilewright.runtime.native import layout
from tilewright.runtime.native.keys import facts_of, new_slots, push, push_object
from tilewright.runtime.native.layout import TYPE_SHIFT
from tilewright.runtime.native.read import Argument, outlined, read_any, read_part, reads
from tilewright.runtime.native.routine import Routine

MAX_RANK = 5


@reads("tuple")
def read_tuple(r: Routine, a: Argument, kind: Kind) -> None:
    """A tuple: its size, its class (namedtuples differ), and its items, each with its own slot."""
    size = r.size_of(a.value)
    push(r, r.or_(r.shl(size, TYPE_SHIFT), layout.TUPLE))
    push_object(r, r.type_of(a.value))
    leaf = r.rt.part("leaf")
    with r.loop(0, size) as loop:
        slot = new_slots(r, 1)
        read_part(r, Argument(leaf, r.item(a.value, loop.index), slot))


@reads("descriptor")
@outlined
def read_descriptor(r: Routine, a: Argument) -> None:
    """A tensor descriptor. Words: those of its base tensor; then DESCRIPTOR with the rank, the
    padding, the rounding, and a bit for each extent divisible by 16; then the block shape. The
    extents and the strides of the array go into slots. Invalid descriptors take the slow path,
    where `check_descriptor` raises."""
    element = _read_base(r, a)
    blocks, numbers = (r.alloca(array(I64, MAX_RANK)) for _ in range(2))
    rank = _read_ints(r, a, "block_shape_name", blocks)
    r.require(r.icmp("sgt", rank, 0))
    first = new_slots(r, r.shl(rank, 1))
    r.require(r.eq(_read_ints(r, a, "shape_name", numbers), rank))
    divisible = _put_extents(r, a, numbers, rank, first)
    r.require(r.eq(_read_ints(r, a, "strides_name", numbers), rank))
    _put_strides(r, element, numbers, rank, r.add(first, rank))
    marks = r.or_(_padding(r, a), _rounding(r, a))
    word = r.or_(r.or_(r.shl(rank, TYPE_SHIFT), layout.DESCRIPTOR), marks)
    push(r, r.or_(word, r.shl(divisible, layout.DEVICE_SHIFT)))
    with r.loop(0, rank) as loop:
        push(r, r.load(I64, r.gep(I64, blocks, loop.index)))


def _read_base(r: Routine, a: Argument) -> V:
    """Read a descriptor's base tensor; returns its element type."""
    base = r.tried("PyObject_GetAttr", a.value, r.rt["base_name"])
    before = r.frame["word_count"]
    with r.owned(base):
        read_any(r, Argument(a.param, base, a.slot), [ARRAY, TORCH, FOREIGN])
    address = r.frame.get("slots", a.slot)
    r.require(r.not_(r.has(address, ALIGNMENT - 1)))
    return r.and_(r.lshr(r.frame.get("words", before), TYPE_SHIFT), 255)


def _read_ints(r: Routine, a: Argument, name: str, numbers: V) -> V:
    """Copy an attribute, a sequence of at most MAX_RANK ints, into an array; returns its length."""
    with r.owned(r.tried("PyObject_GetAttr", a.value, r.rt[name])) as sequence:
        count = r.api("PySequence_Size", sequence)
        r.require(r.icmp("ule", count, MAX_RANK), clear=True)
        with r.loop(0, count) as loop:
            object = r.tried("PySequence_GetItem", sequence, loop.index)
            with r.owned(object):
                r.require(r.is_a(object, "int"))
                number, overflow = r.int_of(object)
                r.require(r.eq(overflow, 0))
                r.store(number, r.gep(I64, numbers, loop.index))
    return count


def _put_extents(r: Routine, a: Argument, numbers: V, rank: V, slot: V) -> V:
    """Store extents, nonnegative int32s, into slots; returns a bit for each divisible by 16."""
    flags = a.param["flags"]
    with r.loop(0, rank, carried=[const(I64, 0)]) as loop:
        number = r.load(I64, r.gep(I64, numbers, loop.index))
        r.require(r.icmp("ult", number, EXTENT_LIMIT))
        r.frame.put("slots", r.add(slot, loop.index), number)
        holds = r.ne(facts_of(r, flags, number, DIVISIBLE), 0)
        bit = r.shl(r.zext(holds, I64), loop.index)
        loop.yield_([r.or_(loop.carried[0], bit)])
    return loop.results[0]


def _put_strides(r: Routine, element: V, numbers: V, rank: V, slot: V) -> None:
    """Store strides into slots: the last is 1, the others are multiples of the alignment."""
    size = r.rt.get("element_bytes", element)
    last = r.sub(rank, 1)
    with r.loop(0, rank) as loop:
        number = r.load(I64, r.gep(I64, numbers, loop.index))
        aligned = r.not_(r.has(r.mul(number, size), ALIGNMENT - 1))
        is_last = r.eq(loop.index, last)
        r.require(r.select(is_last, r.eq(number, 1), aligned))
        r.frame.put("slots", r.add(slot, loop.index), number)


def _padding(r: Routine, a: Argument) -> V:
    """0 for padding with zeros, NAN for padding with NaN; exits the routine for anything else."""
    return r.bit_if(_is_second(r, a, "padding_name", ("zero", "nan")), layout.NAN)


def _rounding(r: Routine, a: Argument) -> V:
    """ROUNDS if loads round to tf32, else 0; exits the routine for anything but a bool."""
    return r.bit_if(_is_second(r, a, "round_name", ("false", "true")), layout.ROUNDS)


def _is_second(r: Routine, a: Argument, attribute: str, objects: tuple[str, str]) -> V:
    """Whether an attribute is the second of two objects; exits the routine if it is neither."""
    with r.owned(r.tried("PyObject_GetAttr", a.value, r.rt[attribute])) as found:
        is_first, is_second = (r.eq(found, r.rt[name]) for name in objects)
        r.require(r.or_(is_first, is_second))
    return is_second
