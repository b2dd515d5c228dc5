"""Derivatives that the author of a kernel defines, with `defvjp`."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.autodiff.registry import AdjointPoint, TangentPoint, adjoint, derivative_error
from tilewright.ir.core import Op, Value
from tilewright.ir.types import derivative_type
from tilewright.ops.control import WithRule
from tilewright.ops.view import View


def _no_tangent(d: TangentPoint, op: WithRule) -> list[Value | None]:
    raise derivative_error(
        op,
        f"the derivative rule of {op.function} is for reverse mode: it has no tangents, and no "
        "second derivative",
        f"help: remove the rule, so that the ops of {op.function} are differentiated",
    )


@adjoint(WithRule, tangent=_no_tangent)
def _with_rule(d: AdjointPoint, op: WithRule, adjoints: Sequence[Value | None]) -> None:
    """Emit the rule; see `SourceFunction.defvjp`."""
    grads = [
        d.emit.zeros(derivative_type(value.type)) if y is None else y
        for value, y in zip(op.values, adjoints, strict=True)
    ]
    given, cotangents = op.rule.args[: -len(grads)], op.rule.args[-len(grads) :]
    here: dict[Value, Value] = dict(zip(cotangents, grads, strict=True))
    for arg, value in zip(given, (*op.args, *op.values), strict=True):
        if arg.users:
            here[arg] = d.plain(value)
    for inner in op.rule:
        if not inner.terminator:
            _emit(d, inner, here)
    for i, gradient in zip(op.of, op.rule.terminator.operands, strict=True):
        d.give(op.args[i], _at(d, gradient, here))


def _emit(d: AdjointPoint, op: Op, here: dict[Value, Value]) -> None:
    """Emit an op of a rule. Where an element of its results depends on several elements, those in
    masked-off lanes are zero, see `Emitter`."""
    inside = {v for inner in op.walk() for v in inner.results}
    inside.update(arg for inner in op.walk() for region in inner.regions for arg in region.args)
    used = {v for inner in op.walk() for v in inner.operands if v not in inside}
    keeps_lanes = op.elementwise or isinstance(op, View)
    for value in used:
        found = _at(d, value, here)
        here[value] = found if keeps_lanes else d.emit.guarded(found)
    copy = op.clone(here)
    if len(copy.results) == 1:
        d.emit.op(copy)
    else:
        d.emit.builder.insert(copy)


def _at(d: AdjointPoint, value: Value, here: dict[Value, Value]) -> Value:
    """A value of a rule. Constants may have been moved out of it."""
    return here[value] if value in here else d.plain(value)
