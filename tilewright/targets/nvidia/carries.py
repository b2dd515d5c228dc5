"""Detects instructions of machine code that may read a carry instead of another predicate.

    mixes_carries(cubin, "add_kernel", long_branches=True)

A 64-bit sum is two instructions, of which the first writes its carry to a predicate, or a single
one. Only the second instruction may read the carry. ptxas once moved a select between them whose
predicate the carry had overwritten: docs/decisions/0012.

    IADD3   R16, P2, R27, UR8, RZ           IMAD.WIDE  R2, R7, 0x2, R2
    SEL     R20, R20, 0x3fff, P2
    IMAD.X  R17, RZ, RZ, UR9, P2

A forward dataflow analysis determines which predicates may be carries, and which may be other
values. Unknown instructions are assumed to read any predicate in the usual fields of the encoding,
and to write none, so the analysis is conservative.

The encoding is not documented, but is the same from compute capability 7.5 to 12.0: 16 bytes, of
which the lowest 9 bits are the operation. A predicate has 3 bits, which are 7 if there is none. The
reads and writes of each operation are those that nvdisasm prints for 188,000 instructions of sm_90.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from tilewright.targets.nvidia.cubin import machine_code

_SIZE = 16  # bytes of an instruction
_OPERATION = 0x1FF
_NONE = 7  # stands for a predicate that is always true, and to which nothing is written

# Places of predicates in an instruction.
_GUARD = 12
_FIRST, _SECOND = 81, 84  # of results
_A, _B, _C = 68, 77, 87  # of operands

_UNIFORM = range(0x80, 0xC0)  # operations on uniform registers and uniform predicates

_WRITES_CARRIES = {
    0x010: (_FIRST, _SECOND),  # IADD3
    0x011: (_FIRST,),  # LEA
    0x025: (_FIRST,),  # IMAD.WIDE
    0x027: (_FIRST,),  # IMAD.HI
    0x090: (_FIRST, _SECOND),  # UIADD3
    0x091: (_FIRST,),  # ULEA
    0x0A5: (_FIRST,),  # UIMAD.WIDE
}
"""The operations that may write carries, and their places."""

_READS_CARRIES = {
    0x010: (_B, _C),  # IADD3
    0x011: (_C,),  # LEA
    0x024: (_C,),  # IMAD
    0x025: (_C,),
    0x027: (_C,),
    0x090: (_B, _C),  # UIADD3
    0x091: (_C,),  # ULEA
    0x0A4: (_C,),  # UIMAD
    0x0A5: (_C,),
}
"""The operations that may be the second half of a sum, and the places of what they take for
carries."""

_WRITES = {
    0x00B: (_FIRST, _SECOND),  # FSETP
    0x00C: (_FIRST, _SECOND),  # ISETP
    0x012: (_FIRST,),  # LOP3
    0x01C: (_FIRST, _SECOND),  # PLOP3
    0x08C: (_FIRST, _SECOND),  # UISETP
    0x092: (_FIRST,),  # ULOP3
}
"""The operations that write other predicates, and their places."""

_READS = {
    0x007: (_C,),  # SEL
    0x008: (_C,),  # FSEL
    0x009: (_C,),  # FMNMX
    0x00B: (_C,),  # FSETP
    0x00C: (_A, _C),  # ISETP, of the upper halves too
    0x012: (_C,),  # LOP3
    0x046: (_C,),  # VIADDMNMX
    0x048: (_C,),  # VIMNMX
    0x087: (_C,),  # USEL
    0x08C: (_A, _C),  # UISETP
    0x092: (_C,),  # ULOP3
    0x147: (_C,),  # BRA
    0x1AE: (_C,),  # LDGSTS
}
"""The operations that read other predicates, and their places."""

_READS_NONE = frozenset(
    {
        0x002, 0x005, 0x013, 0x016, 0x019, 0x01A, 0x020, 0x021, 0x023, 0x030, 0x032, 0x035, 0x036,
        0x037, 0x03B, 0x03C, 0x03E, 0x043, 0x044, 0x045, 0x082, 0x096, 0x097, 0x099, 0x09A, 0x0B9,
        0x0CA, 0x104, 0x105, 0x106, 0x107, 0x108, 0x111, 0x112, 0x118, 0x119, 0x11A, 0x11D, 0x141,
        0x142, 0x145, 0x148, 0x14D, 0x181, 0x182, 0x184, 0x186, 0x188, 0x189, 0x192, 0x1AF, 0x1C3,
    }
)  # fmt: skip
"""Moves, arithmetic, products of matrices in registers, conversions, shuffles, barriers and
accesses to memory, which read no predicate but the one that guards them."""

_COMPARES = 0x00C, 0x08C  # ISETP, UISETP
_CONTROL = range(0x140, 0x160)
_BSYNC, _BREAK, _BSSY, _BRA, _WARPSYNC, _EXIT = 0x141, 0x142, 0x145, 0x147, 0x148, 0x14D
_FOLLOWED = _BSYNC, _BREAK, _BSSY, _BRA, _WARPSYNC, _EXIT


def mixes_carries(cubin: bytes, kernel: str, *, long_branches: bool) -> bool:
    """Whether an instruction of a kernel may read a carry instead of another predicate, or another
    one instead of a carry. Also True for calls, and for 64-bit comparisons that need a second
    predicate.

    Args:
        long_branches: whether the distance of a branch has 8 more bits, elsewhere.

    Raises:
        ValueError: the data is not an ELF file.
    """
    words = [
        low | high << 64 for low, high in struct.iter_unpack("<QQ", machine_code(cubin, kernel))
    ]
    flow = _control_flow(words, long_branches)
    if flow is None or any(map(_compares_with_a_carry, words)):
        return True
    uses = [_uses(word & _OF_USES) for word in words]
    return any(
        uses[at].reads & carries or uses[at].reads_carries & others
        for at, (carries, others) in _reaching(uses, flow).items()
    )


def _compares_with_a_carry(word: int) -> bool:
    """Whether it compares the upper halves of 64 bits, after another predicate than its result."""
    if word & _OPERATION not in _COMPARES:
        return False
    return _predicate(word, _A) not in (_NONE, _predicate(word, _FIRST))


# -- reads and writes of instructions --------------------------------------------------------------


class _Uses(NamedTuple):
    """Sets of predicates, with a bit for each: those that are no carries, and carries.

    Attributes:
        writes, writes_carries: what is written.
        overwrites: what is certainly written.
    """

    reads: int
    reads_carries: int
    writes: int
    writes_carries: int
    overwrites: int


_UNIFORM_BITS = 8  # the first bit of a uniform predicate

# The bits of an instruction on which its uses depend. A kernel has few different ones.
_OF_USES = _OPERATION | sum(_NONE << at for at in (_GUARD, _FIRST, _SECOND, _A, _B, _C))


@cache
def _uses(word: int) -> _Uses:
    """What an instruction reads and writes, of which the bits `_OF_USES` are given."""
    operation = word & _OPERATION
    offset = _UNIFORM_BITS if operation in _UNIFORM else 0
    reads = _set(word, (_GUARD, *_READS.get(operation, ())), offset)
    if not (operation in _READS or operation in _READS_NONE or operation in _READS_CARRIES):
        reads |= _set(word, (_A, _B, _C), 0) | _set(word, (_A, _B, _C), _UNIFORM_BITS)
    writes = _set(word, _WRITES.get(operation, ()), offset)
    carries = _set(word, _WRITES_CARRIES.get(operation, ()), offset)
    always = _predicate(word, _GUARD) == _NONE
    return _Uses(
        reads,
        reads_carries=_set(word, _READS_CARRIES.get(operation, ()), offset),
        writes=writes,
        writes_carries=carries,
        overwrites=writes | carries if always else 0,
    )


def _set(word: int, places: tuple[int, ...], offset: int) -> int:
    bits = 0
    for place in places:
        number = _predicate(word, place)
        bits |= 0 if number == _NONE else 1 << number + offset
    return bits


def _predicate(word: int, place: int) -> int:
    return word >> place & _NONE


# -- along the control flow ------------------------------------------------------------------------


def _reaching(uses: list[_Uses], flow: list[list[int]]) -> dict[int, tuple[int, int]]:
    """The predicates that may be carries, and those that may be other values, before each reachable
    instruction."""
    before = {0: (0, -1)}
    pending = [0]
    while pending:
        at = pending.pop()
        (carries, others), here = before[at], uses[at]
        carries = carries & ~here.overwrites | here.writes_carries
        others = others & ~here.overwrites | here.writes
        for target in flow[at]:
            known = before.get(target, (0, 0))
            joined = carries | known[0], others | known[1]
            if joined != known:
                before[target] = joined
                pending.append(target)
    return before


def _control_flow(words: list[int], long_branches: bool) -> list[list[int]] | None:
    """The instructions that may follow each one; None if that is not known."""
    flow: list[list[int]] = []
    converging: list[int] = []
    for at, word in enumerate(words):
        operation = word & _OPERATION
        if operation in _CONTROL and operation not in _FOLLOWED:
            return None
        flow.append([at + 1] if at + 1 < len(words) else [])
        if operation in (_BRA, _EXIT) and _predicate(word, _GUARD) == _predicate(word, _C) == _NONE:
            flow[at] = []
        if operation == _BRA:
            flow[at].append(at + 1 + _distance(word, extended=long_branches))
        if operation == _BSSY:
            converging.append(at + 1 + _distance(word, extended=False))
    for at, word in enumerate(words):
        if word & _OPERATION == _BSYNC:
            flow[at] += converging
    known = all(0 <= target < len(words) for targets in flow for target in targets)
    return flow if known and words else None


def _distance(word: int, *, extended: bool) -> int:
    """The number of instructions between a branch and its target."""
    distance = word >> 34 & (1 << 48) - 1
    distance -= (distance & 1 << 47) << 1
    if extended:
        distance = distance << 8 | word >> 16 & 0xFF
    return distance * 4 // _SIZE
