"""Matrix products.

Canonical form: a value that is added to a product is its accumulator.
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

    This includes floats: the order of summation of a product is unspecified, and starting with `c`
    is one of the possible orders.
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
