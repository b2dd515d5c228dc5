"""The GPU that a kernel is compiled for, as far as passes and the common lowering must know it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """A GPU, and how many of its threads run a program of the kernel at hand.

        GpuMachine("cuda", "NVIDIA GPUs", lanes=32, warps=4, registers=65536,
                   thread_registers=255, shared_bytes=227 * 1024)

    What it has beyond that, such as asynchronous copies, are features of the target by name
    (`PassContext.features`).

    Attributes:
        target: the name under which the target's own lowerings are registered.
        title: what errors call such GPUs, in the plural.
        lanes: threads of a warp, which run in step; a power of two.
        warps: warps that run a program; a power of two.
        registers: 32-bit registers of a multiprocessor, which the threads on it share.
        thread_registers: the most of them that one thread can have.
        shared_bytes: the most shared memory that a program can have.
    """

    target: str
    title: str
    lanes: int
    warps: int
    registers: int
    thread_registers: int
    shared_bytes: int

    @property
    def threads(self) -> int:
        """Threads of a program."""
        return self.lanes * self.warps
