"""The definition of a function: its lines in a file, its source text and its syntax tree.

`inspect.getsource` finds the end of a definition with Python's tokenizer, whose regular expressions
alone take 2 ms to compile, a tenth of the launch of a cached kernel. Here the end is the first line
that is not indented more than the ``def``. Within brackets and strings, such a line may belong to
the function. The lines before it then fail to parse, and the tokenizer
is used.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NamedTuple

from tilewright.base.locks import Lock

_DEF = re.compile(r"^def\s+\w+\s*\(", re.MULTILINE)

# CPython 3.11 shares the recursion counter of AST construction between threads, so that concurrent
# parsing fails with "AST constructor recursion depth mismatch".
_PARSING = Lock()


class Definition(NamedTuple):
    """A definition.

    Attributes:
        lines: its lines, including decorators.
        first: the number of the first one in its file.
        tree: the syntax tree of `source_text(lines)`; None if it has not been parsed.
    """

    lines: list[str]
    first: int
    tree: ast.Module | None = None


def definition_of(fn: Callable[..., Any]) -> Definition:
    """The definition of a function, or of the one that it wraps.

    Raises:
        OSError: its source is not available.
        TypeError: it is not written in Python.
    """
    wrapped = inspect.unwrap(fn)
    if isinstance(wrapped, FunctionType):
        lines, start = inspect.findsource(wrapped)
        block = _indented_block(lines[start:])
        tree = _tree_of(block, wrapped.__code__.co_name)
        if tree is not None:
            return Definition(block, start + 1, tree)
    return Definition(*inspect.getsourcelines(wrapped))


def source_text(lines: Sequence[str]) -> str | None:
    """The text from ``def`` on, without the indentation of the definition; None if there is no
    ``def``. Comments, and lines within strings and brackets, may be indented less: they are kept
    as they are."""
    margin = margin_of(lines)
    text = "\n".join(
        line.removeprefix(margin) if line.strip() else "" for line in "".join(lines).split("\n")
    )
    found = _DEF.search(text)
    return text[found.start() :] if found else None


def margin_of(lines: Sequence[str]) -> str:
    """The blanks before a definition, which begins in the first line."""
    return lines[0][: _indentation(lines[0])] if lines else ""


def is_def(line: str) -> bool:
    """Whether a definition begins in a line."""
    return _DEF.match(line.lstrip()) is not None


def parse(text: str) -> ast.Module:
    """The syntax tree of a text.

    Raises:
        SyntaxError: it is not valid.
    """
    with _PARSING:
        return ast.parse(text)


def _indented_block(lines: Sequence[str]) -> list[str]:
    """The first ``def``, with its decorators and the lines that are indented more."""
    end = next((i for i, line in enumerate(lines, 1) if is_def(line)), len(lines))
    margin = _indentation(lines[0])
    for i, line in enumerate(lines[end:], end + 1):
        text = line.strip()
        # The bracket that closes the parameters is at the margin; comments may be anywhere.
        if text and (_indentation(line) > margin or text[0] in ")]"):
            end = i
        elif text and text[0] != "#":
            break
    return list(lines[:end])


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _tree_of(lines: Sequence[str], name: str) -> ast.Module | None:
    """The syntax tree of a definition; None if the lines are not the definition of `name`."""
    text = source_text(lines)
    try:
        tree = parse(text) if text else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    match tree:
        case ast.Module([ast.FunctionDef(name=found)]) if found == name:
            return tree
        case _:
            return None
