"""Operations on the Frame of a call: words of the key, slots, and references held for the call."""

from __future__ import annotations

from tilewright.lowering.emit import I1, I64, PTR, Operand, V, const
from tilewright.runtime.kinds import Fact
from tilewright.runtime.native.layout import BY, MAX_HELD, MAX_SLOTS, MAX_WORDS
from tilewright.runtime.native.routine import Object, Routine, routine

WORDS_LIMIT = MAX_WORDS - 16  # one argument pushes fewer than 16 words between `require_room`s


def push(r: Routine, *words: Operand) -> None:
    """Append words to the key."""
    count = r.frame["word_count"]
    for i, word in enumerate(words):
        r.frame.put("words", r.add(count, i), word)
    r.frame["word_count"] = r.add(count, len(words))


def push_object(r: Routine, object: V) -> None:
    """Append an object's address to the key. Whoever stores the key keeps the object alive."""
    push(r, r.ptrtoint(object))
    count = r.frame["object_count"]
    r.frame.put("objects", count, object)
    r.frame["object_count"] = r.add(count, 1)


def require_room(r: Routine) -> None:
    """Exit the routine unless the words of one more argument fit."""
    r.require(r.icmp("ult", r.frame["word_count"], WORDS_LIMIT))


def facts_of(r: Routine, flags: V, number: V, *facts: Fact) -> V:
    """The bits of the facts that a parameter (by its flags) is specialised on and a number has."""
    bits = const(I64, 0)
    for fact in facts:
        holds = r.eq(r.and_(number, fact.mask), fact.value)
        counts = r.has(flags, BY[fact.by])
        bits = r.or_(bits, r.bit_if(r.and_(counts, holds), fact.bit))
    return bits


def new_slots(r: Routine, count: V | int) -> V:
    """Allocate slots; returns the index of the first."""
    first = r.frame["slot_count"]
    after = r.add(first, count)
    r.require(r.icmp("ule", after, MAX_SLOTS))
    r.frame["slot_count"] = after
    return first


@routine(PTR)
def key_of(r: Routine) -> None:
    """The key of the call as a bytes object; null with an exception set."""
    size = r.shl(r.frame["word_count"], 3)
    r.ret(r.api("PyBytes_FromStringAndSize", r.frame.at("words"), size))


@routine(I1)
def hold(r: Routine, object: Object) -> None:
    """Keep an object alive until the call ends; steals the reference. Returns false, and releases
    the object, if there is no room."""
    count = r.frame["held_count"]
    with r.owned(object, unless_left=True):
        r.require(r.icmp("ult", count, MAX_HELD))
    r.frame.put("held", count, object)
    r.frame["held_count"] = r.add(count, 1)


def held(r: Routine, object: V, otherwise: int) -> V:
    """Keep a borrowed object alive until the call ends."""
    r.retain(object)
    r.require(hold(r, object), otherwise)
    return object


def release_held(r: Routine) -> None:
    """Release the objects that were kept alive for the call."""
    with r.loop(0, r.frame["held_count"]) as loop:
        r.release(r.frame.get("held", loop.index))
