"""Conditions: ``if`` and ``a if c else b``, at compile time and at run time.

A run-time ``if`` is one `control.if` whose results are the names that its branches change. If a
branch returns, the results hold the returned value too, and where only one branch may have, a flag
that says so.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from tilewright.frontend.ast_to_ir.stmt import Pending, Returned, pending, run, statement
from tilewright.frontend.ast_to_ir.visit import Frame, Names, expression, visit
from tilewright.ir.core import Region, Value
from tilewright.ir.types import I1, DType, Pointer, Tile, element_of, shape_of
from tilewright.language.semantic import convert, shape
from tilewright.language.semantic.convert import constant, natural_type, to_tensor
from tilewright.language.types import composite_type, constexpr_type
from tilewright.language.values import (
    assemble,
    base_value,
    constexpr,
    flat_types,
    flatten,
    tensor,
    type_of,
    unflatten,
    unwrap,
)
from tilewright.ops.control import If, Yield

CONDITION_TYPES = (bool, int, type(None))


class Branch:
    """One side of a run-time ``if``: its region, the names at its end, how it ends."""

    __slots__ = ("completion", "names", "region")

    def __init__(self, names: Names) -> None:
        self.region = Region()
        self.names = names
        self.completion: Returned | None = None

    def run(self, frame: Frame, todo: Pending, live: bool) -> None:
        """Run statements at the end of the branch."""
        outer = frame.names
        frame.names = self.names
        with frame.builder.at_end(self.region):
            self.completion = run(frame, todo, live)
        self.names = frame.names
        frame.names = outer

    @property
    def falls(self) -> bool:
        return self.completion is None

    @property
    def returns(self) -> bool:
        return self.completion is not None and self.completion.always


def check_condition(frame: Frame, node: ast.AST, value: Any, what: str) -> bool:
    """The truth of a compile-time condition, which is a bool, an int or None."""
    plain = unwrap(value)
    if type(plain) not in CONDITION_TYPES:
        names = ", ".join(t.__name__ for t in CONDITION_TYPES)
        raise frame.unsupported(
            node,
            f"{what} conditionals can only accept values of type {{{names}}}, not objects of "
            f"type {type(plain).__name__}",
        )
    return bool(plain)


def run_time_condition(frame: Frame, condition: tensor) -> tensor:
    """A scalar int1: the condition ``!= 0``; a tile of one element is reduced to it.

    Raises:
        ValueError: a larger tile.
    """
    s = frame.semantic
    if isinstance(condition.type, Tile):
        if prod(shape_of(condition.type)) != 1:
            raise ValueError("Boolean value of Tensor with more than one value is ambiguous")
        warnings.warn(
            "a condition is a tile of one element; use `.item()` to make it a scalar",
            stacklevel=2,
        )
        condition = shape.reshape(s, condition, ())
    return convert.as_condition(s, condition)


@statement(ast.If)
def visit_if(frame: Frame, node: ast.If, todo: Pending, live: bool) -> Returned | None:
    condition = visit(frame, node.test)
    if not isinstance(condition, tensor):
        taken = check_condition(frame, node, condition, "`if`")
        todo.extend(reversed(node.body if taken else node.orelse))
        return None
    return branch(frame, node, run_time_condition(frame, condition), todo, live)


def branch(
    frame: Frame, node: ast.If, condition: tensor, todo: Pending, live: bool
) -> Returned | None:
    """A run-time ``if``. If it may return, it takes over what is to do after it."""
    needed = live or bool(todo)
    then, other = Branch(dict(frame.names)), Branch(dict(frame.names))
    then.run(frame, pending(node.body), needed)
    other.run(frame, pending(node.orelse), needed)
    if then.falls and other.falls:
        return join(frame, node, condition, then, other, needed)
    if then.returns and other.returns:
        todo.clear()
        return join(frame, node, condition, then, other, False)
    if (then.returns or other.returns) and (then.falls or other.falls):
        # The rest runs just where the branch that goes on does.
        rest = other if then.returns else then
        rest.run(frame, _take(todo), live)
        return join(frame, node, condition, then, other, live)
    completion = join(frame, node, condition, then, other, needed)
    assert completion is not None
    if not todo:
        return completion
    assert completion.flag is not None
    done, rest = Branch(dict(frame.names)), Branch(dict(frame.names))
    done.completion = Returned(completion.value)
    rest.run(frame, _take(todo), live)
    return join(frame, node, completion.flag, done, rest, live)


def _take(todo: Pending) -> Pending:
    taken = todo[:]
    todo.clear()
    return taken


# -- joining the branches --------------------------------------------------------------------------


def join(
    frame: Frame, node: ast.If, condition: tensor, then: Branch, other: Branch, live: bool
) -> Returned | None:
    """Insert the `control.if`; bind the names that it changes, if they are still needed."""
    sides = (then, other)
    slot = _return_type(frame, sides)
    returns = slot is not None
    flagged = returns and live and not (then.returns and other.returns)
    names = _joined_names(frame, then, other) if live else {}
    for side in sides:
        with frame.builder.at_end(side.region):
            handles = _flag(frame, side) if flagged else []
            if slot is not None:
                handles += _returned_handles(frame, side, slot)
            for name, type_ in names.items():
                handles += _handles(frame, side, name, type_)
            frame.builder.insert(Yield(handles))
    op = frame.builder.insert(If(condition.handle, then.region, other.region))
    results = iter(op.results)
    flag = tensor(next(results)) if flagged else None
    value = unflatten(slot, results) if slot is not None else None
    for name, type_ in names.items():
        frame.names[name] = _joined_value(type_, results, sides, name)
    if not returns:
        return None
    return Returned(value, flag, then.returns and other.returns)


def _flag(frame: Frame, side: Branch) -> list[Value]:
    """Whether the side has returned."""
    done = side.completion
    if done is not None and done.flag is not None:
        return [done.flag.handle]
    return [constant(frame.semantic, done is not None, I1).handle]


def _joined_value(type_: Any, results: Any, sides: Sequence[Branch], name: str) -> Any:
    """The value of a name after the ``if``; what is not of the language is itself."""
    value = unflatten(type_, results)
    if isinstance(type_, constexpr_type):
        return next(s.names[name] for s in sides if name in s.names and not s.returns)
    return value


def _handles(frame: Frame, side: Branch, name: str, type_: Any) -> list[Value]:
    if side.returns:
        return undefined(frame, type_)
    return flatten(side.names[name], [])


def undefined(frame: Frame, type_: Any) -> list[Value]:
    """Values of a type, for where no one will look at them."""
    return [
        constant(frame.semantic, 0, element_of(t), shape_of(t)).handle for t in flat_types(type_)
    ]


def _joined_names(frame: Frame, then: Branch, other: Branch) -> dict[str, Any]:
    """The names that the ``if`` changes and that are visible after it, with their types.

    Raises:
        AssertionError: the branches disagree on a type, or change it.
    """
    if then.returns or other.returns:
        side = other if then.returns else then
        before = frame.names
        return {n: type_of(v) for n, v in side.names.items() if before.get(n) is not v}
    found: dict[str, Any] = {}
    for name, old in frame.names.items():
        a, b = then.names.get(name), other.names.get(name)
        if (a is old and b is old) or not isinstance(old, base_value):
            continue
        initial = type_of(old)
        for value, block in ((a, "then"), (b, "else")):
            assert type_of(value) == initial, (
                f"initial value for `{name}` is of type {initial}, but the {block} block "
                f"redefines it as {type_of(value)}"
            )
        found[name] = initial
    for name, value in then.names.items():
        if name in other.names and name not in frame.names:
            a, b = type_of(value), type_of(other.names[name])
            assert a == b, (
                f"Mismatched type for {name} between then block ({a}) and else block ({b})"
            )
            found[name] = a
    return found


# -- returned values -------------------------------------------------------------------------------


class _Mismatch(Exception):
    pass


def _return_type(frame: Frame, sides: Sequence[Branch]) -> Any:
    """The type of the value that the sides return; None if neither does."""
    types = [type_of(s.completion.value) for s in sides if s.completion is not None]
    if not types:
        return None
    try:
        found = types[0]
        for t in types[1:]:
            found = join_types(found, t)
    except _Mismatch:
        message = (
            f"Return type mismatch: {types[0]} and {types[1]}. Note all return types were: "
            f"[{', '.join(map(str, types))}]"
        )
        raise frame.error(frame.definition, repr(TypeError(message))) from None
    return found


def join_types(a: Any, b: Any) -> Any:
    """The type to which values of both are brought: compile-time numbers that differ decay."""
    if a == b:
        return a
    if isinstance(a, composite_type) and a.decays and a.like(b):
        return a.with_types([join_types(x, y) for x, y in zip(a.types, b.types, strict=True)])
    a, b = _decayed(a), _decayed(b)
    if a != b:
        raise _Mismatch
    return a


def _decayed(type_: Any) -> Any:
    is_number = isinstance(type_, constexpr_type) and isinstance(type_.value, bool | int | float)
    return natural_type(type_.value) if is_number else type_


def coerce(frame: Frame, value: Any, type_: Any) -> Any:
    """A value brought to a type of `join_types`."""
    if isinstance(type_, composite_type):
        pairs = zip(value.values, type_.types, strict=True)
        return assemble(type_, [coerce(frame, v, t) for v, t in pairs])
    if isinstance(type_, DType | Pointer | Tile) and not isinstance(value, tensor):
        return to_tensor(frame.semantic, value)
    return value


def _returned_handles(frame: Frame, side: Branch, slot: Any) -> list[Value]:
    if side.completion is None:
        return undefined(frame, slot)
    return flatten(coerce(frame, side.completion.value, slot), [])


# -- conditional expressions -----------------------------------------------------------------------


class _Side(NamedTuple):
    region: Region
    value: Any


@expression(ast.IfExp)
def visit_ifexp(frame: Frame, node: ast.IfExp) -> Any:
    condition = visit(frame, node.test)
    if not isinstance(condition, tensor):
        taken = check_condition(frame, node, condition, "`if`")
        return visit(frame, node.body if taken else node.orelse)
    if isinstance(condition.type, Tile):
        raise ValueError(f"the condition must be a scalar, not {condition.type}; use tl.where")
    test = convert.as_condition(frame.semantic, condition)
    then, other = _side(frame, node.body), _side(frame, node.orelse)
    a, b = _decayed(type_of(then.value)), _decayed(type_of(other.value))
    if a != b:
        raise TypeError(
            f"Ternary expression with dynamic condition has inconsistent types {a} and {b}"
        )
    for side in (then, other):
        with frame.builder.at_end(side.region):
            handles = flatten(coerce(frame, side.value, a), [])
            frame.builder.insert(Yield(handles))
    op = frame.builder.insert(If(test.handle, then.region, other.region))
    value = unflatten(a, iter(op.results))
    return value if isinstance(value, base_value) else constexpr(value)


def _side(frame: Frame, node: ast.expr) -> _Side:
    region = Region()
    with frame.builder.at_end(region):
        return _Side(region, visit(frame, node))
