"""Warps with roles: a branch for each role, taken by whole warps."""

from __future__ import annotations

from tilewright.ir.core import Function
from tilewright.lowering.emit import I32, const
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.lowering.simt.notes import Note
from tilewright.ops.roles import Roles

COMPUTE_BARRIER, COPY_BARRIER = 1, 2


def further_warps(fn: Function) -> int:
    """The warps of a program in addition to those over which its tiles are laid out."""
    return sum(op.copy_warps for op in fn.walk() if isinstance(op, Roles))


@emits(Roles)
def emit_roles(kernel: Kernel, op: Roles) -> None:
    b, hw = kernel.b, kernel.hw
    warps = kernel.warps
    compute = kernel.part(0, warps, COMPUTE_BARRIER)
    copy = kernel.part(warps, op.copy_warps, COPY_BARRIER)
    # From lane 0, so that the assembler can infer that warps do not diverge here.
    warp = hw.shuffle(b, b.lshr(hw.thread(b), hw.lanes.bit_length() - 1), const(I32, 0))
    computes, copies, after = b.block("compute"), b.block("copy"), b.block("joined")
    b.cond_br(b.icmp("ult", warp, warps), computes, copies)
    b.at(computes)
    if op.registers:
        kernel.notes.add(Note.HANDS_REGISTERS)
        hw.take_registers(b, op.registers[0])
    with kernel.as_team(compute):
        kernel.region(op.compute)
    b.br(after)
    b.at(copies)
    if op.registers:
        hw.release_registers(b, op.registers[1])
    with kernel.as_team(copy):
        first = None if op.copy_warps == 1 else b.icmp("eq", warp, warps)
        with kernel.only_if(first), kernel.only_if(hw.elect(b)):
            kernel.region(op.copy)
    b.br(after)
    b.at(after)
