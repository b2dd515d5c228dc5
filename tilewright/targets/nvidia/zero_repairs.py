"""A workaround of a fault of ptxas in selections of -0.0, as a rewrite of PTX.

ptxas makes the selection of -1.0 or -0.0 an integer that it converts, which has no negative zero:

    selp.f32 %r3, 0f80000000, 0fBF800000, %p1;        SEL        R0, RZ, 0xffffffff, !P0
                                                      I2FP.F32.S32 R7, R0

ptxas 12.8 and 13.0 do so for sm_90, in either order, and also if a register has the other number,
but not for other numbers than -1.0. On an H200, one of 3,136 random programs was wrong for that:
it multiplied truth values by -1.0.
"""

from __future__ import annotations

import re

# It begins with literal text, which is searched for eight times as fast as `^`.
_SELECTION = re.compile(r"\tselp\.f32 \t(%\w+), ([^,]+), ([^,]+), (%p\d+);$", re.MULTILINE)
_FLOAT = re.compile(r"0[fF]([0-9A-Fa-f]{8})")
_PAIRED = {"80000000", "BF800000"}  # -0.0 and -1.0


def with_selected_bits(ptx: str) -> str:
    """Select -0.0 and -1.0 as numbers of 32 bits, which ptxas does not take for integers."""

    def as_bits(found: re.Match[str]) -> str:
        to, x, y, condition = found.groups()
        numbers = {n[1].upper() for n in map(_FLOAT.fullmatch, (x, y)) if n}
        if not numbers & _PAIRED:
            return found[0]
        x, y = (_FLOAT.sub(r"0x\1", operand) for operand in (x, y))
        return f"\tselp.b32 \t{to}, {x}, {y}, {condition};"

    return _SELECTION.sub(as_bits, ptx)
