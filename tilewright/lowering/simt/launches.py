"""Launches that overlap: what waits for the ones before, and lets the one after begin."""

from __future__ import annotations

from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.ops.gpu import StartDependents, WaitLaunches


@emits(WaitLaunches)
def emit_wait(kernel: Kernel, op: WaitLaunches) -> None:
    kernel.hw.wait_launches(kernel.b)


@emits(StartDependents)
def emit_start(kernel: Kernel, op: StartDependents) -> None:
    kernel.hw.start_dependents(kernel.b)
