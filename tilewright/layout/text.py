"""Parser of the text form of layouts, as `str(layout)` writes it.

>>> print(parse("register[0,1 1,0] lane[0,2 2,0] -> dim0:4 dim1:4"))
register[0,1 1,0] lane[0,2 2,0] -> dim0:4 dim1:4
"""

from __future__ import annotations

import re

from tilewright.layout.linear import LinearLayout

_INPUT = re.compile(r"\s*(\w+)\[([\d,\s]*)\]")
_OUTPUT = re.compile(r"\s*(\w+):(\d+)")


def _pairs(pattern: re.Pattern[str], text: str, whole: str) -> list[tuple[str, str]]:
    """The matches of `pattern` that `text` consists of. Anything else is an error, and so is a
    repeated name."""
    pairs: list[tuple[str, str]] = []
    position = 0
    while text[position:].strip():
        match = pattern.match(text, position)
        if match is None:
            raise ValueError(f"not a layout at {text[position:].strip()!r}: {whole!r}")
        pairs.append((match[1], match[2]))
        position = match.end()
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError(f"a dimension is named twice: {whole!r}")
    return pairs


def parse(text: str) -> LinearLayout:
    """Parse a layout.

    Raises:
        ValueError: the text is invalid; the message names the part.
    """
    left, arrow, right = text.partition("->")
    if not arrow:
        raise ValueError(f"a layout has the form `inputs -> outputs`: {text!r}")
    sizes = {name: int(size) for name, size in _pairs(_OUTPUT, right, text)}
    bases = {
        name: [tuple(map(int, basis.split(","))) for basis in body.split()]
        for name, body in _pairs(_INPUT, left, text)
    }
    return LinearLayout.from_bases(bases, sizes)
