"""Compilation errors at the source location of an op, for passes that have no syntax tree."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Sequence
from textwrap import dedent

from tilewright.base.diagnostics import CompilationError, Loc


def error_at(loc: Loc | None, message: str, notes: Sequence[str] = ()) -> CompilationError:
    """An error at a location in a kernel's file, with the source from its ``def`` line on.

    Args:
        notes: lines after the message.
    """
    if loc is None:
        return CompilationError(None, ast.Pass(lineno=1, col_offset=0), message, notes)
    lines = linecache.getlines(loc.file)[: loc.line]
    start = _definition(lines, loc.function)
    if start is None:
        node = ast.Pass(lineno=loc.line, col_offset=loc.column - 1)
        return CompilationError(None, node, f"{message} ({loc})", notes)
    text = "".join(lines[start:])
    indent = len(text) - len(text.lstrip())
    node = ast.Pass(lineno=loc.line - start, col_offset=max(0, loc.column - 1 - indent))
    return CompilationError(dedent(text), node, message, notes, loc)


def line_of(loc: Loc | None) -> int:
    """The line of a location, counted from the ``def`` line of its function as 1; 0 if unknown."""
    if loc is None:
        return 0
    start = _definition(linecache.getlines(loc.file)[: loc.line], loc.function)
    return loc.line - (start or 0)


def place_of(loc: Loc | None, beside: Loc | None) -> str:
    """A location in a message about another one: ``line 4``, or ``line 4 of f`` if that is another
    function; see `line_of`."""
    elsewhere = loc is not None and beside is not None and loc.function != beside.function
    return f"line {line_of(loc)}" + (f" of {loc.function}" if loc and elsewhere else "")


def _definition(lines: list[str], function: str) -> int | None:
    """The index of the last line that begins the function's definition; None if none does."""
    pattern = re.compile(rf"\s*def {re.escape(function)}\b")
    found = (i for i in reversed(range(len(lines))) if function and pattern.match(lines[i]))
    return next(found, None)
