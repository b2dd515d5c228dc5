"""Statements, and the translation of statement lists.

Control flow in the IR is structured. A ``return`` inside a run-time ``if`` therefore moves the
statements that follow into the other branch, and so do ``break`` and ``continue``, up to the label
that they jump to. `run` processes a list of pending statements, from which a handler may take all
statements, or those up to a `Mark`. Compile-time ``if`` and unrolled loops prepend their bodies to
the list. The result of a list is its `Exit`, which is None if control always reaches its end.
docs/decisions/0014-leaving-loops.md has the rationale.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tilewright.base.codes import coded
from tilewright.base.diagnostics import CompilationError
from tilewright.base.signals import from_signal_handler
from tilewright.frontend.ast_to_ir.errors import error_at, failed, unknown_syntax, unsupported
from tilewright.frontend.ast_to_ir.expr import bind, unpack
from tilewright.frontend.ast_to_ir.frame import MAX_STATEMENTS, Frame, Label, Targets
from tilewright.frontend.ast_to_ir.visit import expression, visit
from tilewright.ir.types import DType, Pointer, Tile
from tilewright.language.semantic.convert import to_tensor
from tilewright.language.values import base_value, constexpr, tensor, tuple, unwrap, wrap


class Exit(NamedTuple):
    """An exit of a list of statements to labels other than its end.

    Attributes:
        flags: label -> int1 whether control goes there; None if the flag is not needed: control
            always goes there, or no statements follow.
        always: whether control never reaches the end of the list.
        value: the returned value, if the end of the function is among the labels.
    """

    flags: dict[Label, tensor | None]
    always: bool = True
    value: Any = None

    def without(self, label: Label | None) -> Exit | None:
        """The exit without a label that has been reached; None if no label remains."""
        if label not in self.flags:
            return self
        rest = {k: v for k, v in self.flags.items() if k is not label}
        return Exit(rest, False, self.value) if rest else None


class Bind(NamedTuple):
    """A pseudo-statement: bind a name, or the names of a tuple, to a value."""

    target: ast.expr
    value: Any


class Mark(NamedTuple):
    """A pseudo-statement: the position of a label."""

    label: Label


class Begin(NamedTuple):
    """A pseudo-statement: the start of an unrolled iteration, which sets the targets of
    ``continue`` and ``break``."""

    loop: ast.AST
    targets: Targets


Pending = list[Any]  # statements and pseudo-statements, the next one last
StatementHandler = Callable[[Frame, Any, Pending, bool], Exit | None]
STATEMENTS: dict[type, StatementHandler] = {}
Handler = TypeVar("Handler", bound=StatementHandler)


def statement(*kinds: type) -> Callable[[Handler], Handler]:
    """Register the handler of statements of these classes.

    It is called with the frame, the statement, the pending statements, and whether names are live
    after those. It returns the exit of the statement.
    """

    def register(handler: Handler) -> Handler:
        for kind in kinds:
            STATEMENTS[kind] = handler
        return handler

    return register


def pending(statements: Sequence[ast.stmt]) -> Pending:
    return list(reversed(statements))


def take(todo: Pending, exit: Exit) -> builtins.tuple[Label | None, Pending]:
    """Remove the pending statements up to the nearest label of the exit; returns the label and the
    statements. Without such a label in the list, removes all statements.
    """
    for at in reversed(range(len(todo))):
        entry = todo[at]
        if isinstance(entry, Mark) and entry.label in exit.flags:
            taken = todo[at + 1 :]
            del todo[at:]
            return entry.label, taken
    taken = todo[:]
    todo.clear()
    return None, taken


def run(frame: Frame, todo: Pending, live: bool) -> Exit | None:
    """Translate statements until the list is empty or control has left it.

    Args:
        live: whether names are live after the list.
    """
    builder = frame.builder
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.stmt):
            _run_pseudo(frame, node)
            continue
        handler = STATEMENTS.get(type(node))
        if handler is None:
            raise unknown_syntax(frame, node)
        frame.context.statements += 1
        check_statements(frame, node)
        builder.loc = frame.loc(node)
        try:
            exit = handler(frame, node, todo, live)
        except CompilationError:
            raise
        except Exception as error:
            if frame.context.debugging or from_signal_handler(error):
                raise
            raise failed(frame, node, error) from None
        if exit is not None and exit.always:
            label, _ = take(todo, exit)
            exit = exit.without(label)
        if exit is not None:
            return exit
    return None


def check_statements(frame: Frame, node: ast.AST, more: int = 0) -> None:
    """Raise CompilationError if the number of translated statements, plus `more`, exceeds
    MAX_STATEMENTS.
    """
    if frame.context.statements + more > MAX_STATEMENTS:
        raise error_at(
            frame,
            node,
            f"this kernel has more than {MAX_STATEMENTS} statements after unrolling and inlining: "
            "a loop has too many unrolled iterations, or a function calls itself too often. A loop "
            "over `range` is executed at run time; `tl.static_range` and loops over tuples are "
            "unrolled",
        )


def _run_pseudo(frame: Frame, entry: Bind | Mark | Begin) -> None:
    match entry:
        case Bind(target, value):
            bind(frame, target, value)
        case Begin(loop, targets):
            targets.next.names = frozenset(frame.names)
            frame.targets[loop] = targets
        case _:
            pass


# -- assignment ------------------------------------------------------------------------------------


def assignable(frame: Frame, value: Any) -> Any:
    """The value of a variable without annotation: numbers become tensors, also in tuples.

    Raises:
        TypeError: the value requires the annotation ``tl.constexpr``.
    """
    if isinstance(value, tensor):
        return value
    if isinstance(value, tuple):
        return tuple([assignable(frame, v) for v in value.values], value.fields, value.make)
    plain = unwrap(value)
    if isinstance(plain, builtins.tuple | tuple):  # a constexpr tuple stays one
        return wrap(plain)
    if plain is None or isinstance(plain, DType | Pointer | Tile):
        return value
    if isinstance(value, base_value) and not isinstance(value, constexpr):
        return value
    return to_tensor(frame.semantic, plain)


def assign(frame: Frame, target: ast.expr, value: Any) -> None:
    """Assign to a name or to the names of a tuple."""
    match target:
        case ast.Name(id=name):
            if name in frame.declared:
                assign_constexpr(frame, name, value)
            else:
                frame.names[name] = assignable(frame, value)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            if any(isinstance(e, ast.Starred) for e in elements):
                raise unsupported(frame, target, "starred assignment targets are not supported")
            values = unpack(frame, value, len(elements))
            for element, one in zip(elements, values, strict=True):
                assign(frame, element, one)
        case ast.Attribute():
            raise NotImplementedError("Attribute assignment is not supported in triton")
        case _:  # a subscript: Python has no other target
            error = NotImplementedError("__setitem__ is not supported in triton")
            raise coded("item-assignment", error, target=target)


def assign_constexpr(frame: Frame, name: str, value: Any) -> None:
    """Bind a name that is annotated ``constexpr``. As in Triton, a run-time value is accepted.

    Raises:
        ValueError: the name is already bound.
    """
    if name in frame.names:
        error = ValueError(f"{name} is already defined. constexpr cannot be reassigned.")
        raise coded("constexpr-reassigned", error, name=name)
    frame.declared.discard(name)
    frame.names[name] = value if isinstance(value, base_value) else constexpr(value)


@statement(ast.Assign)
def visit_assign(frame: Frame, node: ast.Assign, todo: Pending, live: bool) -> None:
    if len(node.targets) != 1:
        error = AssertionError("simultaneous multiple assignment is not supported")
        raise coded("several-targets", error)
    assign(frame, node.targets[0], visit(frame, node.value))


def _is_constexpr_annotation(annotation: ast.expr) -> bool:
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == "constexpr"
        case ast.Constant(value=str(text)):
            return "constexpr" in text
        case _:
            return False


@statement(ast.AnnAssign)
def visit_annassign(frame: Frame, node: ast.AnnAssign, todo: Pending, live: bool) -> None:
    constant = _is_constexpr_annotation(node.annotation)
    if node.value is None:
        if constant and isinstance(node.target, ast.Name):
            frame.declared.add(node.target.id)
        return
    value = visit(frame, node.value)
    if constant and isinstance(node.target, ast.Name):
        assign_constexpr(frame, node.target.id, value)
    else:
        assign(frame, node.target, value)


@expression(ast.NamedExpr)
def visit_namedexpr(frame: Frame, node: ast.NamedExpr) -> Any:
    if frame.context.options.strict_triton:
        raise unknown_syntax(frame, node)
    assign(frame, node.target, visit(frame, node.value))
    return frame.names[node.target.id]


# -- simple statements -----------------------------------------------------------------------------


@statement(ast.Expr)
def visit_expr(frame: Frame, node: ast.Expr, todo: Pending, live: bool) -> None:
    if isinstance(node.value, ast.Constant):  # a docstring
        return
    frame.dropped = node.value
    visit(frame, node.value)


@statement(ast.Pass)
def visit_pass(frame: Frame, node: ast.Pass, todo: Pending, live: bool) -> None:
    pass


@statement(ast.Return)
def visit_return(frame: Frame, node: ast.Return, todo: Pending, live: bool) -> Exit:
    if frame.loops and frame.context.options.strict_triton:
        raise unsupported(
            frame,
            node,
            "Cannot have `return` statements inside `while` or `for` statements in triton.",
        )
    if frame.withs:
        raise unsupported(
            frame, node, "Cannot have `return` statements inside `with` statements in triton "
        )
    value = constexpr(None) if node.value is None else visit(frame, node.value)
    if frame.is_kernel and unwrap(value) is not None:
        raise unsupported(
            frame, node, "a kernel that is launched returns no value", "kernel-result"
        )
    return Exit({frame.end: None}, value=value)


@statement(ast.Break, ast.Continue)
def visit_jump(frame: Frame, node: ast.Break | ast.Continue, todo: Pending, live: bool) -> Exit:
    if frame.context.options.strict_triton:
        raise unknown_syntax(frame, node)
    targets = frame.targets[loop_of(node)]
    return Exit({targets.after if isinstance(node, ast.Break) else targets.next: None})


def jumps(loop: ast.For | ast.While) -> set[type]:
    """The classes of statements in the loop's body that exit the loop or an iteration: its own
    ``break`` and ``continue``, and ``return``. Cached on the node.
    """
    result = getattr(loop, "jumps", None)
    if result is None:
        result = set[type]()
        for statement in loop.body:
            _find_jumps(statement, loop, True, result)
        loop.jumps = result  # pyright: ignore[reportAttributeAccessIssue]
    return result


def _find_jumps(node: ast.AST, loop: ast.AST, own: bool, found: set[type]) -> None:
    if isinstance(node, ast.Return) or (own and isinstance(node, ast.Break | ast.Continue)):
        found.add(type(node))
        node.loop = loop  # pyright: ignore[reportAttributeAccessIssue]
    own = own and not isinstance(node, ast.For | ast.While)
    for child in ast.iter_child_nodes(node):
        _find_jumps(child, loop, own, found)


def loop_of(node: ast.AST) -> ast.AST:
    """The loop of a ``break`` or ``continue``, which `jumps` has recorded."""
    return getattr(node, "loop")  # noqa: B009


@statement(ast.FunctionDef)
def visit_functiondef(frame: Frame, node: ast.FunctionDef, todo: Pending, live: bool) -> None:
    raise unsupported(
        frame,
        node,
        "nested function definitions are not allowed inside a @triton.jit kernel. Move the "
        "helper function to module level and decorate it with @triton.jit.",
    )
