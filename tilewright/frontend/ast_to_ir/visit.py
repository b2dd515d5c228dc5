"""The core of the translation: its state, the dispatch by node class, and errors with locations.

Handlers are registered in a table by the class of the node. An exception in a handler becomes a
`CompilationError` at the innermost node; `base/diagnostics.py` formats it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from tilewright.base import knobs
from tilewright.base.codes import Code, Mark, mark_of, marked
from tilewright.base.diagnostics import CompilationError, Loc, UnsupportedLanguageConstruct
from tilewright.base.signals import from_signal_handler
from tilewright.frontend.ast_to_ir.explain import notes
from tilewright.frontend.options import FrontendOptions
from tilewright.frontend.source import SourceFunction
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module
from tilewright.language.semantic.context import Semantic

Names = dict[str, Any]
# Maximum depth of nested calls, well below Python's recursion limit.
MAX_CALL_DEPTH = 40
# Maximum depth of nested run-time branches, likewise.
MAX_NESTING = 128
# Maximum number of translated statements in one kernel; passes would take minutes for more.
MAX_STATEMENTS = 200_000


class Label:
    """A target of jumps: the end of the function, the next iteration of a loop, or the statement
    after a loop.

    Attributes:
        names: the names that are live there, from whichever jump it is reached.
        closed: whether no other names are live.
    """

    __slots__ = ("closed", "names")

    def __init__(self, names: Iterable[str] = (), closed: bool = True) -> None:
        self.names = frozenset(names)
        self.closed = closed


class Targets(NamedTuple):
    """The labels that ``continue`` and ``break`` of a loop jump to."""

    next: Label
    after: Label


class Context:
    """The state of one compilation.

    Attributes:
        module: the functions translated so far.
        specializations: (callee, arguments) -> its specialization, see `call.py`.
        depth: the current depth of nested calls.
        nesting: the current depth of nested run-time branches.
        statements: the number of translated statements.
        debugging: whether errors keep their type and full traceback.
        any_global: whether kernels may read all globals.
    """

    def __init__(self, options: FrontendOptions) -> None:
        self.options = options
        self.debugging = knobs.compilation.front_end_debugging
        self.any_global = knobs.compilation.allow_non_constexpr_globals
        self.module = Module()
        self.builder = Builder()
        self.specializations: dict[Any, Any] = {}
        self.in_progress: set[Any] = set()
        self.depth = 0
        self.nesting = 0
        self.statements = 0


class Frame:
    """The state of the translation of one function.

    Attributes:
        names: the local names and their values at this point.
        declared: names annotated ``constexpr`` without a value yet.
        end: the label at the end of the function.
        targets: enclosing loop -> its jump targets.
        loops: the number of enclosing run-time loops.
        withs: the number of enclosing ``with`` statements.
        semantic: passed to primitives as ``_semantic``.
        dropped: the call whose result the current statement discards.
        hints: the evaluated calls of hints, such as `tl.multiple_of`.
        values: expression -> its last value, for notes of errors.
    """

    __slots__ = (
        "caller", "captured", "context", "declared", "dropped", "end", "first_column", "first_line",
        "fn", "globals", "hints", "loops", "names", "semantic", "targets", "values", "withs",
    )  # fmt: skip

    def __init__(self, context: Context, fn: SourceFunction, caller: Loc | None = None) -> None:
        self.context = context
        self.fn = fn
        self.caller = caller
        self.names: Names = {}
        self.declared: set[str] = set()
        self.values: dict[ast.AST, Any] = {}
        self.end = Label()
        self.targets: dict[ast.AST, Targets] = {}
        self.loops = 0
        self.withs = 0
        self.dropped: ast.AST | None = None
        self.hints: set[ast.AST] = set()
        self.globals = fn.__globals__
        self.captured = fn.captured
        self.first_line = fn.def_line - 1
        self.first_column = fn.indent + 1
        self.semantic = Semantic(context.builder, context.options)

    @property
    def builder(self) -> Builder:
        return self.context.builder

    @property
    def definition(self) -> ast.FunctionDef:
        node = self.fn.parse().body[0]
        assert isinstance(node, ast.FunctionDef)
        return node

    def loc(self, node: Any) -> Loc:
        return Loc(
            self.fn.file_name,
            self.first_line + node.lineno,
            self.first_column + node.col_offset,
            self.fn.__name__,
            self.caller,
        )

    def error(
        self,
        node: ast.AST,
        message: str | None,
        cause: Exception | None = None,
        code: Code | None = None,
    ) -> CompilationError:
        """An error at `node`, with notes if it has a cause or a code."""
        mark = mark_of(cause) if code is None else Mark(code, {})
        explained = () if cause is None and mark is None else notes(self, node, cause, mark)
        return marked(CompilationError(self.fn.src, node, message, explained), mark)

    def unsupported(
        self, node: ast.AST, message: str, code: Code | None = None, **facts: Any
    ) -> UnsupportedLanguageConstruct:
        """An error at `node` for an unsupported construct; `base/codes.py` lists the codes."""
        mark = None if code is None else Mark(code, facts)
        explained = notes(self, node, None, mark)
        return marked(UnsupportedLanguageConstruct(self.fn.src, node, message, explained), mark)

    def unknown_syntax(self, node: ast.AST) -> UnsupportedLanguageConstruct:
        """The error for an unsupported class of statements or expressions."""
        kind = type(node).__name__
        return self.unsupported(node, f"unsupported AST node type: {kind}", "syntax", kind=kind)

    def failed(self, node: ast.AST, error: Exception) -> CompilationError:
        """The error for an exception in a handler."""
        return self.error(node, repr(error), error)


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
        raise frame.unknown_syntax(node)
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
        raise frame.failed(node, error) from None
    builder.loc = saved
    frame.values[node] = value
    return value
