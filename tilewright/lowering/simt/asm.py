"""Inline assembly: each thread executes it on its own elements, `op.pack` at a time."""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.lowering.asm import call
from tilewright.lowering.emit import zero
from tilewright.lowering.simt.kernel import Kernel, emits, register_count
from tilewright.lowering.types import register_type
from tilewright.ops.asm import InlineAsm, InlineAsmEffect


@emits(InlineAsm, InlineAsmEffect)
def emit_asm(kernel: Kernel, op: InlineAsm | InlineAsmEffect) -> None:
    count = register_count(op.results[0])
    found = [[zero(register_type(ir.element_of(r.type)))] * count for r in op.results]
    for start in range(0, count, op.pack):
        packs = [kernel.env[v][start : start + op.pack] for v in op.args]
        # An incomplete pack is padded with its last element, a valid input of the assembly.
        filled = [[*pack, *[pack[-1]] * (op.pack - len(pack))] for pack in packs]
        for registers, elements in zip(found, call(kernel.b, op, filled), strict=True):
            kept = min(op.pack, count - start)
            registers[start : start + kept] = elements[:kept]
    kernel.bind(op, *found)
