"""Launches that overlap: `griddepcontrol` (PTX ISA, "Parallel Synchronization and Communication
Instructions"), which architectures before SM90 do not have. Their launches never overlap, so there
both ops are nothing."""

from __future__ import annotations

from tilewright.lowering.emit import VOID
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.ops.nvidia import StartDependents, WaitLaunches


@emits(WaitLaunches, target="cuda")
def emit_wait(kernel: Kernel, op: WaitLaunches) -> None:
    _control(kernel, "wait")


@emits(StartDependents, target="cuda")
def emit_start(kernel: Kernel, op: StartDependents) -> None:
    _control(kernel, "launch_dependents")


def _control(kernel: Kernel, what: str) -> None:
    # Inline assembly that clobbers memory: LLVM takes its intrinsics for ops that touch none, and
    # would move loads across them.
    if "dependent_launch" in kernel.ctx.features:
        kernel.b.inline_asm(f"griddepcontrol.{what};", "~{memory}", VOID, [], True)
