"""A workaround of a fault of ptxas in extrema of 16 bits, as a rewrite of PTX.

ptxas takes the answer to whether an extremum of 16 bits equals the constant that it is of from the
instruction that computes it. That has a predicate for each half of a register, and ptxas names one
register for both:

    max.s16     %rs30, %rs1, 0;          VIMNMX.S16x2 R11, P1, P1, R8, RZ, !PT
    setp.eq.b16 %p9, %rs30, 0;

The predicate is then that of a half without a number. ptxas 12.8 and 13.0 do so for sm_90, for
minima and maxima of signed and unsigned numbers, for equality alone, and also if the extremum is
converted to 32 bits before it is compared. On an H200, one of 11,870 random programs was wrong for
that; ptxas -O0 assembled it rightly.
"""

from __future__ import annotations

import re

_EXTREMUM = re.compile(r"\t(?:min|max)\.[su]16(?:x2)?[ \t]")
_HALF = re.compile(r"^\tcvt\.[su](?:32|64)\.[su](?:8|16) \t(%r[d]?\d+), ", re.MULTILINE)
_EQUALITY = re.compile(r"^\tsetp\.eq\.([bsu])(16|32|64) \t(%p\d+), (%\w+), ([^;]+);$", re.MULTILINE)


def with_inequalities(ptx: str) -> str:
    """Compare numbers of 16 bits, and what they are converted to, by `ne` instead of `eq`, which
    ptxas does not take from an extremum; in kernels that have extrema of 16 bits."""
    if not _EXTREMUM.search(ptx):
        return ptx
    converted = set(_HALF.findall(ptx))

    def negated(found: re.Match[str]) -> str:
        kind, bits, to, x, y = found.groups()
        if bits != "16" and x not in converted and y not in converted:
            return found[0]
        differ = f"%differ_{to[1:]}"
        return (
            f"\t{{ .reg .pred {differ}; setp.ne.{kind}{bits} {differ}, {x}, {y}; "
            f"not.pred {to}, {differ}; }}"
        )

    return _EQUALITY.sub(negated, ptx)
