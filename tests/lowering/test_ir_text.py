"""Lines of LLVM IR by what they contain."""

from __future__ import annotations

import pytest

from tilewright.lowering.ir_text import lines_with, with_lines

TEXT = "first = a\nsecond = b = b\n\nthird = a\nlast = b"


def test_lines_with_a_literal() -> None:
    for literal, lines in ((" = b", ["second = b = b", "last = b"]), (" = c", [])):
        found = dict(lines_with(TEXT, literal))
        assert list(found.values()) == lines
        assert all(TEXT[at:].startswith(line) for at, line in found.items())


@pytest.mark.parametrize("text", [TEXT, TEXT + "\n", "", "\n"])
def test_other_lines_in_their_place(text: str) -> None:
    others = {at: line.replace("b", "two\nlines") for at, line in lines_with(text, " = b")}
    assert with_lines(text, others) == text.replace("b", "two\nlines")
    assert with_lines(text, {}) == text
    unordered = dict(reversed(others.items()))
    assert with_lines(text, unordered) == with_lines(text, others)
