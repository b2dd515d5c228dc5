"""Rewrites products that have no matrix instruction as products that have one.

A product of fp32 with higher precision than tf32 becomes a sum of products of parts with fewer bits
(as in Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For
Higher-Precision Computations", 2019). fp8 without an instruction is converted to fp16, exactly.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple, TypeVar

from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.ir.rewriter import insert_before
from tilewright.ops.arith import And, Bitcast, Cast, Cmp, Constant, Select, Sub
from tilewright.ops.dot import Dot

K_BYTES = 32  # bytes along K of either operand of one instruction, of up to 32-bit elements
K_WIDE = 8  # elements of 64 bits along K

# The features of matrix instructions on fp8 operands, by type.
FP8_FEATURES = {ir.FP8E4NV: "mma_fp8", ir.FP8E5: "mma_fp8"}

AnyOp = TypeVar("AnyOp", bound=Op)


class _Split(NamedTuple):
    """A split of fp32 into parts.

    Attributes:
        type: the type of the parts; FP32 for tf32, as the instruction ignores the other bits.
        dropped: the number of low bits of an fp32 that a part does not have.
        feature: the feature of the instruction that multiplies the parts.
        terms: the pairs of parts to multiply, 0 being the leading one; smallest products first.
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


MOST_SUMS = 64
"""The most sums of a thread in a product by mma.sync of fp8. With 128, fragments of operands are
spilled: 242 TFLOP/s, by wgmma of fp16 347 (128x128x128, 4 warps, H200); with 64 320, and 271."""


def rewrite_product(op: Dot, features: frozenset[str], threads: int) -> None:
    """Replace a product of the kinds above by products that have an instruction."""
    element = ir.dtype_of(op.lhs.type)
    split = _SPLITS.get(op.precision) if element == ir.FP32 else None
    if split is not None and split.feature in features:
        _split(op, split)
    elif element.is_fp8() and "mma_fp16" in features and _needs_fp16(op, features, threads):
        left, right = (
            insert_before(Cast(v, ir.FP16, "rtne"), op).results[0] for v in (op.lhs, op.rhs)
        )
        product = insert_before(Dot(left, right, op.acc, op.precision, op.max_imprecise), op)
        replace(op, product.results[0])


def _needs_fp16(op: Dot, features: frozenset[str], threads: int) -> bool:
    """Whether a product of fp8 must be computed in fp16.

    So it is if there is no instruction for this pair of types, or the sums of wgmma have fewer bits
    than is allowed (but those of fp32 are added in parts, see `mma`, or computed by mma.sync unless
    they are many).
    """
    left, right = ir.dtype_of(op.lhs.type), ir.dtype_of(op.rhs.type)
    if left != right or FP8_FEATURES.get(left) not in features:
        return True
    if "wgmma" not in features or op.max_imprecise >= ir.shape_of(op.lhs.type)[-1]:
        return False
    if ir.dtype_of(op.acc.type) != ir.FP32:
        return True
    return op.max_imprecise < K_BYTES and prod(ir.shape_of(op.acc.type)) > MOST_SUMS * threads


def _split(op: Dot, split: _Split) -> None:
    """x y = x0 y0 + x0 y1 + x1 y0 + …, without the terms that are below the precision."""
    count = 1 + max(i for i, _ in split.terms)
    left, right = (_parts(op, value, split, count) for value in (op.lhs, op.rhs))
    precision = "tf32" if split.type == ir.FP32 else "ieee"
    acc = op.acc
    for i, j in split.terms:
        acc = insert_before(Dot(left[i], right[j], acc, precision, op.max_imprecise), op).results[0]
    replace(op, acc)


def _parts(op: Dot, value: Value, split: _Split, count: int) -> list[Value]:
    """The parts of a value: the leading bits, those of the exact remainder, and so on.

    The last part is the remainder, rounded.
    """

    def add(new: Op) -> Value:
        return insert_before(new, op).results[0]

    kept = add(Constant(~((1 << split.dropped) - 1), ir.with_element(value.type, ir.I32)))
    none = add(Constant(0.0, value.type))
    parts: list[Value] = []
    for _ in range(count - 1):
        leading = add(Bitcast(add(And(add(Bitcast(value, ir.I32)), kept)), ir.FP32))
        parts.append(leading)
        # The remainder of an infinity is 0; the difference would be NaN.
        value = add(Select(add(Cmp(value, leading, "eq")), none, add(Sub(value, leading))))
    parts.append(value)
    return [x if split.type == ir.FP32 else add(Cast(x, split.type, "rtne")) for x in parts]


def step_along_k(element: ir.DType) -> int:
    """The elements along K of one instruction."""
    size = element.nbytes_in_memory
    return K_WIDE if size == 8 else K_BYTES // size


def replace(op: Op, value: Value) -> None:
    """Replace all uses of the product by a value, and erase it."""
    op.results[0].replace_with(value)
    op.erase()
