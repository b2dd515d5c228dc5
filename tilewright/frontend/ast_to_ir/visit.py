"""What all parts of the translation share: the state, the dispatch by node, errors with a place.

A node's handler is found in a table, by the node's class. An exception in a handler becomes a
`CompilationError` at the innermost node; `base/diagnostics.py` says how that reads.
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
# Calls of calls of … that a kernel may hold: far below the interpreter's own limit of recursion.
MAX_CALL_DEPTH = 40
# Branches within branches, likewise.
MAX_NESTING = 128
# Statements that are run to compile one kernel; so many would take the passes many minutes.
MAX_STATEMENTS = 200_000


class Label:
    """A place that statements may go to past others: the end of the function, where a loop's next
    iteration begins, or what follows a loop.

    Attributes:
        names: those of which the values count there, from wherever it is reached.
        closed: whether no others do.
    """

    __slots__ = ("closed", "names")

    def __init__(self, names: Iterable[str] = (), closed: bool = True) -> None:
        self.names = frozenset(names)
        self.closed = closed


class Targets(NamedTuple):
    """Where ``continue`` and ``break`` of a loop go."""

    next: Label
    after: Label


class Context:
    """The state of one compilation.

    Attributes:
        module: the functions so far.
        specializations: callee and its arguments -> what was made of it, see `call.py`.
        depth: how many functions are being compiled, one within the other.
        nesting: how many run-time branches are, one within the other.
        statements: how many statements have been run.
        debugging: whether errors keep their own type and full traceback.
        any_global: whether kernels may read every global.
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
    """The state of one function that is being compiled.

    Attributes:
        names: the local names and their values at this point.
        declared: names with an annotation ``constexpr`` and no value yet.
        end: the end of the function.
        targets: loops around this point -> where their ``continue`` and ``break`` go.
        loops: how many run-time loops are around this point.
        withs: how many ``with`` statements are.
        semantic: what primitives build with.
        dropped: the call whose result the statement at hand does not use.
        hints: the evaluated calls of hints, such as `tl.multiple_of`.
        values: expressions -> what each was last, for errors to show.
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
        """An error at `node`; with what explains it, if an exception is its cause or if it has a
        code.
        """
        mark = mark_of(cause) if code is None else Mark(code, {})
        explained = () if cause is None and mark is None else notes(self, node, cause, mark)
        return marked(CompilationError(self.fn.src, node, message, explained), mark)

    def unsupported(
        self, node: ast.AST, message: str, code: Code | None = None, **facts: Any
    ) -> UnsupportedLanguageConstruct:
        """An error at `node` for Python that kernels lack; see `base/codes.py` for the code."""
        mark = None if code is None else Mark(code, facts)
        explained = notes(self, node, None, mark)
        return marked(UnsupportedLanguageConstruct(self.fn.src, node, message, explained), mark)

    def unknown_syntax(self, node: ast.AST) -> UnsupportedLanguageConstruct:
        """The error for a statement or an expression of a class that kernels lack."""
        kind = type(node).__name__
        return self.unsupported(node, f"unsupported AST node type: {kind}", "syntax", kind=kind)

    def failed(self, node: ast.AST, error: Exception) -> CompilationError:
        """The error for an exception of the translation itself."""
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
    """The language value of an expression."""
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
