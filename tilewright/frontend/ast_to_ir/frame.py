"""The state of the translation: of a compilation, and of each function."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, NamedTuple

from tilewright.base import knobs
from tilewright.base.diagnostics import Loc
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
        specializations: (callee, arguments) -> its specialization, see `call_function.py`.
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
        is_kernel: whether the function is launched, not called.
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
        "fn", "globals", "hints", "is_kernel", "loops", "names", "semantic", "targets", "values",
        "withs",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        fn: SourceFunction,
        caller: Loc | None = None,
        *,
        is_kernel: bool = False,
    ) -> None:
        self.context = context
        self.fn = fn
        self.caller = caller
        self.is_kernel = is_kernel
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
