"""Contracts a product and a sum to a fused multiply-add.

    y = x * w + b    →    y = fma(x, w, b)

A target may recompute an element in each loop that uses it. If LLVM contracted sums, it could do so
in one loop and not in another: the same element would have two values, and `x == tl.max(x, 0)`
could hold for no element. This pass therefore decides once for each sum: a product is contracted if
it has no other use. Products summed by a reduction are not affected, as the reduction runs once.
Linear in the number of ops.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import FP32, FP64, element_of
from tilewright.ops.arith import Add, Fma, Mul, Neg, Sub


@compiler_pass("contract_sums")
def contract_sums(fn: Function, ctx: PassContext) -> bool:
    """Contract products and sums; see the module docstring."""
    sums = [op for op in fn.walk() if isinstance(op, Add | Sub)]
    negated: dict[tuple[Value, Region], Value] = {}
    changed = False
    for op in sums if ctx.options.get("enable_fp_fusion", True) else ():
        if element_of(op.result.type) not in (FP32, FP64):
            continue
        index = next((i for i in (0, 1) if _is_contracted(op, i)), None)
        if index is None:
            continue
        product = op.operands[index].op
        assert isinstance(product, Mul)
        builder = Builder()
        with builder.before(op):
            op.result.replace_with(_contracted(builder, op, index, product, negated))
        op.erase()
        product.erase()
        ctx.count("contracted")
        changed = True
    return changed


def _is_contracted(op: Add | Sub, index: int) -> bool:
    """Whether an operand is a product of the same region that has no other use."""
    product = op.operands[index].op
    if not isinstance(product, Mul) or product.parent is not op.parent:
        return False
    return sum(product.result.users.values()) == 1


def _contracted(
    builder: Builder,
    op: Add | Sub,
    index: int,
    product: Mul,
    negated: dict[tuple[Value, Region], Value],
) -> Value:
    """The operation in place of a sum.

    Args:
        negated: the negations so far. Those of a factor that many sums share would be as many equal
            values, and LLVM's NewGVN takes a time that grows with the square of their number.
    """
    x, y, z = product.lhs, product.rhs, op.operands[1 - index]

    def negative(value: Value) -> Value:
        assert op.parent is not None
        key = value, op.parent  # in one region, an earlier op dominates a later one
        if key not in negated:
            negated[key] = builder.value(Neg(value))
        return negated[key]

    if isinstance(op, Sub):
        if index == 0:
            z = negative(z)
        else:
            x = negative(x)
    return builder.value(Fma(x, y, z))
