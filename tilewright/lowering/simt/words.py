"""Elements side by side, as memory and matrix instructions want them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import types as ir
from tilewright.lowering.emit import BF16, I8, Builder, V, int_type, poison, vector


def row(b: Builder, values: Sequence[V], type: ir.Type) -> V:
    """Registers of this element type as one vector, in the type that memory has; one as a scalar.

    Floats stay floats, so that LLVM can convert neighbours to a narrow type in one instruction.
    """
    natural = [_natural(b, v, type) for v in values]
    if len(natural) == 1:
        return natural[0]
    found = poison(vector(natural[0].type, len(natural)))
    for i, value in enumerate(natural):
        found = b.insert(found, value, i)
    return found


def _natural(b: Builder, value: V, type: ir.Type) -> V:
    if value.type.is_ptr:
        return b.ptrtoint(value)
    if value.type.bits == 1:
        return b.zext(value, I8)
    return b.bitcast(value, BF16) if ir.element_of(type) == ir.BF16 else value


def words(b: Builder, values: Sequence[V], type: ir.Type, bits: int = 32) -> list[V]:
    """The same as integers of so many bits, the first element lowest; all must fill them."""
    joined = row(b, values, type)
    total = joined.type.bits * (joined.type.lanes or 1)
    word = int_type(min(bits, total))
    if total <= bits:
        return [b.bitcast(joined, word)]
    count = total // bits
    whole = b.bitcast(joined, vector(word, count))
    return [b.extract(whole, i) for i in range(count)]
