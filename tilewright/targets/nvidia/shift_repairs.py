"""Workarounds for faults of LLVM's back end for NVIDIA GPUs, as rewrites of the text of LLVM IR.

LLVM's optimisation would undo them, so they are applied after it.
"""

from __future__ import annotations

import re
from collections import defaultdict

from tilewright.lowering.ir_text import in_each_function, matches_in, with_lines

_TRUNCATION = r"\s*(%[\w.]+) = trunc (?:[a-z]+ )*i\d+ (%[\w.]+) to i\d+\b"
_COMPARISON = r"\s*(%[\w.]+) = icmp [a-z ]+ i\d+ (%[\w.]+), -?\d+"
_SELECTION = r" = select i1 (%[\w.]+), i\d+ (?:(%[\w.]+), i\d+ 0\b|0, i\d+ (%[\w.]+))"
_SHIFT = (
    r"^(?P<indent>\s*)(?P<head>(?P<result>%[\w.]+) = (?:shl|lshr) (?:[a-z]+ )*i(?P<bits>32|64) "
    r"[^,\n]+, )(?P<count>%[\w.]+)(?P<rest>[,\s].*)?$"
)
_SIGNED_TOP = re.compile(r"( = shl (?:nuw )?)nsw (i(8|16|32) %[\w.]+, (\d+))\b")
_CONSTRAINT = {"32": "r", "64": "l"}


def with_repaired_shifts(text: str) -> str:
    """Hide counts of shifts from their guards, and the sign of numbers shifted to the top bit.

    PTX clamps the count of a shift, of which LLVM 22 uses that `n < 32 ? x << n : 0` is one. But
    it compares n, and shifts by the lower 32 bits of n, where n has 64: a shift by 2**32 became one
    by 0.

    `shl nsw` to the top bit is a product with -2**31, which is wrong in 64 bits, to which LLVM 22
    extends it: the number is 0 or -1, whose multiple is 0 or -2**31.
    """
    if "shl " not in text and "lshr " not in text:
        return text
    text = _SIGNED_TOP.sub(_without_sign, text)
    if " = trunc " not in text and " i64 " not in text:
        return text
    return in_each_function(text, _with_hidden_counts)


def _without_sign(found: re.Match[str]) -> str:
    return found[1] + found[2] if int(found[4]) == int(found[3]) - 1 else found[0]


def _with_hidden_counts(function: str) -> str:
    shifts = {
        at: found
        for operation in (" = shl ", " = lshr ")
        for at, found in matches_in(function, operation, _SHIFT)
    }
    if not shifts:
        return function
    selected: dict[str, set[str]] = defaultdict(set)
    for _, found in matches_in(function, " = select i1 ", _SELECTION):
        selected[found[2] or found[3]].add(found[1])
    if not selected:
        return function
    compared = {found[1]: found[2] for _, found in matches_in(function, " = icmp ", _COMPARISON)}
    wide = {found[1]: found[2] for _, found in matches_in(function, " = trunc ", _TRUNCATION)}

    def rewritten(at: int, found: re.Match[str]) -> str:
        count, bits = found["count"], found["bits"]
        guarded = {compared.get(condition) for condition in selected[found["result"]]}
        if wide.get(count, count if bits == "64" else None) not in guarded - {None}:
            return found[0]
        name, letter = f"%count.{at}", _CONSTRAINT[bits]  # unique, as places are
        hidden = f'{name} = call i{bits} asm "", "={letter},0"(i{bits} {count})'
        lines = [hidden, f"{found['head']}{name}{found['rest'] or ''}"]
        return "\n".join(found["indent"] + line for line in lines)

    return with_lines(function, {at: rewritten(at, found) for at, found in shifts.items()})
