"""The derivatives of op classes: one declaration for every class, or an error.

    @partial(Mul)
    def _mul(d: Point, op: Mul, index: int, t: Value) -> Value:
        \"\"\"∂(x y)/∂x = y\"\"\"
        return d.emit.mul(t, d.value(op.operands[1 - index]))

An elementwise op has one rule for both modes: the derivative of element i of the result depends on
element i of the operands only, so the linear map `t -> ∂f/∂x · t` is its own transpose. Forward
mode applies it to the tangents of the operands and adds the results; reverse mode applies it to the
adjoint of the result, once for each operand.

Other ops have a `Pair`: a tangent and an adjoint. A `Zero` op has a derivative that is zero
wherever it exists (comparisons, roundings, integer arithmetic). A `NotDifferentiable` op has none;
with an operand that depends on an input it is an error. `Structural` ops (memory, control flow) are
handled by forward and reverse mode directly. `rule_of` raises for a class without a declaration,
and a test requires one for every registered op, so that no op is skipped silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from tilewright.autodiff.emitter import Emitter
from tilewright.base.diagnostics import CompilationError
from tilewright.base.located import error_at
from tilewright.base.record import record
from tilewright.ir.core import Op, Region, Value


class Point(Protocol):
    """A place in a derived function at which values of the forward function are available."""

    @property
    def emit(self) -> Emitter: ...

    def plain(self, value: Value) -> Value:
        """A value of the forward function, here, in its own type."""
        ...

    def value(self, value: Value) -> Value:
        """The value in the type of its derivative: narrower floats are converted to fp32, or
        replaced by the value before rounding. For discontinuous functions, use `plain`."""
        ...

    def is_active(self, value: Value) -> bool:
        """Whether the value has a derivative."""
        ...

    def users(self, value: Value) -> Iterable[Op]:
        """The ops of the forward function that use one of its values, not those of rules."""
        ...


class AmongDerived:
    """A `Point` in the forward function itself, in which rules insert ops.

    Attributes:
        forward_ops: the ops of the forward function.
    """

    forward_ops: set[Op]

    def users(self, value: Value) -> Iterable[Op]:
        return [op for op in value.users if op in self.forward_ops]


class TangentPoint(Point, Protocol):
    """A place in a forward-mode function."""

    def tangent(self, value: Value) -> Value | None:
        """The tangent of a forward value; None for zero."""
        ...

    def differentiated(
        self, region: Region, values: Sequence[Value], tangents: Sequence[Value | None]
    ) -> tuple[list[Value], list[Value | None]]:
        """Emit the ops of a pure region for these arguments and tangents. Returns the yielded
        values and their tangents."""
        ...


class AdjointPoint(Point, Protocol):
    """A place in a reverse-mode function."""

    def give(self, value: Value, adjoint: Value | None) -> None:
        """Add to the adjoint of a forward value; None for zero."""
        ...


Apply = Callable[[Any, Any, int, Value], Value]
Tangent = Callable[[Any, Any], "list[Value | None]"]
Adjoint = Callable[[Any, Any, "list[Value | None]"], None]


@record
class Elementwise:
    """`apply(point, op, index, t)` is ∂result/∂operand[index] · t, element by element."""

    apply: Apply


@record
class Pair:
    """`tangent(point, op)` returns the tangents of the results; `adjoint(point, op, adjoints)`
    adds to the adjoints of the operands, given those of the results, of which at least one is
    not None."""

    tangent: Tangent
    adjoint: Adjoint


@record
class Zero:
    """The derivative is zero wherever it exists."""

    why: str


@record
class NotDifferentiable:
    """There is no derivative: an active operand is an error with this reason."""

    why: str


@record
class Structural:
    """The walks handle the op themselves."""

    how: str


Rule = Elementwise | Pair | Zero | NotDifferentiable | Structural
RULES: dict[type[Op], Rule] = {}

ApplyT = TypeVar("ApplyT", bound=Callable[..., Value])
AdjointT = TypeVar("AdjointT", bound=Callable[..., None])


def declare(rule: Rule, *classes: type[Op]) -> None:
    """Declare the rule of op classes."""
    for cls in classes:
        assert cls not in RULES, f"{cls.name} has two rules"
        RULES[cls] = rule


def partial(*classes: type[Op]) -> Callable[[ApplyT], ApplyT]:
    """Declare the partial derivatives of an elementwise op; see `Elementwise`."""

    def register(apply: ApplyT) -> ApplyT:
        declare(Elementwise(apply), *classes)
        return apply

    return register


def adjoint(*classes: type[Op], tangent: Tangent) -> Callable[[AdjointT], AdjointT]:
    """Declare a tangent and, as the decorated function, an adjoint; see `Pair`."""

    def register(function: AdjointT) -> AdjointT:
        declare(Pair(tangent, function), *classes)
        return function

    return register


def no_derivative(why: str, *classes: type[Op]) -> None:
    """Declare that op classes cannot be differentiated, with the reason shown in the error."""
    declare(NotDifferentiable(why), *classes)


def rule_of(op: Op) -> Rule:
    """The rule of an op.

    Raises:
        CompilationError: its class has none.
    """
    found = RULES.get(type(op))
    if found is None:
        raise derivative_error(op, f"no derivative is declared for {op.name}")
    return found


def derivative_error(op: Op | None, message: str, *notes: str) -> CompilationError:
    """An error of differentiation at the source line of an op."""
    return error_at(op.loc if op is not None else None, message, notes)
