"""The matrix instructions for block-scaled products, and the products that they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.arith import Constant
from tilewright.ops.control import For
from tilewright.ops.dot_scaled import UNIT_EXPONENT, DotScaled, Side
from tilewright.ops.tensor_memory import ROWS, STEP_COLUMNS
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import merge_equal_values
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.expand_dot_scaled import BF16_ARITHMETIC, expand
from tilewright.passes.licm import hoist_invariants
from tilewright.passes.software_pipelining import stages_of

WARP_FEATURE, TENSOR_FEATURE = "mma_block_scale", "tcgen05"
GROUP_WARPS = 4


class Kind(NamedTuple):
    """A form of the instruction.

    Attributes:
        name: its `.kind`.
        group: the elements along K that share a scale.
        scales: the scales of a row of A, or column of B (`.scale_vec`).
        scale: the type of scales.
        scale_name: its name.
    """

    name: str
    group: int
    scales: int
    scale: ir.DType
    scale_name: str

    @property
    def k(self) -> int:
        """The elements of an instruction along K."""
        return self.group * self.scales


MIXED = Kind("mxf8f6f4", 32, 1, ir.U8, "ue8m0")
MXFP4 = Kind("mxf4", 32, 2, ir.U8, "ue8m0")
NVFP4 = Kind("mxf4nvf4", 16, 4, ir.FP8E4NV, "ue4m3")

BYTE_FORMATS = ("e4m3", "e5m2")
"""Formats whose elements `tcgen05.mma` of kind `MIXED` reads as bytes one after the other; those of
6 and 4 bits would have gaps in shared memory."""


def warp_kind_of(op: DotScaled) -> Kind | None:
    """The form of `mma.sync` that computes a product; None if there is none."""
    if any(side.format in ("bf16", "fp16") for side in op.sides):
        return None
    kinds = (NVFP4, MXFP4, MIXED) if _is_packed_along_k(op) else (MIXED,)
    return next((kind for kind in kinds if _fits(op, kind, 16, 8)), None)


def tensor_kind_of(op: DotScaled) -> Kind | None:
    """The form of `tcgen05.mma` that computes a product; None if there is none."""
    bytes_each = all(side.format in BYTE_FORMATS for side in op.sides)
    kinds = (MIXED,) if bytes_each else (NVFP4, MXFP4) if _is_packed_along_k(op) else ()
    return next((kind for kind in kinds if _fits(op, kind, ROWS, STEP_COLUMNS)), None)


def _is_packed_along_k(op: DotScaled) -> bool:
    """Whether the elements of both operands have four bits, two in a byte along K."""
    return all(side.packed_axis == side.k_axis for side in op.sides)


def _fits(op: DotScaled, kind: Kind, rows: int, columns: int) -> bool:
    """Whether instructions of a kind, for at least so many rows and columns, tile the product."""
    types = {ir.dtype_of(side.scale.type) for side in op.sides if side.scale is not None}
    groups = {side.group for side in op.sides if side.group is not None} or {MIXED.group}
    shape = ir.shape_of(op.acc.type)
    return (
        groups == {kind.group}
        and types <= {kind.scale}
        and len(shape) == 2
        and all(extent & (extent - 1) == 0 for extent in (*shape, op.k))
        and shape[0] >= rows
        and shape[1] >= columns
        and op.k >= kind.k
    )


def scales_type(side: Side, kind: Kind) -> ir.Tile:
    """The type of the scales of an operand."""
    return ir.Tile((side.shape[side.free_axis], side.shape[side.k_axis] // kind.group), kind.scale)


def scales_of(b: Builder, side: Side, kind: Kind) -> Value:
    """The scales of an operand; those of one without are 1."""
    if side.scale is not None:
        return side.scale
    one = UNIT_EXPONENT if kind.scale == ir.U8 else 1.0
    return b.value(Constant(one, scales_type(side, kind)))


# -- products without an instruction --------------------------------------------------------------


@compiler_pass("expand_unscalable", required=True)
def expand_unscalable(fn: Function, ctx: PassContext) -> bool:
    """Expand the block-scaled products that no instruction computes.

    Needs: inlined calls.  Leaves: `tile.dot_scaled` where there may be an instruction.
    """
    return _expand(fn, ctx, lambda op: not _may_be_computed(op, ctx))


def _may_be_computed(op: DotScaled, ctx: PassContext) -> bool:
    if WARP_FEATURE in ctx.features:
        return warp_kind_of(op) is not None
    loop = op.parent_op()
    return (
        TENSOR_FEATURE in ctx.features
        and isinstance(loop, For)
        and stages_of(loop, ctx) > 1
        and ctx.gpu.warps % GROUP_WARPS == 0
        and tensor_kind_of(op) is not None
    )


@compiler_pass("expand_uncopied", required=True)
def expand_uncopied(fn: Function, ctx: PassContext) -> bool:
    """Expand the block-scaled products that could not be computed in tensor memory, as no tensor
    copies fill their operands, and simplify that.

    Needs: `choose_tensor_mma`.  Leaves: no `tile.dot_scaled`.
    """
    if not _expand(fn, ctx, lambda op: True):
        return False
    for simplify in (canonicalize, merge_equal_values, hoist_invariants, remove_dead_code):
        simplify(fn, ctx)
    return True


def _expand(fn: Function, ctx: PassContext, chosen: Callable[[DotScaled], bool]) -> bool:
    """Expand products; whether there were any."""
    found = [op for op in fn.walk() if type(op) is DotScaled and chosen(op)]
    for op in found:
        expand(op, in_bf16=BF16_ARITHMETIC in ctx.features)
    return bool(found)
