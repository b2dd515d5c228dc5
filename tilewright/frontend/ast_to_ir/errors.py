"""Errors with locations, and notes about the operands."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.codes import Code, Mark, mark_of, marked
from tilewright.base.diagnostics import (
    CompilationError,
    CompileTimeAssertionFailure,
    Loc,
    UnsupportedLanguageConstruct,
)
from tilewright.base.lazy_import import lazy_import
from tilewright.frontend.ast_to_ir.frame import Frame

if TYPE_CHECKING:
    from tilewright.frontend.ast_to_ir import advice
else:
    advice = lazy_import("tilewright.frontend.ast_to_ir.advice")


def _at(
    frame: Frame, node: ast.AST, message: str | None, notes: Sequence[str]
) -> tuple[str, ast.AST, str | None, Sequence[str], Loc | None]:
    """The arguments of an error at `node`."""
    return frame.fn.src, node, message, notes, frame.loc(node) if hasattr(node, "lineno") else None


def error_at(
    frame: Frame, node: ast.AST, message: str | None, cause: Exception | None = None
) -> CompilationError:
    """An error at `node`, with notes if it has a cause."""
    mark = mark_of(cause)
    explained = () if cause is None else advice.notes(frame, node, cause, mark)
    return marked(CompilationError(*_at(frame, node, message, explained)), mark)


def assertion_failed(frame: Frame, node: ast.AST, error: Exception) -> CompileTimeAssertionFailure:
    """The error for a static assertion at `node`, with notes if it is one of the language's."""
    mark = mark_of(error)
    explained = () if mark is None else advice.notes(frame, node, error, mark)
    message = str(error) or None
    return marked(CompileTimeAssertionFailure(*_at(frame, node, message, explained)), mark)


def unsupported(
    frame: Frame, node: ast.AST, message: str, code: Code | None = None, **facts: Any
) -> UnsupportedLanguageConstruct:
    """An error at `node` for an unsupported construct; `base/codes.py` lists the codes."""
    mark = None if code is None else Mark(code, facts)
    explained = advice.notes(frame, node, None, mark)
    return marked(UnsupportedLanguageConstruct(*_at(frame, node, message, explained)), mark)


def unknown_syntax(frame: Frame, node: ast.AST) -> UnsupportedLanguageConstruct:
    """The error for an unsupported class of statements or expressions."""
    kind = type(node).__name__
    return unsupported(frame, node, f"unsupported AST node type: {kind}", "syntax", kind=kind)


def failed(frame: Frame, node: ast.AST, error: Exception) -> CompilationError:
    """The error for an exception in a handler."""
    return error_at(frame, node, repr(error), error)
