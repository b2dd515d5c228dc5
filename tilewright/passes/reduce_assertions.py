"""Assertions of tiles become assertions of one value: whether all elements hold.

    assert(x < n)   →   assert(all(x < n))

A target that evaluates elements in loops then evaluates the condition in the loop of the reduction,
together with what else that computes, and needs no memory for it.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import I1, shape_of
from tilewright.ops.arith import And
from tilewright.ops.control import Yield
from tilewright.ops.debug import Assert
from tilewright.ops.reduce import Reduce


@compiler_pass("reduce_assertions")
def reduce_assertions(fn: Function, ctx: PassContext) -> bool:
    """Reduce the conditions of assertions to scalars; see the module docstring.

    Needs: verified SSA.  Leaves: assertions of scalars only.
    """
    found = [op for op in fn.walk() if isinstance(op, Assert) and shape_of(op.condition.type)]
    builder = Builder()
    for op in found:
        with builder.before(op):
            condition = op.condition
            while shape := shape_of(condition.type):
                condition = _all(builder, condition, len(shape) - 1)
        op.set_operand(0, condition)
    return bool(found)


def _all(builder: Builder, condition: Value, axis: int) -> Value:
    """Whether all elements along an axis hold."""
    both = Region([I1, I1])
    with builder.combining(both):
        builder.insert(Yield([builder.value(And(*both.args))]))
    return builder.insert(Reduce([condition], axis, both)).results[0]
