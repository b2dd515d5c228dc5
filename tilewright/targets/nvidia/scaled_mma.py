"""Emission of `mma.sync` with block scales."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.lowering.emit import I32, V
from tilewright.lowering.simt.kernel import Kernel, Registers, emits
from tilewright.lowering.simt.words import words
from tilewright.ops.nvidia import ScaledMma
from tilewright.targets.nvidia.accumulators import Accumulators, registers_text
from tilewright.targets.nvidia.choose_scaled_mma import has_padding_bits
from tilewright.targets.nvidia.name import NAME
from tilewright.targets.nvidia.scaled_kinds import warp_kind_of

A_WORDS, B_WORDS, SUMS = 4, 2, 4  # registers of an instruction
WORD_BYTES = 4
ELEMENT_BITS = 0x3F3F3F3F  # the bits of four elements of 6 bits, a byte each


@emits(ScaledMma, target=NAME)
def emit_scaled_mma(kernel: Kernel, op: ScaledMma) -> None:
    """For each block of 16 x 8 of a warp's part of the result and each step along K, one
    instruction, which takes its scales from a word of four of them, from byte `byte` on."""
    kind = warp_kind_of(op)
    assert kind is not None
    assert op.lhs_scale is not None
    assert op.rhs_scale is not None
    acc = Accumulators(kernel, op.acc)
    left = _elements(kernel, op.lhs, op.lhs_format)
    right = _elements(kernel, op.rhs, op.rhs_format)
    left_scales, right_scales = _scales(kernel, op.lhs_scale), _scales(kernel, op.rhs_scale)
    steps = op.k // kind.k
    rows, columns = len(left) // (A_WORDS * steps), len(right) // (B_WORDS * steps)
    scales = steps * kind.scales  # of a row
    k = f"m16n8k{kind.k}.row.col.kind::{kind.name}.block_scale.scale_vec::{kind.scales}X"
    name = f"mma.sync.aligned.{k}.f32.{op.lhs_format}.{op.rhs_format}.f32.{kind.scale_name}"
    first = 2 * SUMS
    words_text = (
        f"{registers_text(first, A_WORDS)}, {registers_text(first + A_WORDS, B_WORDS)}, "
        f"{registers_text(0, SUMS)}"
    )
    first += A_WORDS + B_WORDS
    for row in range(rows):
        for column in range(columns):
            for step in range(steps):
                a, b = A_WORDS * (row * steps + step), B_WORDS * (column * steps + step)
                s, s_byte = divmod(row * scales + step * kind.scales, WORD_BYTES)
                t, t_byte = divmod(column * scales + step * kind.scales, WORD_BYTES)
                code = (
                    f"{name} {registers_text(0, SUMS)}, {words_text}, "
                    f"${first}, {{{s_byte}, 0}}, ${first + 1}, {{{t_byte}, 0}};"
                )
                inputs = [
                    *left[a : a + A_WORDS],
                    *right[b : b + B_WORDS],
                    left_scales[s],
                    right_scales[t],
                ]
                acc.update(SUMS * (row * columns + column), SUMS, code, "r" * len(inputs), inputs)
    kernel.bind(op, acc.values())


def _elements(kernel: Kernel, value: Value, format: str) -> Registers:
    """An operand as words of 32 bits."""
    found = words(kernel.b, kernel.env[value], value.type)
    if has_padding_bits(format):
        return [kernel.b.and_(word, ELEMENT_BITS) for word in found]
    return found


def _scales(kernel: Kernel, value: Value) -> list[V]:
    """Scales as words; fewer than four are the low bytes of one."""
    b = kernel.b
    found = words(b, kernel.env[value], value.type)
    if found[0].type.bits < I32.bits:
        return [b.zext(found[0], I32)]
    return found
