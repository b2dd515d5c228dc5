"""Translation of expressions: the dispatch by node class.

Handlers are registered in a table by the class of the node. An exception in a handler becomes a
`CompilationError` at the innermost node; `base/diagnostics.py` formats it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeVar

from tilewright.base.diagnostics import CompilationError
from tilewright.base.signals import from_signal_handler
from tilewright.frontend.ast_to_ir.errors import failed, unknown_syntax
from tilewright.frontend.ast_to_ir.frame import Frame

ExpressionHandler = Callable[[Frame, Any], Any]
EXPRESSIONS: dict[type, ExpressionHandler] = {}
Handler = TypeVar("Handler", bound=ExpressionHandler)


def expression(*kinds: type) -> Callable[[Handler], Handler]:
    """Register the handler of expressions of these classes."""

    def register(handler: Handler) -> Handler:
        for kind in kinds:
            EXPRESSIONS[kind] = handler
        return handler

    return register


def visit(frame: Frame, node: ast.AST) -> Any:
    """Translate an expression; its value as a language value.

    Raises:
        CompilationError: the expression is invalid.
    """
    kind = type(node)
    handler = EXPRESSIONS.get(kind)
    if handler is None:
        raise unknown_syntax(frame, node)
    builder = frame.context.builder
    saved = builder.loc
    builder.loc = frame.loc(node)
    try:
        value = handler(frame, node)
    except CompilationError:
        raise
    except Exception as error:
        if frame.context.debugging or from_signal_handler(error):
            raise
        raise failed(frame, node, error) from None
    builder.loc = saved
    frame.values[node] = value
    return value
