"""A workaround of a fault of ptxas in pairs of numbers of 16 bits, as a rewrite of PTX.

ptxas combines two independent operations on numbers of 16 bits into one on pairs, in the place of
the second. Before that, it makes the selection of a computed value or another one a predicated
computation, into the register of the other value if that is not used later. But by pairing, an
operation that uses this value may move behind it:

    add.rn.bf16  %rs27, %rs17, %rs21;                SEL    R6, R12, R13, !P1       %rs21
    selp.b16     %rs30, %rs21, %rs25, %p1;       @P0 PRMT   R6, R11, 0x7632, R6     %rs30
    add.rn.bf16  %rs32, %rs31, %rs16;                PRMT   R12, R6, 0x5410, R12    not %rs21
                                                     HFMA2  R12, R16, 1, 1, R12

ptxas 12.8 and 13.0 do so for sm_90. On an H200, 26 of 991 random sequences of sums and selections
of bf16 were wrong, 27 of 997 of fp16, and 24 of 381 scans of several tiles of 8 and 16 bits at
once; with selections by masks, none of them, and none of 574 scans.
"""

from __future__ import annotations

import re

_PAIRED = re.compile(
    r"^\t(?:add|sub|mul|fma|min|max|neg|abs|setp?)[.\w]*\.(?:f16|bf16|u16|s16) \t(.*);$",
    re.MULTILINE,
)
_SELECTION = re.compile(
    r"^\tselp\.b16 \t(%rs\d+), (%rs\d+|-?\w+), (%rs\d+|-?\w+), (%p\d+);$", re.MULTILINE
)


def with_unpredicated_selections(ptx: str) -> str:
    """Select operands of operations on 16 bits by a mask of bits, which ptxas does not turn into
    predicated instructions. Other selections are left as they are: of constants, of what is only
    loaded, stored or converted."""
    if "\tselp.b16" not in ptx:
        return ptx
    operands: set[str] = set()
    for text in _PAIRED.findall(ptx):
        operands.update(text.split(", ")[1:])

    def by_mask(found: re.Match[str]) -> str:
        to, x, y, condition = found.groups()
        if x not in operands and y not in operands:
            return found[0]
        mask, bits = f"%mask_{to[1:]}", f"%bits_{to[1:]}"
        return (
            f"\t{{ .reg .b16 {mask}, {bits}; selp.b16 {mask}, -1, 0, {condition}; "
            f"xor.b16 {bits}, {x}, {y}; and.b16 {bits}, {bits}, {mask}; "
            f"xor.b16 {to}, {bits}, {y}; }}"
        )

    return _SELECTION.sub(by_mask, ptx)
