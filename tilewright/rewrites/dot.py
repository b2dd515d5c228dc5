"""Matrix products.

Canonical form: a sum with a product is the product's accumulator.
"""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.rewriter import Rewriter, rewrite
from tilewright.ops.arith import Add
from tilewright.ops.dot import Dot
from tilewright.rewrites.patterns import known


@rewrite(Add)
def add_to_dot(op: Add, rw: Rewriter) -> Value | None:
    """c + dot(a, b, 0) = dot(a, b, c)

    For floats too: a product's order of summation is the target's choice, and starting the sum
    from `c` is one of the orders. The language takes both forms for the same accumulation.
    """
    for product, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        match product.op:
            case Dot(a, b, acc, precision, max_imprecise) if (
                known(acc) == 0 and len(product.users) == 1 and other is not product
            ):
                return rw.insert(Dot(a, b, other, precision, max_imprecise))
            case _:
                pass
    return None
