"""Staging of a value in the scratch of an op: row-major, readable by all threads.

The writer ends with a barrier; a second write needs a barrier before it, which is the caller's
responsibility.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir.core import Op, Value
from tilewright.ir.types import shape_of
from tilewright.layout.linear import REGISTER
from tilewright.lowering.emit import I32, V, const, int_type
from tilewright.lowering.simt.convert import from_bits, to_bits
from tilewright.lowering.simt.kernel import Kernel, Registers
from tilewright.lowering.simt.memory import one_of_many
from tilewright.lowering.simt.shared_stores import shared_stores
from tilewright.lowering.types import memory_type

FLAT = "flat"


def staged_bytes(value: Value) -> int:
    """Bytes of scratch that `Staged` requires for a value."""
    return prod(shape_of(value.type)) * memory_type(value.type).bits // 8


class Staged:
    """A value that is written to the scratch of an op, and then read from there.

    Args:
        kernel: the kernel to emit into.
        op: the op that owns the scratch, of `staged_bytes` or more.
        value: the value to stage; determines type and layout only.
    """

    def __init__(self, kernel: Kernel, op: Op, value: Value) -> None:
        self.kernel = kernel
        self.value = value
        self.bits = int_type(memory_type(value.type).bits)
        self.base = kernel.shared.address(kernel.b, op)

    def write(self, values: Sequence[V]) -> None:
        """Write each element, by its first holder, and wait for all threads."""
        kernel, b = self.kernel, self.kernel.b
        layout = self.value.layout
        copies = layout.free_variables(REGISTER) if layout is not None else 0
        places = self.own_places()
        own = [register for register in range(len(values)) if not register & copies]
        with shared_stores(kernel, len(own), one_of_many(kernel, self.value)) as store:
            for register, bits in zip(own, to_bits(kernel, [values[r] for r in own]), strict=True):
                store(bits, b.gep(self.bits, self.base, places[register]))
        kernel.barrier()

    def read(self, places: Sequence[V]) -> Registers:
        """The elements at these row-major indices."""
        b = self.kernel.b
        found = [b.load(self.bits, b.gep(self.bits, self.base, place)) for place in places]
        return from_bits(self.kernel, self.value.type, found)

    def own_places(self) -> Registers:
        """The row-major index of the element in each register."""
        if self.value.layout is None:
            return [const(I32, 0)]
        return self.kernel.coordinates(self.value.layout.flatten_outs(FLAT), FLAT)
