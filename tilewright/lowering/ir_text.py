"""Rewrites of the text of LLVM IR that work around faults of LLVM's back ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

_DEFINE = "\ndefine "


def in_each_function(text: str, rewrite: Callable[[str], str]) -> str:
    """The text of a module with each function rewritten by itself, as names are unique only within
    a function."""
    head, *functions = text.split(_DEFINE)
    return _DEFINE.join([head, *map(rewrite, functions)])


def lines_with(text: str, literal: str) -> Iterator[tuple[int, str]]:
    """The lines that contain a literal, with the places where they begin.

    A regular expression that describes a line is tried on each line of a text, which takes longer
    than LLVM's parser. `str.find` does not, and most lines do not have the literal.
    """
    at = text.find(literal)
    while at >= 0:
        begin, end = text.rfind("\n", 0, at) + 1, _end_of_line(text, at)
        yield begin, text[begin:end]
        at = text.find(literal, end)


def matches_in(text: str, literal: str, pattern: str) -> Iterator[tuple[int, re.Match[str]]]:
    """The first match of a pattern in each line that contains a literal, with the place where the
    line begins."""
    for at, line in lines_with(text, literal):
        if found := re.search(pattern, line):
            yield at, found


def with_lines(text: str, lines: Mapping[int, str]) -> str:
    """The text with others in place of the lines that begin at some places."""
    parts, done = list[str](), 0
    for begin, line in sorted(lines.items()):
        parts += text[done:begin], line
        done = _end_of_line(text, begin)
    return "".join([*parts, text[done:]])


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end
