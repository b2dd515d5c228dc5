"""Descriptions of GPUs of no maker, which passes and the emulated GPU are tested with."""

from __future__ import annotations

from tilewright.base.target_names import declare_target
from tilewright.ir.machine import ACCESS_BYTES, GpuMachine

EMULATOR = declare_target("emulator")


def gpu_machine(
    *,
    lanes: int,
    warps: int,
    target: str = EMULATOR,
    registers: int = 65536,
    shared_bytes: int = 64 * 1024,
    access_bytes: int = ACCESS_BYTES,
    prefetch_work: int = 0,
    unrolled_work: int = 0,
) -> GpuMachine:
    """A GPU with `lanes` lanes in a warp, and `warps` warps for a program."""
    return GpuMachine(
        target,
        "emulated GPUs",
        lanes=lanes,
        warps=warps,
        registers=registers,
        thread_registers=255,
        shared_bytes=shared_bytes,
        access_bytes=access_bytes,
        prefetch_work=prefetch_work,
        unrolled_work=unrolled_work,
    )
