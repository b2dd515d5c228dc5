"""Overlapping launches (programmatic dependent launch): waiting for preceding launches, and
triggering the next."""

from __future__ import annotations

from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.lowering.simt.notes import Note
from tilewright.ops.gpu import StartDependents, WaitLaunches


@emits(WaitLaunches)
def emit_wait(kernel: Kernel, op: WaitLaunches) -> None:
    kernel.hw.wait_launches(kernel.b)
    if op.implied:
        kernel.notes.add(Note.BEGINS_EARLY)


@emits(StartDependents)
def emit_start(kernel: Kernel, op: StartDependents) -> None:
    kernel.hw.start_dependents(kernel.b)
