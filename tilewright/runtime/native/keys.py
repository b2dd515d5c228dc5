"""What reading a call writes into its Frame: words of the key, and slots."""

from __future__ import annotations

from tilewright.lowering.emit import I1, I64, PTR, Operand, V, const
from tilewright.runtime.kinds import Fact
from tilewright.runtime.native.layout import BY, MAX_HELD, MAX_SLOTS, MAX_WORDS
from tilewright.runtime.native.routine import Object, Routine, routine

WORDS_LIMIT = MAX_WORDS - 16  # what is read at once takes fewer


def push(r: Routine, *words: Operand) -> None:
    """More words of the key."""
    count = r.frame["word_count"]
    for i, word in enumerate(words):
        r.frame.put("words", r.add(count, i), word)
    r.frame["word_count"] = r.add(count, len(words))


def push_object(r: Routine, object: V) -> None:
    """An object's address as a word of the key; the object will be kept with it."""
    push(r, r.ptrtoint(object))
    count = r.frame["object_count"]
    r.frame.put("objects", count, object)
    r.frame["object_count"] = r.add(count, 1)


def require_room(r: Routine) -> None:
    """Leave the routine unless the words of one more argument fit."""
    r.require(r.icmp("ult", r.frame["word_count"], WORDS_LIMIT))


def facts_of(r: Routine, flags: V, number: V, *facts: Fact) -> V:
    """The bits of those facts that count for a parameter and hold for a number."""
    bits = const(I64, 0)
    for fact in facts:
        holds = r.eq(r.and_(number, fact.mask), fact.value)
        counts = r.has(flags, BY[fact.by])
        bits = r.or_(bits, r.bit_if(r.and_(counts, holds), fact.bit))
    return bits


def new_slots(r: Routine, count: V | int) -> V:
    """The number of the first of so many more slots."""
    first = r.frame["slot_count"]
    after = r.add(first, count)
    r.require(r.icmp("ule", after, MAX_SLOTS))
    r.frame["slot_count"] = after
    return first


@routine(PTR)
def key_of(r: Routine) -> None:
    """The words of the call as bytes; null with an exception set."""
    size = r.shl(r.frame["word_count"], 3)
    r.ret(r.api("PyBytes_FromStringAndSize", r.frame.at("words"), size))


@routine(I1)
def hold(r: Routine, object: Object) -> None:
    """Keep an object, whose reference it takes over, until the call ends; false when it cannot, and
    then the object is given up."""
    count = r.frame["held_count"]
    with r.owned(object, unless_left=True):
        r.require(r.icmp("ult", count, MAX_HELD))
    r.frame.put("held", count, object)
    r.frame["held_count"] = r.add(count, 1)


def held(r: Routine, object: V, otherwise: int) -> V:
    """An object with a reference of its own for as long as the call lasts."""
    r.retain(object)
    r.require(hold(r, object), otherwise)
    return object


def release_held(r: Routine) -> None:
    """Give up what the call has kept."""
    with r.loop(0, r.frame["held_count"]) as loop:
        r.release(r.frame.get("held", loop.index))
