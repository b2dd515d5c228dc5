"""Products that no matrix instruction computes as they are, as products that one does.

fp32 with more precision than the matrix units have is a sum of products of shorter numbers, and
fp8 of the kinds that they lack is fp16, exactly.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.ops.arith import And, Bitcast, Cast, Cmp, Constant, Select, Sub
from tilewright.ops.dot import Dot

# The features for matrix instructions on operands of fp8, by their kind.
FP8_FEATURES = {ir.FP8E4NV: "mma_fp8", ir.FP8E5: "mma_fp8"}


class _Split(NamedTuple):
    """How fp32 is split.

    Attributes:
        type: of the parts: tf32 is fp32, of which the instruction reads no more.
        dropped: last bits of an fp32 that a part does not have.
        feature: what multiplies the parts.
        terms: which parts of either side are multiplied, 0 the leading one; small terms first.
    """

    type: ir.DType
    dropped: int
    feature: str
    terms: tuple[tuple[int, int], ...]


_THREE = ((1, 0), (0, 1), (0, 0))
_SIX = ((2, 0), (1, 1), (0, 2), *_THREE)
_SPLITS = {
    "tf32x3": _Split(ir.FP32, 13, "mma_tf32", _THREE),
    "bf16x3": _Split(ir.BF16, 16, "mma_bf16", _THREE),
    "bf16x6": _Split(ir.BF16, 16, "mma_bf16", _SIX),
}


def rewrite_product(op: Dot, features: frozenset[str]) -> None:
    """Replace the product by ones that have instructions, if it is of the kinds above."""
    element = ir.dtype_of(op.lhs.type)
    split = _SPLITS.get(op.precision) if element == ir.FP32 else None
    if split is not None and split.feature in features:
        _split(op, split)
    elif element.is_fp8() and "mma_m16n8k16" in features and _wants_fp16(op, features):
        left, right = (before(op, Cast(v, ir.FP16, "rtne")).results[0] for v in (op.lhs, op.rhs))
        product = before(op, Dot(left, right, op.acc, op.precision, op.max_imprecise))
        replace(op, product.results[0])


def _wants_fp16(op: Dot, features: frozenset[str]) -> bool:
    """Whether no instruction takes this pair, or it sums in fewer bits than is allowed, or an
    operand is a constant.

    ptxas (12.8 and 13.0) makes two products of fp16 of one mma.sync of fp8 for Hopper. Where a
    constant operand shared a register with a loop's counter, the second took 84 for 0 (seen in SASS
    of a random program; at -O1 too).
    """
    left, right = ir.dtype_of(op.lhs.type), ir.dtype_of(op.rhs.type)
    if left != right or FP8_FEATURES.get(left) not in features:
        return True
    if any(isinstance(v.op, Constant) for v in (op.lhs, op.rhs)):
        return True
    return "wgmma" in features and op.max_imprecise < ir.shape_of(op.lhs.type)[-1]


def _split(op: Dot, split: _Split) -> None:
    """x y = x0 y0 + x0 y1 + x1 y0 + …, of which the terms left out are beyond the precision."""
    count = 1 + max(i for i, _ in split.terms)
    left, right = (_parts(op, value, split, count) for value in (op.lhs, op.rhs))
    precision = "tf32" if split.type == ir.FP32 else "ieee"
    acc = op.acc
    for i, j in split.terms:
        acc = before(op, Dot(left[i], right[j], acc, precision, op.max_imprecise)).results[0]
    replace(op, acc)


def _parts(op: Dot, value: Value, split: _Split, count: int) -> list[Value]:
    """The leading bits of the number, then those of the exact rest, and so on; the last part is
    all that is left, rounded."""

    def add(new: Op) -> Value:
        return before(op, new).results[0]

    kept = add(Constant(~((1 << split.dropped) - 1), ir.with_element(value.type, ir.I32)))
    none = add(Constant(0.0, value.type))
    parts: list[Value] = []
    for _ in range(count - 1):
        leading = add(Bitcast(add(And(add(Bitcast(value, ir.I32)), kept)), ir.FP32))
        parts.append(leading)
        # Of an infinity nothing is left, where a difference would be NaN.
        value = add(Select(add(Cmp(value, leading, "eq")), none, add(Sub(value, leading))))
    parts.append(value)
    return [x if split.type == ir.FP32 else add(Cast(x, split.type, "rtne")) for x in parts]


def before(op: Op, new: Op) -> Op:
    """Insert an op before another, with its location."""
    new.loc = op.loc
    assert op.parent is not None
    op.parent.insert_before(new, op)
    return new


def replace(op: Dot, value: Value) -> None:
    """Have all users of the product use the value."""
    op.result.replace_with(value)
    op.erase()
