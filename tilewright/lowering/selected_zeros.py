"""A workaround for a fault that LLVM's back ends share, as a rewrite of the text of LLVM IR.

It is applied after LLVM's optimisation, which would undo it.
"""

from __future__ import annotations

import re
from collections import defaultdict

from tilewright.lowering.ir_text import in_each_function, lines_with, matches_in, with_lines

_SCALAR = r"(?:-?0\.0+e\+00|0x[HR][08]000)"
_ZERO = rf"(?:{_SCALAR}|zeroinitializer|splat\ \(\w+\ {_SCALAR}\))"
_VALUE = rf"(?:%[\w.]+|{_ZERO})"
_TYPE = r"(?:<\d+\ x\ \w+>|\w+)"
_COMPARISON = rf"""(?x)(?P<head>\s*(?P<result>%[\w.]+)\ =\ fcmp\ (?:[a-z]+\ )*[ou](?P<order>lt|gt)
        \ (?P<type>{_TYPE}))
        \ (?:(?P<src>%[\w.]+),\ (?P<right>{_ZERO})|(?P<left>{_ZERO}),\ (?P<other>%[\w.]+))"""
_SELECT = rf"""(?x)=\ select\ (?:[a-z]+\ )*(?:<\d+\ x\ i1>|i1)\ (?P<condition>%[\w.]+),
        \ {_TYPE}\ (?P<a>{_VALUE}),\ {_TYPE}\ (?P<b>{_VALUE})(?![\w.])"""


def with_selected_zeros(text: str) -> str:
    """Compare with a zero of the other sign where LLVM takes a selection for another extremum.

    LLVM 22 takes `x < 0.0 ? x : 0.0` for a minimum, and `x > -0.0 ? x : -0.0` for a maximum, if the
    zeros of comparison and selection are equal. Those instructions order -0.0 below 0.0: they
    return the zero that x is, and not the one that is selected. Their like with the other zero are
    the extrema, and remain instructions.
    """
    if " = fcmp " not in text or " = select " not in text:
        return text
    return in_each_function(text, _with_selected_zeros)


def _with_selected_zeros(function: str) -> str:
    compared = [(at, line) for at, line in lines_with(function, " = fcmp ") if _may_name_zero(line)]
    if not compared:
        return function
    selected: dict[str, list[set[str]]] = defaultdict(list)
    for _, found in matches_in(function, " = select ", _SELECT):
        selected[found["condition"]].append({found["a"], found["b"]})

    def rewritten(found: re.Match[str]) -> str:
        src, zero = found["src"] or found["other"], found["right"] or found["left"]
        below = (found["order"] == "lt") == (found["right"] is not None)
        if {src, zero} not in selected.get(found["result"], ()) or below == _is_negative(zero):
            return found[0]
        other = _zero_of(found["type"], is_negative=below)
        return f"{found['head']} " + (f"{src}, {other}" if found["right"] else f"{other}, {src}")

    return with_lines(
        function, {at: re.sub(_COMPARISON, rewritten, line, count=1) for at, line in compared}
    )


def _may_name_zero(line: str) -> bool:
    """Whether a zero of floats may be in a line, before a longer search for it."""
    return any(part in line for part in ("0.0", "zeroinitializer", "0xH", "0xR"))


def _is_negative(zero: str) -> bool:
    return "-0" in zero or "8000" in zero


_SHORT = {"half": "0xH", "bfloat": "0xR"}


def _zero_of(type: str, *, is_negative: bool) -> str:
    """The zero of a type of floats, or of vectors of them."""
    element = type.strip("<>").split()[-1]
    if element in _SHORT:
        zero = _SHORT[element] + ("8000" if is_negative else "0000")
    else:
        zero = "-0.0" if is_negative else "0.0"
    return f"splat ({element} {zero})" if type.startswith("<") else zero
