"""Names of functions, as LLVM IR, PTX and linkers accept them."""

from __future__ import annotations

import re

_REJECTED = re.compile(r"[^A-Za-z0-9_$]|^(?=\d)|^_?$")


def symbol_of(name: str) -> str:
    """A name as a symbol: unchanged if it is of ASCII letters, digits, ``_`` and ``$``, does not
    begin with a digit and is not ``_``, which PTX reserves. Other characters are replaced by their
    code points.

    >>> symbol_of("softmax"), symbol_of("größe"), symbol_of("k<4>"), symbol_of("2d"), symbol_of("_")
    ('softmax', 'gr_u00f6_u00dfe', 'k_u003c4_u003e', '_2d', '__')
    """
    return _REJECTED.sub(_replacement, name)


def _replacement(found: re.Match[str]) -> str:
    text = found[0]
    return f"_u{ord(text):04x}" if text and text != "_" else f"{text}_"
