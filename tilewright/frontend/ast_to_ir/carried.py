"""Loop-carried variables: those that are defined before a run-time loop and assigned in its body.

They are determined syntactically before the body is translated; those whose value does not change
are removed from the loop afterwards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tilewright.base.codes import coded
from tilewright.frontend.ast_to_ir.branch import any_of
from tilewright.frontend.ast_to_ir.frame import Frame, Label, Names, Targets
from tilewright.frontend.ast_to_ir.join import undefined
from tilewright.frontend.ast_to_ir.stmt import Exit, jumps
from tilewright.ir.core import Region, Value
from tilewright.ir.types import I1
from tilewright.language.semantic import convert
from tilewright.language.values import (
    base_value,
    composite,
    flatten,
    tensor,
    type_of,
    unflatten,
)
from tilewright.ops.control import Condition, While, Yield

Carried = dict[str, Any]  # name -> type


def _targets(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Tuple | ast.List):
        for element in node.elts:
            yield from _targets(element)


def _assigned(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Assign(targets=targets):
            for target in targets:
                yield from _targets(target)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            yield from _targets(target)
        case ast.NamedExpr(target=target):
            yield target.id
        case ast.withitem(optional_vars=ast.expr() as target):
            yield from _targets(target)
        case _:
            pass


def assigned_names(loop: ast.For | ast.While) -> list[str]:
    """The names that the body of a loop, or the condition of a `while`, assigns; cached on the
    node."""
    result = getattr(loop, "assigned", None)
    if result is None:
        roots = [loop.test, *loop.body] if isinstance(loop, ast.While) else loop.body
        names = (n for root in roots for node in ast.walk(root) for n in _assigned(node))
        result = list(dict.fromkeys(names))
        loop.assigned = result  # pyright: ignore[reportAttributeAccessIssue]
    return result


def _unrolled_targets(loop: ast.For | ast.While) -> Iterator[str]:
    """The targets of nested loops, which may be bound to run-time values."""
    for node in ast.walk(loop):
        if isinstance(node, ast.For) and node is not loop:
            yield from _targets(node.target)


def carried_names(frame: Frame, loop: ast.For | ast.While) -> Carried:
    """The names with run-time values that the loop may reassign, and their types."""
    result: Carried = {}
    for name in dict.fromkeys([*assigned_names(loop), *_unrolled_targets(loop)]):
        value = frame.names.get(name)
        if isinstance(value, tensor | composite):
            result[name] = type_of(value)
    return result


def rebound(names: Names, carried: Carried, handles: Sequence[Value]) -> Names:
    """The names, with carried ones bound to these handles."""
    remaining = iter(handles)
    bound = dict(names)
    for name, type_ in carried.items():
        bound[name] = unflatten(type_, remaining)
    return bound


def check_names(frame: Frame, loop: ast.For | ast.While, carried: Carried, after: Names) -> None:
    """Raise AssertionError if the body changes the type of a variable or a compile-time value."""
    for name in dict.fromkeys([*assigned_names(loop), *carried]):
        old = frame.names.get(name)
        if old is None:
            continue
        new = after[name]
        if name not in carried:
            if new is not old and type_of(new) != type_of(old):
                if isinstance(old, base_value):
                    raise AssertionError(f"cannot reassign constexpr {name} in the loop")
                raise AssertionError(f"Loop carried variable {name} is not a triton value")
            continue
        was, now = carried[name], type_of(new)
        assert isinstance(new, tensor) == isinstance(old, tensor), (
            f"Loop carried variable {name} changed type, was {was} but is now {now}"
        )
        if was != now:
            error = AssertionError(
                f"Loop-carried variable {name} has initial type {was} but is re-assigned to {now} "
                "in loop! Please make sure that the type stays consistent."
            )
            raise coded("loop-type", error, name=name, before=was, after=now)


def flat(names: Names, carried: Carried) -> list[Value]:
    """The IR values of the carried names, in order."""
    handles: list[Value] = []
    for name in carried:
        flatten(names[name], handles)
    return handles


def drop_arg(region: Region, index: int, value: Value) -> None:
    """Replace an argument of the region by `value` and remove it."""
    region.args[index].replace_with(value)
    del region.args[index]
    for i, arg in enumerate(region.args):
        arg.index = i


def set_values(op: Condition | Yield, operands: list[Value], fixed: int) -> None:
    """Replace the operands of a terminator; all but the first `fixed` are variadic."""
    op.drop_operands()
    op.add_operands(operands)
    op.spans = (*op.spans[:fixed], len(operands) - fixed)


# -- loops with exits ------------------------------------------------------------------------------


def labels_of(frame: Frame, loop: ast.For | ast.While) -> Targets:
    """The targets of ``continue`` and ``break`` in a run-time loop."""
    jumps(loop)
    targets = Targets(Label(frame.names), Label(frame.names))
    frame.targets[loop] = targets
    return targets


class Body(NamedTuple):
    """The two regions of a `control.while` without terminators, and the operands of these.

    Attributes:
        before, region: the region of the condition, and the body.
        test: the condition.
        inits: the initial values of carried variables.
        passed, yields: the operands of the terminators, one per carried variable.
        exit: the exit of the body.
    """

    before: Region
    region: Region
    test: Value
    inits: list[Value]
    passed: list[Value]
    yields: list[Value]
    exit: Exit | None


class LoopResult(NamedTuple):
    """The final values of carried variables, and the loop's own exit by ``return``."""

    results: list[Value]
    exit: Exit | None


