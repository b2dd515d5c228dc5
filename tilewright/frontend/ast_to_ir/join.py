"""Branches of a run-time ``if``, and their merge.

The branches become the regions of one `control.if`. Its results are, in this order: a flag for each
label that a branch may exit to; the returned value; the variables that the branches change.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.base.codes import coded
from tilewright.frontend.ast_to_ir.errors import error_at
from tilewright.frontend.ast_to_ir.frame import MAX_NESTING, Frame, Label, Names
from tilewright.frontend.ast_to_ir.stmt import Exit, Pending, run
from tilewright.ir.core import Region, Value
from tilewright.ir.types import I1, DType, Pointer, Tile, element_of, shape_of
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
)
from tilewright.ops.control import If, Yield

_ABSENT: Any = object()


class Branch:
    """A branch of a run-time ``if``: its region, the names at its end, and its exit."""

    __slots__ = ("exit", "names", "region")

    def __init__(self, names: Names, exit: Exit | None = None) -> None:
        self.region = Region()
        self.names = names
        self.exit = exit

    def run(self, frame: Frame, node: ast.AST, todo: Pending, live: bool) -> None:
        """Translate statements at the end of the branch of the statement `node`.

        Raises:
            CompilationError: branches are nested so deeply that recursive passes would overflow.
        """
        if frame.context.nesting >= MAX_NESTING:
            raise error_at(
                frame,
                node,
                f"run-time branches are nested more than {MAX_NESTING} deep. Each `elif` nests "
                "one: divide a long chain in halves, such as by `if n < 64:`, or load its result "
                "from an array. An unrolled loop that is left by `break` or `return` at run time "
                "nests one for each iteration; a loop over `range` does not",
            )
        frame.context.nesting += 1
        outer = frame.names
        frame.names = self.names
        with frame.builder.at_end(self.region):
            self.exit = run(frame, todo, live)
        frame.context.nesting -= 1
        self.names = frame.names
        frame.names = outer

    @property
    def falls(self) -> bool:
        """Whether it may fall through to its end."""
        return self.exit is None or not self.exit.always

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels that it may exit to."""
        return () if self.exit is None else tuple(self.exit.flags)

    def is_live(self, name: str, open_count: bool = False) -> bool:
        """Whether the name may be read after the branch.

        Args:
            open_count: whether all names are live at labels that are not closed.
        """
        if self.falls or any(name in label.names for label in self.labels):
            return True
        return open_count and not all(label.closed for label in self.labels)

    def reach(self, label: Label | None) -> None:
        """Remove the label from the exits, because the merge is at its position."""
        if self.exit is not None:
            self.exit = self.exit.without(label)


def join(
    frame: Frame,
    condition: tensor,
    sides: tuple[Branch, Branch],
    live: bool,
    label: Label | None = None,
) -> Exit | None:
    """Insert the `control.if` and bind the names that it changes; returns its exit.

    Args:
        live: whether names are needed after it.
        label: the label at which both sides merge; None if they merge at their ends.
    """
    for side in sides:
        side.reach(label)
    slot = _return_type(frame, sides)
    flagged = _flagged(frame, sides, live)
    open_count = _leave_for_open(sides)
    names = _joined_names(frame, sides, label, open_count) if live else {}
    for side in sides:
        with frame.builder.at_end(side.region):
            handles = [_flag(frame, side, one) for one in flagged]
            if slot is not None:
                handles += _returned_handles(frame, side, slot)
            for name, type_ in names.items():
                handles += _handles(frame, side, name, type_, open_count)
            frame.builder.insert(Yield(handles))
    op = frame.builder.insert(If(condition.handle, sides[0].region, sides[1].region))
    results = iter(op.results)
    flags = {one: tensor(next(results)) for one in flagged}
    value = unflatten(slot, results) if slot is not None else None
    for name, type_ in names.items():
        frame.names[name] = _joined_value(type_, results, sides, name)
    labels = {one: flags.get(one) for side in sides for one in side.labels}
    if not labels:
        return None
    return Exit(labels, not any(side.falls for side in sides), value)


# -- exits -----------------------------------------------------------------------------------------


def _flagged(frame: Frame, sides: Sequence[Branch], live: bool) -> list[Label]:
    """The labels that need a flag: those for which the exit is not statically known."""
    labels = list(dict.fromkeys(label for side in sides for label in side.labels))
    if len(labels) == 1 and not any(side.falls for side in sides):
        return []
    return [label for label in labels if live or len(labels) > 1 or label is not frame.end]


def _flag(frame: Frame, side: Branch, label: Label) -> Value:
    """An int1: whether the side has exited to the label."""
    flag = None if side.exit is None else side.exit.flags.get(label)
    if flag is not None:
        return flag.handle
    return constant(frame.semantic, label in side.labels, I1).handle


# -- names -----------------------------------------------------------------------------------------


def _joined_value(type_: Any, results: Any, sides: Sequence[Branch], name: str) -> Any:
    """The value of a name after the ``if``; compile-time values are not merged."""
    value = unflatten(type_, results)
    if isinstance(type_, constexpr_type):
        holders = [side for side in sides if name in side.names]
        return max(holders, key=lambda side: side.is_live(name)).names[name]
    return value


def _handles(frame: Frame, side: Branch, name: str, type_: Any, open_count: bool) -> list[Value]:
    if name not in side.names or not side.is_live(name, open_count):
        return undefined(frame, type_)
    return flatten(side.names[name], [])


def _leave_for_open(sides: Sequence[Branch]) -> bool:
    """Whether no side falls through and one exits to a label whose live names are not all known: a
    label of an unrolled loop, whose body may bind further names.
    """
    labels = [label for side in sides for label in side.labels]
    return not any(side.falls for side in sides) and not all(label.closed for label in labels)


