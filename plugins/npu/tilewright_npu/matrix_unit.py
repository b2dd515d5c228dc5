"""The matrix unit: products of tiles whose elements are in fractal order.

A fractal is 16 rows of an operand, and 32 bytes of each. The unit multiplies two of them in a
cycle, and adds the product to 16 x 16 elements. Operands and accumulators have their own memories:

| memory | holds | axes, slowest first |
|---|---|---|
| ``l0a`` | the left operand | k1 m1 m0 k0 |
| ``l0b`` | the right operand | k1 n1 n0 k0 |
| ``l0c`` | the accumulator | n1 m1 m0 n0 |

m0 and n0 are 16 long, k0 is 16 for 16-bit types and 32 for 8-bit ones. The pipe ``move`` packs
tiles of scratch memory or ``l1`` into this order; the vector pipe unpacks results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.types import dtype_of, shape_of
from tilewright.ops import arith, control, shape
from tilewright.ops.dot import Dot
from tilewright_npu.machine import CAPACITY, FRACTAL, FRACTAL_BYTES

Array = np.ndarray[Any, Any]

TYPES = {"fp16": "fp32", "bf16": "fp32", "i8": "i32"}
"""Element types of operands, and of their accumulators."""


def depth_of(element: str) -> int:
    """Elements of a fractal along K."""
    return FRACTAL_BYTES // (1 if element == "i8" else 2)


def packed_shapes(op: Dot) -> dict[str, tuple[int, ...]]:
    """The shapes of both operands and the accumulator in fractal order, by memory."""
    (m, k), (_, n) = shape_of(op.lhs.type), shape_of(op.rhs.type)
    k0 = depth_of(dtype_of(op.lhs.type).short)
    m1, n1, k1 = m // FRACTAL, n // FRACTAL, k // k0
    return {
        "l0a": (k1, m1, FRACTAL, k0),
        "l0b": (k1, n1, FRACTAL, k0),
        "l0c": (n1, m1, FRACTAL, FRACTAL),
    }


def fits(op: Dot) -> bool:
    """Whether the unit can execute a product."""
    lhs, rhs, acc = (dtype_of(v.type).short for v in (op.lhs, op.rhs, op.acc))
    if lhs != rhs or TYPES.get(lhs) != acc or len(shape_of(op.lhs.type)) != 2:
        return False
    (m, k), (_, n) = shape_of(op.lhs.type), shape_of(op.rhs.type)
    if m % FRACTAL or n % FRACTAL or k % depth_of(lhs):
        return False
    size = 1 if lhs == "i8" else 2
    sizes = {"l0a": m * k * size, "l0b": k * n * size, "l0c": m * n * 4}
    return all(sizes[space] <= CAPACITY[space] // 2 for space in sizes)


def is_zero(value: Value) -> bool:
    """Whether an accumulator starts with zeros."""
    op = value.op
    while isinstance(op, shape.Splat):
        op = op.src.op
    return isinstance(op, arith.Constant) and op.value == 0 and str(op.value) != "-0.0"


def accumulating(loop: control.For, index: int) -> Dot | None:
    """The only product of a loop's body that adds to the carried value with an index, if that has
    no other use within the loop: it can stay in the unit's memory."""
    value = loop.body.args[1 + index]
    result = loop.body.terminator.operands[index]
    op = result.op
    if not isinstance(op, Dot) or op.acc is not value or op.parent is not loop.body:
        return None
    alone = len(value.users) == len(result.users) == 1
    once = value.users[op] == 1 and result.users.get(loop.body.terminator) == 1
    return op if alone and once and fits(op) else None


# -- what the instructions do ---------------------------------------------------------------------


def pack(tile: Array, packed: tuple[int, ...], order: str) -> Array:
    """A tile in fractal order.

    Args:
        packed: the shape of the result.
        order: ``l0a``, ``l0b`` or ``l0c``; with a prefix ``t`` for the transposed tile.
    """
    if order[0] == "t":
        tile, order = tile.T, order[1:]
    outer, inner, rows, columns = packed
    if order == "l0a":  # m k -> k1 m1 m0 k0
        return tile.reshape(inner, rows, outer, columns).transpose(2, 0, 1, 3)
    if order == "l0b":  # k n -> k1 n1 n0 k0
        return tile.reshape(outer, columns, inner, rows).transpose(0, 2, 3, 1)
    return tile.reshape(inner, rows, outer, columns).transpose(2, 0, 1, 3)  # m n -> n1 m1 m0 n0


def unpack(packed: Array) -> Array:
    """The tile of an accumulator in fractal order."""
    n1, m1, m0, n0 = packed.shape
    return packed.transpose(1, 2, 0, 3).reshape(m1 * m0, n1 * n0)


def multiply(lhs: Array, rhs: Array, acc: Array) -> Array:
    """acc + lhs @ rhs, all in fractal order: fractal by fractal along K, each sum rounded to the
    type of the accumulator."""
    total = acc.copy()
    for a, b in zip(lhs.astype(acc.dtype), rhs.astype(acc.dtype), strict=True):
        total += np.einsum("mik,njk->nmij", a, b, dtype=acc.dtype)
    return total
