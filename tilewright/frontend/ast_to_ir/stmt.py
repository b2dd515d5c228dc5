"""Statements, and how a list of them runs.

Control flow in the IR is structured, so a ``return`` inside a run-time ``if`` makes the rest of
the list part of the other branch. `run` therefore works on the list of what is still to do: a
statement may take it all over. Compile-time ``if`` and ``static_range`` put their statements in
front of it. How a list ends is its completion: None if it runs to its end, else a `Returned`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tilewright.base.diagnostics import CompilationError
from tilewright.frontend.ast_to_ir.expr import unpack
from tilewright.frontend.ast_to_ir.visit import Frame, expression, visit
from tilewright.ir.types import DType, Pointer, Tile
from tilewright.language.semantic.convert import to_tensor
from tilewright.language.values import base_value, constexpr, is_constant, tensor, tuple, unwrap


class Returned(NamedTuple):
    """A list of statements that has returned a value.

    `flag` is None if it has in any case; else the int1 that says whether it has.
    """

    value: Any
    flag: tensor | None = None
    always: bool = True


class Bind(NamedTuple):
    """A pseudo-statement: bind a name to a value."""

    name: str
    value: Any


Pending = list[Any]  # statements and Binds, the next one last
StatementHandler = Callable[[Frame, Any, Pending, bool], Returned | None]
STATEMENTS: dict[type, StatementHandler] = {}
Handler = TypeVar("Handler", bound=StatementHandler)


def statement(*kinds: type) -> Callable[[Handler], Handler]:
    """Register the handler of statements of these classes.

    It is called with the frame, the statement, the statements after it, and whether names are
    still needed after those.
    """

    def register(handler: Handler) -> Handler:
        for kind in kinds:
            STATEMENTS[kind] = handler
        return handler

    return register


def pending(statements: Sequence[ast.stmt]) -> Pending:
    return list(reversed(statements))


def run(frame: Frame, todo: Pending, live: bool) -> Returned | None:
    """Run statements until there are none or they have returned.

    Args:
        live: whether names are needed after them.
    """
    builder = frame.builder
    while todo:
        node = todo.pop()
        if isinstance(node, Bind):
            frame.names[node.name] = node.value
            continue
        handler = STATEMENTS.get(type(node))
        if handler is None:
            raise frame.unsupported(node, f"unsupported AST node type: {type(node).__name__}")
        builder.loc = frame.loc(node)
        try:
            completion = handler(frame, node, todo, live)
        except CompilationError:
            raise
        except Exception as error:
            if frame.context.debugging:
                raise
            raise frame.error(node, repr(error)) from None
        if completion is not None:
            return completion
    return None


# -- assignment ------------------------------------------------------------------------------------


def assignable(frame: Frame, value: Any) -> Any:
    """What a plain local name holds: numbers become tensors, within tuples too.

    Raises:
        TypeError: a value that needs the annotation ``tl.constexpr``.
    """
    if isinstance(value, tensor):
        return value
    if isinstance(value, tuple):
        return tuple([assignable(frame, v) for v in value.values], value.fields, value.make)
    plain = unwrap(value)
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
                raise frame.unsupported(target, "starred assignment targets are not supported")
            values = unpack(value, len(elements))
            for element, one in zip(elements, values, strict=True):
                assign(frame, element, one)
        case ast.Attribute():
            raise NotImplementedError("Attribute assignment is not supported in triton")
        case ast.Subscript():
            raise NotImplementedError("__setitem__ is not supported in triton")
        case ast.Starred():
            raise frame.unsupported(target, "starred assignment targets are not supported")
        case _:
            raise frame.unsupported(target, f"can't assign to {type(target).__name__}")


def assign_constexpr(frame: Frame, name: str, value: Any) -> None:
    """Bind a name to a compile-time value, once."""
    if name in frame.names:
        raise ValueError(f"{name} is already defined. constexpr cannot be reassigned.")
    if not is_constant(value):
        raise TypeError(f"{name} is annotated constexpr but its value is a {value.type} tensor")
    frame.declared.discard(name)
    frame.names[name] = value if isinstance(value, base_value) else constexpr(value)


@statement(ast.Assign)
def visit_assign(frame: Frame, node: ast.Assign, todo: Pending, live: bool) -> None:
    assert len(node.targets) == 1, "simultaneous multiple assignment is not supported"
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
def visit_return(frame: Frame, node: ast.Return, todo: Pending, live: bool) -> Returned:
    if frame.loops:
        raise frame.unsupported(
            node,
            "Cannot have `return` statements inside `while` or `for` statements in triton.",
        )
    if frame.withs:
        raise frame.unsupported(
            node, "Cannot have `return` statements inside `with` statements in triton "
        )
    return Returned(constexpr(None) if node.value is None else visit(frame, node.value))


@statement(ast.FunctionDef)
def visit_functiondef(frame: Frame, node: ast.FunctionDef, todo: Pending, live: bool) -> None:
    raise frame.unsupported(
        node,
        "nested function definitions are not allowed inside a @triton.jit kernel. Move the "
        "helper function to module level and decorate it with @triton.jit.",
    )
