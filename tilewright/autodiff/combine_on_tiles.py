"""The combine function of a scan or reduction, emitted on tiles, and its vector-Jacobian products.

A scan or reduction has its combine function as a region on scalars. Its gradient, which
`rules_scan.py` emits, evaluates the function and its partial derivatives for all pairs of elements
at once. So the ops of the region are emitted on tiles here, and reversed there by the rules of
their classes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.autodiff.emitter import Emitter
from tilewright.autodiff.errors import no_gradient
from tilewright.autodiff.registry import (
    AmongDerived,
    Elementwise,
    NotDifferentiable,
    Pair,
    Zero,
    rule_of,
)
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import derivative_type, element_of, is_float, shape_of, with_shape
from tilewright.ops.arith import Constant
from tilewright.ops.marks import StopGradient


class CombineOnTiles(AmongDerived):
    """A combine function on tiles, which implements the interface of rules for adjoints.

    Args:
        emit: emits at the present place.
        region: the function.
        args: its arguments, tiles of one shape.

    Raises:
        CompilationError: it has an op that is not elementwise.
    """

    def __init__(self, emit: Emitter, region: Region, args: Sequence[Value]) -> None:
        self.emit = emit
        self.args: list[Value] = []
        for arg in args:  # adjoints are by value: one that is given twice has two
            again = is_float(arg.type) and arg in self.args
            self.args.append(emit.builder.value(StopGradient(arg)) if again else arg)
        self._ops: list[Op] = []
        self.forward_ops = set()
        self._active = {v for v in self.args if is_float(v.type)}
        self._table: dict[Value, Value] = {}
        values = dict(zip(region.args, self.args, strict=True))
        for op in region:
            if not op.terminator:
                values[op.result] = self._emit_on_tiles(op, values)
        self._results = [values[v] for v in region.terminator.operands]

    def _emit_on_tiles(self, op: Op, values: dict[Value, Value]) -> Value:
        if isinstance(op, Constant):
            shape = shape_of(self.args[0].type)
            return self.emit.builder.value(Constant(op.value, with_shape(op.type, shape)))
        if not op.elementwise or len(op.results) != 1:
            raise no_gradient(op, "it is in a combine function, and not elementwise")
        made = type(op)(*[values[v] for v in op.operands], **op.attributes)
        rule = rule_of(op)
        if isinstance(rule, NotDifferentiable) and any(v in self._active for v in made.operands):
            raise no_gradient(op, rule.why)
        self._ops.append(self.emit.builder.insert(made))
        self.forward_ops.add(made)
        if is_float(made.result.type) and any(v in self._active for v in made.operands):
            self._active.add(made.result)
        return made.result

    def pulled_back(self, adjoints: Sequence[Value | None]) -> list[Value | None]:
        """The adjoints of the arguments, from those of the results; None for zero."""
        self._table = {}
        for result, y in zip(self._results, adjoints, strict=True):
            self.give(result, y)
        for op in reversed(self._ops):
            y = self._table.get(op.result)
            if y is not None:
                self._reverse(op, y)
        return [self._table.get(arg) for arg in self.args]

    def _reverse(self, op: Op, y: Value) -> None:
        match rule_of(op):
            case Zero():
                pass
            case Elementwise(apply):
                for i, operand in enumerate(op.operands):
                    if operand in self._active:
                        self.give(operand, apply(self, op, i, y))
            case Pair(_, adjoint):
                adjoint(self, op, [y])
            case _:
                raise no_gradient(op, "it is in a combine function")

    # -- interface of rules ---------------------------------------------------------------------

    def plain(self, value: Value) -> Value:
        return value

    def value(self, value: Value) -> Value:
        return self.emit.wide(value)

    def is_active(self, value: Value) -> bool:
        return value in self._active

    def give(self, value: Value, adjoint: Value | None) -> None:
        if adjoint is None or value not in self._active:
            return
        wide = self.emit.cast(adjoint, element_of(derivative_type(value.type)))
        before = self._table.get(value)
        self._table[value] = wide if before is None else self.emit.add(before, wide)
