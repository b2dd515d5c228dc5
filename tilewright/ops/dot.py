"""Matrix product of tiles."""

from __future__ import annotations

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, require
from tilewright.ir.index_map import Along, Every, IndexMap, identity
from tilewright.ir.traits import PURE
from tilewright.ir.types import (
    FP16,
    FP32,
    FP64,
    I32,
    Type,
    dtype_of,
    is_pointer,
    shape_of,
)
from tilewright.ops.numeric import Array, float_to_float

PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")


class Dot(Op, name="tile.dot", traits=PURE):
    """acc + lhs @ rhs, over the last two axes; leading axes are batch axes.

    8-bit integers accumulate in i32, floats of 16 bits or fewer in fp16 or fp32. `precision`
    specifies the rounding of fp32 operands: "ieee" none, "tf32" to 10 mantissa bits; the others
    split an operand into a sum of narrower ones.

    Integers wrap. Floats are summed in an unspecified order; each sum is rounded to fp32 (for fp64,
    to fp64), and the result to the type of `acc`. In a bf16 product, as bf16 instructions do, sums
    may be rounded to odd instead of to nearest, and subnormal operands and sums flushed to zero.

        %3 = tile.dot %0, %1, %2, precision="ieee", max_imprecise=0
          : (4x8xfp16, 8x16xfp16, 4x16xfp32) -> 4x16xfp32
    """

    lhs: Value = operand()
    rhs: Value = operand()
    acc: Value = operand()
    precision: str = attr("ieee")
    max_imprecise: int = attr(0)

    def result_type(self) -> Type:
        return self.acc.type

    def verify(self) -> None:
        a, b, c = (shape_of(v.type) for v in (self.lhs, self.rhs, self.acc))
        fits = (
            len(a) == len(b) == len(c) >= 2
            and a[:-2] == b[:-2] == c[:-2]
            and a[-1] == b[-2]
            and c[-2:] == (a[-2], b[-1])
        )
        require(fits, self, "shape", "{a} @ {b} does not give {c}", a=a, b=b, c=c)
        require(
            self.precision in PRECISIONS,
            self,
            "precision",
            "there is no precision {p!r}",
            p=self.precision,
        )
        require(
            not any(is_pointer(v.type) for v in (self.lhs, self.rhs, self.acc)),
            self,
            "element-type",
            "does not take pointers",
        )
        left, right, acc = (dtype_of(v.type) for v in (self.lhs, self.rhs, self.acc))
        if left.is_int():
            ok = left == right and left.primitive_bitwidth == 8 and acc == I32
        elif left.is_fp8():
            ok = right.is_fp8() and acc in (FP16, FP32)
        elif left.primitive_bitwidth == 16:
            ok = left == right and acc in ((FP16, FP32) if left == FP16 else (FP32,))
        else:
            ok = left == right == acc and left in (FP32, FP64)
        require(
            ok,
            self,
            "element-type",
            "a product {a} @ {b} with the accumulator {c} is not supported",
            a=left,
            b=right,
            c=acc,
        )

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        *batch, m, k = shape_of(self.lhs.type)
        result_shape = shape_of(self.acc.type)
        rank = len(result_shape)
        outer = tuple(Along(axis) for axis in range(rank - 2))
        return (
            IndexMap((*batch, m, k), result_shape, (*outer, Along(rank - 2), Every())),
            IndexMap(
                (*batch, k, result_shape[-1]), result_shape, (*outer, Every(), Along(rank - 1))
            ),
            identity(result_shape),
        )

    def evaluate(self, lhs: Array, rhs: Array, acc: Array) -> Array:
        if dtype_of(self.acc.type) == I32:
            return acc + np.matmul(lhs.astype(np.int32), rhs.astype(np.int32))
        if self.precision == "tf32" and dtype_of(self.lhs.type) == FP32:
            lhs, rhs = _round_tf32(lhs), _round_tf32(rhs)
        product = np.matmul(lhs.astype(np.float64), rhs.astype(np.float64))
        total = product + acc.astype(np.float64)
        return float_to_float(total, dtype_of(self.acc.type), "rtne")


def _round_tf32(x: Array) -> Array:
    """Round fp32 to 10 mantissa bits, to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(
        0xFFFFE000
    )
    return np.where(np.isfinite(x), rounded.view(np.float32), x)
