"""Matrix products.

Canonical form: a matrix that is added to a product is its accumulator; a sum of products over all
three axes of two matrices is a product of matrices.
"""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.rewriter import Rewriter, rewrite
from tilewright.ir.types import FP32, FP64, dtype_of, shape_of
from tilewright.ops.arith import Add, Constant, Mul
from tilewright.ops.dot import Dot
from tilewright.ops.reduce import Reduce, simple_combine
from tilewright.ops.shape import Broadcast, Permute, Reshape
from tilewright.rewrites.patterns import known

LEAST = 8
"""The least extent of each axis of a sum that becomes a product."""


@rewrite(Add)
def add_to_dot(op: Add, rw: Rewriter) -> Value | None:
    """c + dot(a, b, 0) = dot(a, b, c)

    This includes floats: the order of summation of a product is unspecified, and starting with `c`
    is one of the possible orders. A vector that is repeated stays a sum: a matrix unit starts with
    zeros at no cost, and would otherwise wait until all elements of `c` are in its registers.
    """
    for product, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        if isinstance(other.op, Broadcast):
            continue
        match product.op:
            case Dot(a, b, acc, precision, max_imprecise) if (
                known(acc) == 0 and len(product.users) == 1 and other is not product
            ):
                return rw.insert(Dot(a, b, other, precision, max_imprecise))
            case _:
                pass
    return None


@rewrite(Reduce)
def sum_of_products(op: Reduce, rw: Rewriter) -> Value | None:
    """sum(a[:, :, None] * b[None, :, :], 1) = dot(a, b), and likewise for the other axes

    For fp32 and fp64, with the precision "ieee": the order of summation is unspecified in both.
    """
    (source, *others) = op.srcs
    match source.op:
        case Mul(Value(op=Broadcast(a)), Value(op=Broadcast(b))) if (
            not others
            and isinstance(simple_combine(op), Add)
            and len(source.users) == 1
            and len(shape_of(source.type)) == 3
            and min(shape_of(source.type)) >= LEAST
            and dtype_of(source.type) in (FP32, FP64)
        ):
            row, column = (axis for axis in range(3) if axis != op.axis)
            repeated = [_repeated_axes(v) for v in (a, b)]
            if repeated == [[row], [column]]:
                a, b = b, a
            elif repeated != [[column], [row]]:
                return None
            lhs = _matrix(rw, a, column, transposed=op.axis < row)
            rhs = _matrix(rw, b, row, transposed=column < op.axis)
            zero = rw.insert(Constant(0.0, op.results[0].type))
            return rw.insert(Dot(lhs, rhs, zero, "ieee", 0))
        case _:
            return None


def _repeated_axes(value: Value) -> list[int]:
    """The axes of length 1."""
    return [axis for axis, extent in enumerate(shape_of(value.type)) if extent == 1]


def _matrix(rw: Rewriter, value: Value, axis: int, *, transposed: bool) -> Value:
    """The value without an axis of length 1, and transposed."""
    shape = shape_of(value.type)
    found = rw.insert(Reshape(value, shape[:axis] + shape[axis + 1 :]))
    return rw.insert(Permute(found, (1, 0))) if transposed else found
