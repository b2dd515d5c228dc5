"""Finds instructions of machine code that write a carry to a predicate.

    writes_carries(cubin, "add_kernel")

A sum of 64 bits is two instructions, the first of which writes its carry to a predicate, or one
that needs none. A comparison of 64 bits is two, too, and compares the lower halves to the predicate
of the result, or to another, which is then a carry as well:

    IADD3   R16, P2, R27, UR8, RZ                   IMAD.WIDE  R2, R7, 0x2, R2
    IMAD.X  R17, RZ, RZ, UR9, P2

    ISETP.LT.U32.AND     P1, PT, R2, R4, PT
    ISETP.LT.U32.AND.EX  P0, PT, R3, R5, PT, P1

The encoding is not documented, but has been the same from compute capability 7.5 to 12.0, for which
it is tested: 16 bytes, of which the lowest 9 bits are the operation. A predicate has 3 bits, which
are 7 if there is none.
"""

from __future__ import annotations

import struct

from tilewright.targets.nvidia.cubin import machine_code

_HALVES = struct.Struct("<QQ")  # of an instruction
_OPERATION = 0x1FF
_NONE = 7  # stands for a predicate that is always true, and to which nothing is written

# Places of predicates in the upper half: of results, and of what the lower halves compare to.
_FIRST, _SECOND, _LOWER = 81 - 64, 84 - 64, 68 - 64

_CARRIES = {
    0x010: (_FIRST, _SECOND),  # IADD3
    0x011: (_FIRST,),  # LEA
    0x025: (_FIRST,),  # IMAD.WIDE
    0x027: (_FIRST,),  # IMAD.HI
    0x090: (_FIRST, _SECOND),  # UIADD3
    0x091: (_FIRST,),  # ULEA
    0x0A5: (_FIRST,),  # UIMAD.WIDE
}
"""The operations that may write a carry, with the places of its predicate."""

_COMPARISONS = 0x00C, 0x08C  # ISETP, UISETP


def writes_carries(cubin: bytes, kernel: str) -> bool:
    """Whether an instruction of a kernel, or of a function that it calls, writes a carry to a
    predicate.

    Raises:
        ValueError: the data is not an ELF file.
    """
    instructions = _HALVES.iter_unpack(machine_code(cubin, kernel))
    return any(_has_carry(lower & _OPERATION, upper) for lower, upper in instructions)


def _has_carry(operation: int, upper: int) -> bool:
    if operation in _COMPARISONS:
        return _predicate(upper, _LOWER) not in (_NONE, _predicate(upper, _FIRST))
    return any(_predicate(upper, place) != _NONE for place in _CARRIES.get(operation, ()))


def _predicate(upper: int, place: int) -> int:
    return (upper >> place) & _NONE
