"""The matrix instructions of each processor, by feature.

An instruction multiplies two tiles of `side` rows; see `ops.amd.Mma`. LLVM ends the process on the
intrinsic of another processor, so they are named here only.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import types as ir
from tilewright.layout.families import amd_step
from tilewright.lowering.emit import BF16, F16, F32, F64, I16, I32, I64, LType, vector


class Instruction(NamedTuple):
    """A matrix instruction.

    Attributes:
        feature: of the processors that have it.
        types: of the elements of its two operands.
        side: rows and columns of its result.
        width: elements of a lane, of either operand.
        operand: the LLVM type of these.
        name: LLVM's intrinsic, without ``llvm.amdgcn.``; of fp8, without the suffixes for types.
        sums: the type of the accumulators.
        group: see `amd_accumulator`.
    """

    feature: str
    types: frozenset[ir.DType]
    side: int
    width: int
    operand: LType
    name: str
    sums: ir.DType = ir.FP32
    group: int = 4

    def step(self, lanes: int) -> int:
        """Elements along K."""
        return amd_step(self.side, self.width, lanes)


_HALF, _BRAIN, _INT8 = (frozenset({t}) for t in (ir.FP16, ir.BF16, ir.I8))
_SINGLE, _DOUBLE = frozenset({ir.FP32}), frozenset({ir.FP64})
_FNUZ = frozenset({ir.FP8E4B8, ir.FP8E5B16})
_OCP = frozenset({ir.FP8E4NV, ir.FP8E5})
_BYTES = frozenset({ir.I8, ir.U8})

FP8_NAMES = {ir.FP8E4B8: "fp8", ir.FP8E5B16: "bf8", ir.FP8E4NV: "fp8", ir.FP8E5: "bf8"}
"""Types of fp8 in the names of instructions; which formats they have depends on the processor."""


# Of several that fit, the first of a side is used: the widest.
INSTRUCTIONS = (
    Instruction("mfma_f16_wide", _HALF, 32, 8, vector(F16, 8), "mfma.f32.32x32x16.f16"),
    Instruction("mfma_f16_wide", _HALF, 16, 8, vector(F16, 8), "mfma.f32.16x16x32.f16"),
    Instruction("mfma_f16_wide", _BRAIN, 32, 8, vector(BF16, 8), "mfma.f32.32x32x16.bf16"),
    Instruction("mfma_f16_wide", _BRAIN, 16, 8, vector(BF16, 8), "mfma.f32.16x16x32.bf16"),
    Instruction("mfma", _HALF, 32, 4, vector(F16, 4), "mfma.f32.32x32x8f16"),
    Instruction("mfma", _HALF, 16, 4, vector(F16, 4), "mfma.f32.16x16x16f16"),
    Instruction("mfma", _BRAIN, 32, 4, vector(I16, 4), "mfma.f32.32x32x8bf16.1k"),
    Instruction("mfma", _BRAIN, 16, 4, vector(I16, 4), "mfma.f32.16x16x16bf16.1k"),
    Instruction("mfma_i8_16", _INT8, 32, 16, vector(I32, 4), "mfma.i32.32x32x32.i8", ir.I32),
    Instruction("mfma_i8_16", _INT8, 16, 16, vector(I32, 4), "mfma.i32.16x16x64.i8", ir.I32),
    Instruction("mfma_i8_8", _INT8, 32, 8, I64, "mfma.i32.32x32x16.i8", ir.I32),
    Instruction("mfma_i8_8", _INT8, 16, 8, I64, "mfma.i32.16x16x32.i8", ir.I32),
    Instruction("mfma_i8_4", _INT8, 32, 4, I32, "mfma.i32.32x32x8i8", ir.I32),
    Instruction("mfma_i8_4", _INT8, 16, 4, I32, "mfma.i32.16x16x16i8", ir.I32),
    Instruction("mfma_fp8_fnuz", _FNUZ, 32, 8, I64, "mfma.f32.32x32x16"),
    Instruction("mfma_fp8_fnuz", _FNUZ, 16, 8, I64, "mfma.f32.16x16x32"),
    Instruction("mfma_fp8_ocp", _OCP, 32, 8, I64, "mfma.f32.32x32x16"),
    Instruction("mfma_fp8_ocp", _OCP, 16, 8, I64, "mfma.f32.16x16x32"),
    Instruction("mfma", _SINGLE, 32, 1, F32, "mfma.f32.32x32x2f32"),
    Instruction("mfma", _SINGLE, 16, 1, F32, "mfma.f32.16x16x4f32"),
    Instruction("mfma", _DOUBLE, 16, 1, F64, "mfma.f64.16x16x4f64", ir.FP64, 1),
    Instruction("wmma_gfx11", _HALF, 16, 16, vector(F16, 16), "wmma.f32.16x16x16.f16", group=1),
    Instruction("wmma_gfx11", _BRAIN, 16, 16, vector(I16, 16), "wmma.f32.16x16x16.bf16", group=1),
    Instruction("wmma_gfx11", _BYTES, 16, 16, vector(I32, 4), "wmma.i32.16x16x16.iu8", ir.I32, 1),
    Instruction("wmma_gfx12", _HALF, 16, 8, vector(F16, 8), "wmma.f32.16x16x16.f16", group=8),
    Instruction("wmma_gfx12", _BRAIN, 16, 8, vector(I16, 8), "wmma.f32.16x16x16.bf16", group=8),
    Instruction("wmma_gfx12", _BYTES, 16, 8, vector(I32, 2), "wmma.i32.16x16x16.iu8", ir.I32, 8),
    Instruction("wmma_gfx12", _OCP, 16, 8, vector(I32, 2), "wmma.f32.16x16x16", group=8),
)


def instructions(left: ir.DType, right: ir.DType, features: frozenset[str]) -> list[Instruction]:
    """The instructions that multiply these types, at most one of each side, the larger first."""
    found: dict[int, Instruction] = {}
    for row in INSTRUCTIONS:
        same = left == right or left.is_fp8()
        if row.feature in features and {left, right} <= row.types and same:
            found.setdefault(row.side, row)
    return [found[side] for side in sorted(found, reverse=True)]


def instruction(
    left: ir.DType, right: ir.DType, side: int, width: int, features: frozenset[str]
) -> Instruction:
    """The instruction of an `amd.mma`."""
    of_side = (row for row in instructions(left, right, features) if row.side == side)
    row = next(of_side)
    assert row.width == width
    return row
