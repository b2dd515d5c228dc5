"""Shared memory banks: the number of wavefronts of an access of a warp.

Memory is a sequence of words of `bank_bytes`, distributed over `banks` banks round-robin; a *line*
is one word of each bank. In one *wavefront*, each bank delivers one word, to all lanes that access
it. The access of a warp is split into groups of consecutive lanes that access at most one line
together (all 32 lanes for vectors of up to 4 bytes, 16 for 8 bytes, 8 for 16 bytes), and a group
takes as many wavefronts as the most contended bank has distinct words to deliver.

The addresses of a group's lanes form a linear space, so that every accessed bank has the same
number of distinct words, and an xor with a register's or a warp's offset does not change that
number. It is therefore determined by two ranks.
"""

from __future__ import annotations

from tilewright.base.record import record
from tilewright.layout import gf2
from tilewright.layout.linear import LANE, LinearLayout, log2


@record
class Memory:
    """The geometry of shared memory, and the element size.

    Attributes:
        element_bits: the size of an element: 8, 16, 32 or 64.
        banks: the number of banks.
        bank_bytes: the size of a word.
        max_vector_bytes: the maximum size of one load or store of a lane.
    """

    element_bits: int
    banks: int = 32
    bank_bytes: int = 4
    max_vector_bytes: int = 16

    def __post_init__(self) -> None:
        if self.element_bits not in (8, 16, 32, 64):
            raise ValueError(
                f"the element size must be 8, 16, 32 or 64 bits, not {self.element_bits}"
            )

    @property
    def element_bytes(self) -> int:
        """The size of an element in bytes."""
        return self.element_bits // 8

    @property
    def word_bits(self) -> int:
        """log2 of the elements in a word; 0 for elements as large as a word or larger."""
        return max(0, log2(self.bank_bytes) - log2(self.element_bytes))

    @property
    def line_bits(self) -> int:
        """log2 of the elements in a line."""
        return log2(self.banks * self.bank_bytes) - log2(self.element_bytes)

    @property
    def vector_bits(self) -> int:
        """log2 of the elements in the widest vector."""
        return max(0, log2(self.max_vector_bytes) - log2(self.element_bytes))

    def group_bits(self, vector_bits: int) -> int:
        """log2 of the lanes that share a wavefront when each moves `1 << vector_bits` elements."""
        return self.line_bits - max(vector_bits, self.word_bits)


def lane_wavefronts(offsets: LinearLayout, vector: int, memory: Memory) -> int:
    """The number of wavefronts of one access of `vector` elements per lane.

    Args:
        offsets: (…, lane, …) -> the offset of the access, in elements. Only its lane bases matter.
        vector: elements per lane, a power of two.
        memory: the geometry of shared memory.
    """
    lanes = offsets.bases(LANE)
    vector_bits = log2(vector)
    group = min(len(lanes), memory.group_bits(vector_bits))
    size = log2(memory.element_bytes)
    # A basis of the byte addresses that a group accesses, and of their words.
    accessed = [lane << size for lane in lanes[:group]] + gf2.units(vector_bits + size)
    words = [address >> log2(memory.bank_bytes) for address in accessed]
    conflicts = gf2.rank(words) - gf2.rank(word & (memory.banks - 1) for word in words)
    return 1 << (len(lanes) - group + conflicts)


def wavefronts(
    registers: LinearLayout,
    shared: LinearLayout,
    element_bits: int,
    vector: int,
) -> int:
    """The number of wavefronts in which a warp loads or stores `vector` consecutive elements per
    lane.

    Args:
        registers: the register layout, (register, lane, …) -> element.
        shared: the layout of shared memory, offset -> element.
        element_bits: the element size.
        vector: elements per lane, a power of two.
    """
    return lane_wavefronts(registers.invert_and_compose(shared), vector, Memory(element_bits))