def insert_while(frame: Frame, loop: Body) -> LoopResult:
    """Insert a `control.while`. If the body may return, the loop also carries a flag and the
    returned value."""
    count = len(loop.inits)
    returns = loop.exit is not None and frame.end in loop.exit.flags
    slot = type_of(loop.exit.value) if loop.exit is not None and returns else None
    if loop.exit is not None and returns:
        _carry_returned(frame, loop, loop.exit, slot)
    with frame.builder.at_end(loop.region):
        end = frame.builder.insert(Yield(loop.yields))
    with frame.builder.at_end(loop.before):
        condition = frame.builder.insert(Condition(loop.test, loop.passed))
    kept = _drop_unchanged(loop.before, loop.region, condition, end, loop.inits)
    op = frame.builder.insert(While([loop.inits[i] for i in kept], loop.before, loop.region))
    results = list(loop.inits)
    for i, result in zip(kept, op.results, strict=True):
        results[i] = result
    if not returns:
        return LoopResult(results, None)
    value = unflatten(slot, iter(results[count + 1 :]))
    return LoopResult(results[:count], Exit({frame.end: tensor(results[count])}, False, value))


def _carry_returned(frame: Frame, loop: Body, exit: Exit, slot: Any) -> None:
    """Add carried variables: a flag whether the body has returned, and the returned value."""
    loop.inits.append(convert.constant(frame.semantic, False, I1).handle)
    loop.inits.extend(undefined(frame, slot))
    for init in loop.inits[len(loop.passed) :]:
        loop.passed.append(loop.before.add_arg(init.type))
        loop.region.add_arg(init.type)
    with frame.builder.at_end(loop.region):
        flag = exit.flags[frame.end]
        loop.yields.append((any_of(frame, exit) if flag is None else flag).handle)
        flatten(exit.value, loop.yields)


def _drop_unchanged(
    before: Region, body: Region, condition: Condition, end: Yield, inits: list[Value]
) -> list[int]:
    """Remove carried variables that neither region changes; returns the indices of the others."""
    kept: list[int] = []
    for i in reversed(range(len(inits))):
        passed, yielded = list(condition.values), list(end.values)
        if passed[i] is before.args[i] and yielded[i] is body.args[i]:
            del passed[i], yielded[i]
            set_values(condition, [condition.condition, *passed], 1)
            set_values(end, yielded, 0)
            drop_arg(before, i, inits[i])
            drop_arg(body, i, inits[i])
        else:
            kept.insert(0, i)
    return kept
