"""Selection of `mma.sync` with block scales for each `tile.dot_scaled`.

The instruction takes operands of 32 bytes along K, 64 elements of e2m1 or 32 of wider ones, and as
metadata a byte for each scale (PTX ISA, "Block Scaling for mma.sync"). Elements of fewer than 8
bits that are not multiplied as e2m1 have a byte each; those of e2m1 become e2m3, which is exact.
"""

from __future__ import annotations

from tilewright.analysis.axis_info import axis_info
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.layout import families
from tilewright.ops.arith import Shl
from tilewright.ops.dot_scaled import PACKED, SHORT, DotScaled, Side
from tilewright.ops.nvidia import ScaledMma
from tilewright.passes.expand_dot_scaled import like, unpacked
from tilewright.passes.layout_choice import ANCHORS
from tilewright.passes.layout_rules import Demands
from tilewright.targets.nvidia.choose_mma import mma_grid, staged
from tilewright.targets.nvidia.rewrite_products import replace
from tilewright.targets.nvidia.scaled_kinds import MIXED, Kind, scales_of, warp_kind_of

WIDENED = "e2m3"  # the format that e2m1 becomes: the same bits, and two more of the mantissa
ADDED_BITS = 2
BYTE_BITS = 8


@compiler_pass("choose_scaled_mma", required=True)
def choose_scaled_mma(fn: Function, ctx: PassContext) -> bool:
    """Replace each block-scaled product by the instruction that computes it.

    Needs: `expand_unscalable`.  Leaves: `nvidia.scaled_mma`, whose operands are staged in shared
    memory if they are loaded.
    """
    found = [op for op in fn.walk() if type(op) is DotScaled]
    infos = axis_info(fn) if found else None
    for op in found:
        kind = warp_kind_of(op)
        assert kind is not None
        assert infos is not None
        b = Builder()
        with b.before(op):
            values = [staged(op, side.value, 2 + side.k_axis, infos, ctx) for side in op.sides]
            sides = [
                _operand(b, side._replace(value=value), kind)
                for side, value in zip(op.sides, values, strict=True)
            ]
            scales = [scales_of(b, side, kind) for side in op.sides]
            product = ScaledMma(
                sides[0].value, scales[0], sides[1].value, scales[1], op.acc,
                sides[0].format, sides[1].format, True, True, op.fast_math,
            )  # fmt: skip
            replace(op, b.value(product))
    ctx.count("mma", len(found))
    return bool(found)


def _operand(b: Builder, side: Side, kind: Kind) -> Side:
    """The operand in a format of the instruction."""
    if kind is not MIXED or side.format != PACKED:
        return side
    assert side.packed_axis is not None
    codes = unpacked(b, side.value, side.packed_axis)
    wide = b.value(Shl(codes, like(b, ADDED_BITS, codes)))
    return side._replace(value=wide, format=WIDENED, packed_axis=None)


@ANCHORS.of(ScaledMma)
def _demands(op: ScaledMma, ctx: PassContext) -> Demands:
    shape = ir.shape_of(op.acc.type)
    grid = mma_grid(shape, ctx.gpu.warps, chained=False)
    acc = families.mma_m16n8(shape, grid)
    lhs = families.mma_operand_a(ir.shape_of(op.lhs.type), BYTE_BITS, grid)
    rhs = families.mma_operand_b(ir.shape_of(op.rhs.type), BYTE_BITS, grid)
    assert op.lhs_scale is not None
    assert op.rhs_scale is not None
    lhs_scale = families.mma_scales_a(ir.shape_of(op.lhs_scale.type), grid)
    rhs_scale = families.mma_scales_b(ir.shape_of(op.rhs_scale.type), grid)
    return Demands([lhs, lhs_scale, rhs, rhs_scale, acc], [acc])


def has_padding_bits(format: str) -> bool:
    """Whether elements are in bytes with bits that do not belong to them, which must be 0."""
    return format in SHORT and format != PACKED
