"""Passes after the common ones: matching of coarse operations, and splitting of large tiles.

The common passes convert sums of products to matrix products. Their operands are often cast to the
type of the sum first; the matrix unit takes the narrow ones.

Elementwise sequences on tiles that exceed the scratch memory, and reductions of such tiles, become
loops over parts of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import Pass, PassContext, Step
from tilewright.ir.rewriter import Rewriter, Rule, apply_greedily
from tilewright.ir.types import dtype_of, numpy_of
from tilewright.ops.arith import Cast
from tilewright.ops.dot import Dot
from tilewright.passes.parts import pressure
from tilewright.passes.reduce_in_parts import reduce_in_parts
from tilewright.passes.strip_mine import mine_strips
from tilewright_npu.machine import SCRATCH_BYTES
from tilewright_npu.matrix_unit import TYPES, fits


def product_of_casts(op: Dot, rw: Rewriter) -> Value | None:
    """dot(cast(a), cast(b), c) = dot(a, b, c), if the products are exact in the type of c"""
    match op.lhs.op, op.rhs.op:
        case Cast(lhs), Cast(rhs) if _is_exact(lhs, op.lhs) and _is_exact(rhs, op.rhs):
            narrow = Dot(lhs, rhs, op.acc, "ieee", 0)
            if fits(narrow):
                return rw.insert(narrow)
            narrow.drop_operands()
            return None
        case _:
            return None


def _is_exact(narrow: Value, wide: Value) -> bool:
    """Whether the matrix unit takes the values before a cast, and adds in the type after it."""
    return TYPES.get(dtype_of(narrow.type).short) == dtype_of(wide.type).short


RULES: dict[type[Op], list[Rule]] = {Dot: [Rule("product_of_casts", Dot, product_of_casts)]}


def find_coarse(fn: Function, ctx: PassContext) -> bool:
    """Apply the rewrites."""
    return apply_greedily(fn, RULES, ctx.count)


# -- parts of tiles -------------------------------------------------------------------------------

SHARE = SCRATCH_BYTES // 4
"""The bytes of a part's live tiles: several parts are in flight, so that pipes overlap."""


def take_in_parts(fn: Function, ctx: PassContext) -> bool:
    """Reduce tiles that do not fit in the scratch memory part by part, and strip-mine elementwise
    sequences of such tiles."""
    reduced = reduce_in_parts(fn, ctx, _parts)
    return mine_strips(fn, ctx, lambda s: _parts(s.ops, s.shape), ordered=True) or reduced


def _parts(ops: Sequence[Op], shape: tuple[int, ...]) -> int:
    needed = prod(shape) * pressure(ops, shape, lambda value: numpy_of(value.type).itemsize)
    if needed <= SCRATCH_BYTES:
        return 1
    return 1 << (-(-needed // SHARE) - 1).bit_length()


STEPS = (
    Step(Pass("npu_coarse", find_coarse, required=True)),
    Step(Pass("npu_strip_mine", take_in_parts)),
)
