"""Maps lines of PTX to source lines of the kernel.

LLVM emits `.loc FILE LINE COLUMN` where the source line changes, and `.file FILE "PATH"` for each
file, at the end of the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilewright.base.diagnostics import Loc

FILE = re.compile(r'^\t\.file\t(\d+) "([^"]*)"', re.MULTILINE)
_LINE = re.compile(r"\t\.loc\t(\d+) (\d+) (\d+)")


def has_lines(ptx: str) -> bool:
    """Whether the PTX has line information."""
    return "\t.loc\t" in ptx


def source_of(lines: Sequence[str], at: int) -> Loc | None:
    """The source location of the line of PTX with index `at`; None if unknown."""
    for line in reversed(lines[:at]):
        if found := _LINE.match(line):
            files = dict(FILE.findall("\n".join(lines)))
            return Loc(files.get(found[1], "?"), int(found[2]), max(1, int(found[3])))
    return None
