"""Emission of `mma.sync`, a matrix instruction on registers.

The layouts that `choose_mma.py` requests give each thread its registers in the order of the
instruction's operands, so emission only packs narrow elements into words. The number of
instructions is (M / 16) (N / 8) K-steps (more if only smaller shapes exist), divided by the warps.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.layout.linear import REGISTER
from tilewright.lowering.emit import (
    I16,
    I32,
    Builder,
)
from tilewright.lowering.simt.buffers import emit_fetch
from tilewright.lowering.simt.kernel import Kernel, Registers, emits
from tilewright.lowering.simt.tile_access import layout_of
from tilewright.lowering.simt.words import words
from tilewright.ops.nvidia import FetchAcross, Mma
from tilewright.targets.nvidia.accumulators import (
    RESULT_NAMES,
    TYPE_NAMES,
    Accumulators,
    Chain,
    registers_text,
)
from tilewright.targets.nvidia.convert import fp16_pair
from tilewright.targets.nvidia.name import NAME
from tilewright.targets.nvidia.notes import PtxVersion
from tilewright.targets.nvidia.rewrite_products import step_along_k

# The PTX versions that introduced mma.sync on fp8 (wgmma always had it), by accumulator type.
_FP8_PTX = {ir.FP32: 84, ir.FP16: 87}


class _Shape(NamedTuple):
    """The shape of an instruction: m16n8k`step_along_k`, or a part of it.

    Attributes:
        rows: its rows.
        along_k: the parts along K.
    """

    rows: int = 16
    along_k: int = 1

    def text(self, element: ir.DType) -> str:
        return f"m{self.rows}n8k{step_along_k(element) // self.along_k}"


_WHOLE = _Shape()

# The largest instruction where the feature lacks; the fragments of a larger one consist of those
# of smaller ones: registers 0 and 2 of A have rows 0 to 7, registers 0 and 1 the lower half of K.
_SMALLER = {
    ir.FP16: ("mma_m16n8k16", _Shape(along_k=2)),
    ir.I8: ("mma_m16n8k16", _Shape(rows=8, along_k=2)),
    ir.U8: ("mma_m16n8k16", _Shape(rows=8, along_k=2)),
    ir.FP64: ("mma_fp64_m16n8k8", _Shape(rows=8, along_k=2)),
}


def _shape(element: ir.DType, features: frozenset[str]) -> _Shape:
    feature, smaller = _SMALLER.get(element, ("", _WHOLE))
    return _WHOLE if feature in features else smaller


@emits(Mma, target=NAME)
def emit_mma(kernel: Kernel, op: Mma) -> None:
    """For each block of 16 x 8 of a warp's part of the result and each K step, one instruction, or
    as many smaller ones as there are parts. Products of a batch follow each other.

    The registers of a block are adjacent and in the instruction's order: a block of A is four
    words, one of B two, and one of the result `count` registers.
    """
    element = ir.dtype_of(op.lhs.type)
    acc = Accumulators(kernel, op.acc)
    left, right = (operand_registers(kernel, value) for value in (op.lhs, op.rhs))
    if element.is_fp8() and "mma_fp8_expanded" in kernel.ctx.features:
        left, right = _as_fp16(kernel.b, left, element, 4), _as_fp16(kernel.b, right, element, 2)
        element = ir.FP16
    elif element.is_fp8():
        kernel.notes.add(PtxVersion(_FP8_PTX[ir.dtype_of(op.acc.type)]))
    steps = ir.shape_of(op.lhs.type)[-1] // step_along_k(element)
    batch = _products_of_warp(kernel, op)
    rows, columns = len(left) // (4 * steps * batch), len(right) // (2 * steps * batch)
    count = len(acc.registers) // (rows * columns * batch)
    shape = _shape(element, kernel.ctx.features)
    parts = 16 // shape.rows
    result, factor = RESULT_NAMES[acc.element], TYPE_NAMES[element]
    kinds = f"{result}.{factor}.{factor}.{result}"
    some, a_words, b_words = count // parts, 4 // parts // shape.along_k, 2 // shape.along_k
    name = f"mma.sync.aligned.{shape.text(element)}.row.col.{kinds}"
    letter = "d" if element == ir.FP64 else "r"
    result = registers_text(0, some)
    for row in range(batch * rows):
        for column in range(columns):
            first = (row * columns + column) * count
            chains = [Chain(2 * some) for _ in range(parts)]
            for step in range(steps * shape.along_k):
                # Words of A: lower and upper rows, of each half of K in turn.
                a = 4 * row * steps + 4 // shape.along_k * step
                c = 2 * (row // rows * columns + column) * steps + b_words * step
                for part, chain in enumerate(chains):
                    lhs = chain.group(left[a + part : a + part + a_words * parts : parts], letter)
                    rhs = chain.group(right[c : c + b_words], letter)
                    chain.lines.append(f"{name} {result}, {lhs}, {rhs}, {result};")
            for part, chain in enumerate(chains):
                chain.add_to(acc, first + part * some, some)
    kernel.bind(op, acc.values())


def _products_of_warp(kernel: Kernel, op: Mma) -> int:
    """The products of a batch of which a warp has elements."""
    layout = layout_of(op.acc)
    registers = range(layout.in_size(REGISTER))
    return len({layout.coordinates(layout.apply_flat(i))[:-2] for i in registers})


def _as_fp16(b: Builder, operand: Registers, source: ir.DType, block: int) -> Registers:
    """The words of an operand of fp8, of so many in a block, as those of one of fp16.

    The lower two elements of each word of a block are a block of half as many steps along K, the
    upper two the next one: K is in another order, equal for both operands. That takes one sum less
    for each element of the result than what ptxas makes of the instruction, which adds the two
    products to each other first.
    """
    found: Registers = []
    for first in range(0, len(operand), block):
        words = operand[first : first + block]
        for place in (0, 16):
            pairs = [b.trunc(b.lshr(word, place), I16) for word in words]
            found += [b.bitcast(fp16_pair(b, pair, TYPE_NAMES[source]), I32) for pair in pairs]
    return found


def operand_registers(kernel: Kernel, value: Value) -> Registers:
    """An operand in the instruction's registers: words of 32 bits, or elements of fp64."""
    values = kernel.env[value]
    wide = ir.dtype_of(value.type) == ir.FP64
    return list(values) if wide else words(kernel.b, values, value.type)


emits(FetchAcross, target=NAME)(emit_fetch)