def undefined(frame: Frame, type_: Any) -> list[Value]:
    """Placeholder values of a type, which are never used."""
    return [
        constant(frame.semantic, 0, element_of(t), shape_of(t)).handle for t in flat_types(type_)
    ]


def _joined_names(
    frame: Frame, sides: tuple[Branch, Branch], label: Label | None, open_count: bool
) -> dict[str, Any]:
    """The names that the ``if`` changes and that are visible after it, with their types.

    Names that are not defined on all paths, or have different types, are removed from the frame.

    Raises:
        AssertionError: the types of a visible name differ between the sides, or change.
    """
    result: dict[str, Any] = {}
    for name in _candidates(frame, sides, label, open_count):
        live_sides = [side for side in sides if side.is_live(name, open_count)]
        values = [side.names.get(name, _ABSENT) for side in live_sides]
        needed = any(side.is_live(name) for side in sides) if open_count else True
        if needed if label is None else name in label.names:
            type_ = _checked_type(frame, name, values)
        else:
            type_ = _common_type(values)
        if type_ is not None:
            result[name] = type_
        elif label is not None or open_count or any(value is _ABSENT for value in values):
            frame.names.pop(name, None)
    return result


def _candidates(
    frame: Frame, sides: tuple[Branch, Branch], label: Label | None, open_count: bool
) -> Iterator[str]:
    """The names whose value may differ after the ``if``, in the order of binding."""
    before = frame.names
    for name in list(dict.fromkeys([*before, *sides[0].names, *sides[1].names])):
        old = before.get(name, _ABSENT)
        changing = [s for s in sides if s.names.get(name, _ABSENT) is not old]
        if any(side.is_live(name, open_count) for side in changing):
            if label is None or not label.closed or name in label.names:
                yield name
            else:
                before.pop(name, None)


def _common_type(values: Sequence[Any]) -> Any:
    """The common type of the values; None if types differ or a value is absent."""
    if any(value is _ABSENT for value in values):
        return None
    types = [type_of(value) for value in values]
    return types[0] if all(t == types[0] for t in types) else None


def _checked_type(frame: Frame, name: str, values: Sequence[Any]) -> Any:
    """The type of a name after the ``if``; None if it is not visible there."""
    if len(values) == 1:
        return None if values[0] is _ABSENT else type_of(values[0])
    if any(value is _ABSENT for value in values):
        return None
    old = frame.names.get(name, _ABSENT)
    if old is _ABSENT or (_is_none(old) and not any(map(_is_none, values))):
        a, b = type_of(values[0]), type_of(values[1])
        if a != b:
            text = f"Mismatched type for {name} between then block ({a}) and else block ({b})"
            raise coded("branch-type", AssertionError(text), name=name, types=(a, b))
        return a
    if not isinstance(old, base_value):
        return None
    initial = type_of(old)
    for value, block in zip(values, ("then", "else"), strict=True):
        found = type_of(value)
        if found != initial:
            text = (
                f"initial value for `{name}` is of type {initial}, but the {block} block "
                f"redefines it as {found}"
            )
            raise coded("branch-type", AssertionError(text), name=name, types=(initial, found))
    return initial


def _is_none(value: Any) -> bool:
    """Whether a name has no value yet: two branches that both bind it need not agree with that."""
    return isinstance(value, constexpr) and value.value is None


# -- returned values -------------------------------------------------------------------------------


class _Mismatch(Exception):
    pass


def _return_type(frame: Frame, sides: Sequence[Branch]) -> Any:
    """The type of the value that the sides return; None if neither returns."""
    exits = [side.exit for side in sides if side.exit is not None]
    types = [type_of(exit.value) for exit in exits if frame.end in exit.flags]
    if not types:
        return None
    try:
        result = types[0]
        for t in types[1:]:
            result = join_types(result, t)
    except _Mismatch:
        message = (
            f"Return type mismatch: {types[0]} and {types[1]}. Note all return types were: "
            f"[{', '.join(map(str, types))}]"
        )
        raise error_at(frame, frame.definition, repr(TypeError(message))) from None
    return result


def join_types(a: Any, b: Any) -> Any:
    """The common type of two returned values: compile-time numbers that differ decay to tensors.

    Raises:
        _Mismatch: there is no common type.
    """
    if a == b:
        return a
    if isinstance(a, composite_type) and a.decays and a.like(b):
        return a.with_types([join_types(x, y) for x, y in zip(a.types, b.types, strict=True)])
    a, b = decayed(a), decayed(b)
    if a != b:
        raise _Mismatch
    return a


def decayed(type_: Any) -> Any:
    """The type of a compile-time number as a tensor; other types are unchanged."""
    is_number = isinstance(type_, constexpr_type) and isinstance(type_.value, bool | int | float)
    return natural_type(type_.value) if is_number else type_


def coerce(frame: Frame, value: Any, type_: Any) -> Any:
    """Convert a value to the result of `join_types`."""
    if isinstance(type_, composite_type):
        pairs = zip(value.values, type_.types, strict=True)
        return assemble(type_, [coerce(frame, v, t) for v, t in pairs])
    if isinstance(type_, DType | Pointer | Tile) and not isinstance(value, tensor):
        return to_tensor(frame.semantic, value)
    return value


def _returned_handles(frame: Frame, side: Branch, slot: Any) -> list[Value]:
    if side.exit is None or frame.end not in side.exit.flags:
        return undefined(frame, slot)
    return flatten(coerce(frame, side.exit.value, slot), [])
