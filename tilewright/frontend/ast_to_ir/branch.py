"""Conditions: ``if`` and ``a if c else b``, at compile time and at run time.

A run-time ``if`` becomes a `control.if`, see `join`. If one branch always exits to a label, the
statements up to that label are moved into the other branch. If a branch exits conditionally, the
statements up to the label are guarded by a second `control.if` on the exit's flags.
"""

from __future__ import annotations

import ast
from math import prod
from typing import Any

from tilewright.base.codes import coded
from tilewright.frontend.ast_to_ir.errors import unsupported
from tilewright.frontend.ast_to_ir.frame import Frame
from tilewright.frontend.ast_to_ir.join import Branch, coerce, decayed, join
from tilewright.frontend.ast_to_ir.stmt import Exit, Mark, Pending, pending, statement, take
from tilewright.frontend.ast_to_ir.visit import expression, visit
from tilewright.ir.types import I1, Tile, shape_of
from tilewright.language.semantic import arith, convert, shape
from tilewright.language.values import (
    base_value,
    constexpr,
    tensor,
    type_of,
    unwrap,
)

CONDITION_TYPES = (bool, int, type(None))


def check_condition(frame: Frame, node: ast.AST, value: Any, what: str) -> bool:
    """The truth value of a compile-time condition.

    Raises:
        UnsupportedLanguageConstruct: it is not a bool, an int or None.
    """
    plain = unwrap(value)
    if type(plain) not in CONDITION_TYPES:
        names = ", ".join(t.__name__ for t in CONDITION_TYPES)
        raise unsupported(
            frame,
            node,
            f"{what} conditionals can only accept values of type {{{names}}}, not objects of "
            f"type {type(plain).__name__}",
        )
    return bool(plain)


def run_time_condition(frame: Frame, condition: tensor) -> tensor:
    """The condition ``!= 0`` as a scalar int1; a tile of one element is converted with a warning.

    Raises:
        ValueError: a tile of several elements.
    """
    s = frame.semantic
    if isinstance(condition.type, Tile):
        if prod(shape_of(condition.type)) != 1:
            raise coded(
                "tile-condition",
                ValueError("Boolean value of Tensor with more than one value is ambiguous"),
            )
        s.warn(
            "a condition is a tile of one element; use `.item()` to make it a scalar",
        )
        condition = shape.reshape(s, condition, ())
    return convert.as_condition(s, condition)


@statement(ast.If)
def visit_if(frame: Frame, node: ast.If, todo: Pending, live: bool) -> Exit | None:
    condition = visit(frame, node.test)
    if not isinstance(condition, tensor):
        taken = check_condition(frame, node, condition, "`if`")
        todo.extend(reversed(node.body if taken else node.orelse))
        return None
    exit = branch(frame, node, run_time_condition(frame, condition), todo, live)
    return settle(frame, node, exit, todo, live)


def branch(frame: Frame, node: ast.If, condition: tensor, todo: Pending, live: bool) -> Exit | None:
    """A run-time ``if``. If one branch always exits to a label, the statements of `todo` before the
    label are moved into the other branch."""
    needed = live or bool(todo)
    sides = Branch(dict(frame.names)), Branch(dict(frame.names))
    for side, statements in zip(sides, (node.body, node.orelse), strict=True):
        side.run(frame, node, pending(statements), needed)
    label = None
    for leaves, stays in (sides, sides[::-1]):
        if leaves.exit is not None and not leaves.falls and stays.exit is None:
            label, between = take(todo, leaves.exit)
            needed = live or bool(todo) or label is not None
            stays.run(frame, node, between, needed)
            break
    return join(frame, condition, sides, needed, label)


def settle(
    frame: Frame, node: ast.AST, exit: Exit | None, todo: Pending, live: bool
) -> Exit | None:
    """Continue after a statement with an exit, label by label.

    The statements of `todo` before each label are placed in the else branch of a `control.if` on
    the exit's flags.
    """
    while exit is not None and todo:
        label, between = take(todo, exit)
        if exit.always:
            exit = exit.without(label)
            continue
        kept = frozenset(name for one in exit.flags for name in one.names)
        visible = {name: value for name, value in frame.names.items() if name in kept}
        needed = live or bool(todo) or label is not None
        if all(isinstance(entry, Mark) for entry in between):
            frame.names = visible if label is not None else frame.names
            exit = exit.without(label)
            continue
        left = any_of(frame, exit)
        flags = exit.flags if len(exit.flags) > 1 else dict.fromkeys(exit.flags)
        gone = Branch(visible, Exit(flags, value=exit.value))
        rest = Branch(dict(frame.names))
        rest.run(frame, node, between, needed)
        if label is not None:
            frame.names = {n: v for n, v in frame.names.items() if n in visible}
        exit = join(frame, left, (gone, rest), needed, label)
    return exit


def any_of(frame: Frame, exit: Exit) -> tensor:
    """An int1: whether the exit is taken, to any of its labels."""
    flags = [flag for flag in exit.flags.values() if flag is not None]
    if exit.always or not flags:
        return convert.constant(frame.semantic, exit.always, I1)
    result = flags[0]
    for flag in flags[1:]:
        result = arith.bit_or(frame.semantic, result, flag)
    return result


# -- conditional expressions -----------------------------------------------------------------------


_VALUE = "<value>"  # the key of the expression's value among the names; not an identifier


@expression(ast.IfExp)
def visit_ifexp(frame: Frame, node: ast.IfExp) -> Any:
    condition = visit(frame, node.test)
    if not isinstance(condition, tensor):
        taken = check_condition(frame, node, condition, "`if`")
        return visit(frame, node.body if taken else node.orelse)
    if isinstance(condition.type, Tile):
        message = f"the condition must be a scalar, not {condition.type}; use tl.where"
        raise coded("tile-choice", ValueError(message))
    test = convert.as_condition(frame.semantic, condition)
    sides = _side(frame, node.body), _side(frame, node.orelse)
    a, b = (decayed(type_of(side.names[_VALUE])) for side in sides)
    if a != b:
        raise TypeError(
            f"Ternary expression with dynamic condition has inconsistent types {a} and {b}"
        )
    for side in sides:
        with frame.builder.at_end(side.region):
            side.names[_VALUE] = coerce(frame, side.names[_VALUE], a)
    join(frame, test, sides, live=True)
    value = frame.names.pop(_VALUE)
    return value if isinstance(value, base_value) else constexpr(value)


def _side(frame: Frame, node: ast.expr) -> Branch:
    """The region of an expression, with the names that it binds by ``:=``."""
    side = Branch(dict(frame.names))
    outer, frame.names = frame.names, side.names
    with frame.builder.at_end(side.region):
        side.names[_VALUE] = visit(frame, node)
    frame.names = outer
    return side
