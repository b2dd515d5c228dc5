"""Packing of registers into vectors and words, for memory accesses and matrix instructions."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import types as ir
from tilewright.lowering.emit import BF16, I8, I32, Builder, V, int_type, poison, vector
from tilewright.lowering.types import memory_type, register_type

WORD_BITS = 32


def row(b: Builder, values: Sequence[V], type: ir.Type) -> V:
    """Registers as one vector of the type's representation in memory; a single one as a scalar.

    Floats remain floats, so that LLVM can narrow adjacent elements by one packed instruction, but
    for parts of words: these are a vector of the words, which LLVM does not always recognise.
    """
    return joined(b, whole_words(values) or [_natural(b, v, type) for v in values])


def joined(b: Builder, values: Sequence[V]) -> V:
    """Values of one type as a vector; a single one as it is."""
    if len(values) == 1:
        return values[0]
    result = poison(vector(values[0].type, len(values)))
    for i, value in enumerate(values):
        result = b.insert(result, value, i)
    return result


def _natural(b: Builder, value: V, type: ir.Type) -> V:
    if value.type.is_ptr:
        return b.ptrtoint(value)
    if value.type.bits == 1:
        return b.zext(value, I8)
    return b.bitcast(value, BF16) if ir.element_of(type) == ir.BF16 else value


def words(b: Builder, values: Sequence[V], type: ir.Type, bits: int = 32) -> list[V]:
    """Registers as integers of `bits` bits, the first element in the lowest bits.

    The elements must fill whole integers, or else a single narrower one.
    """
    whole = row(b, values, type)
    total = whole.type.bits * (whole.type.lanes or 1)
    word = int_type(min(bits, total))
    if total <= bits:
        return [b.bitcast(whole, word)]
    count = total // bits
    whole = b.bitcast(whole, vector(word, count))
    return [b.extract(whole, i) for i in range(count)]


def note_words(b: Builder, whole: V, elements: Sequence[V]) -> None:
    """Note in `V.part` of the elements of a vector of integers which word contains each of them, if
    they fill whole words."""
    bits = elements[0].type.bits
    count, rest = divmod(bits * len(elements), WORD_BITS)
    if rest:
        return
    words = b.bitcast(whole, vector(I32, count) if count > 1 else I32)
    found = [b.extract(words, i) for i in range(count)] if count > 1 else [words]
    for i, element in enumerate(elements):
        element.part = found[i * bits // WORD_BITS], i * bits % WORD_BITS


class Words:
    """The elements of one access as integers: words of 32 bits, or of 64 for elements of 64.

    An access of fewer than 32 bits is one integer of its size. Attributes: `count` integers of
    `bits` bits hold `length` elements.
    """

    def __init__(self, b: Builder, type: ir.Type, length: int) -> None:
        self.b = b
        self.type = type
        self.register = register_type(type)
        self.element = memory_type(type)
        self.length = length
        bits = self.element.bits * length
        self.bits = min(bits, max(WORD_BITS, self.element.bits))
        self.count = bits // self.bits

    def pack(self, values: Sequence[V]) -> list[V]:
        """Convert elements to words."""
        return whole_words(values) or words(self.b, values, self.type, self.bits)

    def unpack(self, words: Sequence[V]) -> list[V]:
        """Convert words to elements, noting in `V.part` the word that contains each narrow one."""
        b = self.b
        if self.length == 1:
            return [self._to_register(words[0])]
        bits = self.element.bits
        if len(words) == 1:
            elements = b.bitcast(words[0], vector(int_type(bits), self.length))
        else:
            elements = joined(b, words)
            if bits != self.bits:
                elements = b.bitcast(elements, vector(int_type(bits), self.length))
        result = [self._to_register(b.extract(elements, i)) for i in range(self.length)]
        if bits < self.bits == WORD_BITS:
            for i, value in enumerate(result):
                place = i * bits
                value.part = words[place // WORD_BITS], place % WORD_BITS
        return result

    def _to_register(self, value: V) -> V:
        if self.register.is_ptr:
            return self.b.inttoptr(value)
        if self.register.bits == 1:
            return self.b.icmp("ne", value, 0)
        return self.b.bitcast(value, self.register)


def whole_words(values: Sequence[V]) -> list[V] | None:
    """The words that consist of exactly these values, in order; None if there are none.

    It lets values that were unpacked from words be packed again without instructions.
    """
    found: list[V] = []
    place = 0
    for value in values:
        if value.part is None or value.part[1] != place:
            return None
        word = value.part[0]
        if place == 0:
            found.append(word)
        elif word is not found[-1]:
            return None
        place = (place + value.type.bits) % WORD_BITS
    return found if place == 0 else None
