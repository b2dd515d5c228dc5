"""Emission of matrix instructions.

The layouts that `choose_mma` requests give each thread its registers in the order of the
instruction's operands, so emission only joins them into vectors. The operands are exchanged: the
instruction computes the transposed result, of which a thread holds adjacent columns. There are
(M / side) (N / side) (K / step) instructions, divided by the warps.
"""

from __future__ import annotations

from itertools import product

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.lowering.emit import I1, V, const
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.lowering.simt.words import joined, row
from tilewright.lowering.types import register_type
from tilewright.ops.amd import Mma
from tilewright.targets.amd.hardware import AmdHardware
from tilewright.targets.amd.mma_table import FP8_NAMES, Instruction, instruction
from tilewright.targets.amd.name import NAME


@emits(Mma, target=NAME)
def emit_mma(kernel: Kernel, op: Mma) -> None:
    """An instruction for each block of a warp's part of the result, and each step along K.

    The registers of a block of the result are adjacent, as are those of an operand for `op.pack`
    instructions.
    """
    b, hw = kernel.b, kernel.hw
    assert isinstance(hw, AmdHardware)
    types = ir.dtype_of(op.lhs.type), ir.dtype_of(op.rhs.type)
    how = instruction(*types, op.side, op.width, hw.chip.features)
    left, right = (_operands(kernel, value, op.width, how) for value in (op.lhs, op.rhs))
    sums = kernel.env[op.acc]
    steps = ir.shape_of(op.lhs.type)[1] // how.step(hw.lanes)
    rows, columns = len(left) // steps, len(right) // steps
    count = len(sums) // (rows * columns)
    blocks = [joined(b, sums[i : i + count]) for i in range(0, len(sums), count)]
    # Instructions that follow each other do not depend on each other. Operands of a step are in
    # registers at once of the side that has fewer, and one after the other of the other side.
    places = sorted(product(range(rows), range(columns)), key=lambda at: at[columns > rows])
    for step in range(steps):
        for above, across in places:
            block = above * columns + across
            x, y = left[above * steps + step], right[across * steps + step]
            blocks[block] = _emit(kernel, how, types, x, y, blocks[block])
    found = [b.extract(acc, i) for acc in blocks for i in range(count)]
    kernel.bind(op, found)


def _operands(kernel: Kernel, value: Value, width: int, how: Instruction) -> list[V]:
    """The operand of each instruction."""
    b, registers = kernel.b, kernel.env[value]
    parts = (registers[start : start + width] for start in range(0, len(registers), width))
    return [b.bitcast(row(b, part, value.type), how.operand) for part in parts]


def _emit(
    kernel: Kernel,
    how: Instruction,
    types: tuple[ir.DType, ir.DType],
    x: V,
    y: V,
    acc: V,
) -> V:
    """One instruction on a row of `lhs` and a column of `rhs`, which computes its transpose."""
    b = kernel.b
    name = f"llvm.amdgcn.{how.name}"
    if types[0].is_fp8():
        name += f".{FP8_NAMES[types[1]]}.{FP8_NAMES[types[0]]}"
    if how.name.startswith("mfma"):
        none = const(register_type(ir.I32), 0)
        return b.intrinsic(name, acc.type, [y, x, acc, none, none, none])
    overloads = [acc.type, x.type]
    if not types[0].is_int():
        return b.intrinsic(name, acc.type, [y, x, acc], overloads)
    signs = [const(I1, int(t.is_int_signed())) for t in (types[1], types[0])]
    args = [signs[0], y, signs[1], x, acc, const(I1, 0)]
    return b.intrinsic(name, acc.type, args, overloads)
