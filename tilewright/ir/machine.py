"""The description of a GPU that target-independent passes and lowering use."""

from __future__ import annotations

from tilewright.base.record import record

ACCESS_BYTES = 16
"""The most bytes of global memory that one instruction of a thread moves on most GPUs."""


@record
class GpuMachine:
    """A GPU, and the number of its threads that execute one program of the kernel.

        GpuMachine("cuda", "NVIDIA GPUs", lanes=32, warps=4, registers=65536,
                   thread_registers=255, shared_bytes=227 * 1024)

    Further capabilities, such as asynchronous copies, are named features of the target
    (`PassContext.features`).

    Attributes:
        target: the name under which target-specific lowerings are registered.
        title: a plural noun for such GPUs, for error messages.
        lanes: threads per warp; a power of two.
        warps: warps per program; a power of two.
        registers: 32-bit registers of a multiprocessor, shared by its resident threads.
        thread_registers: the maximum number of registers of one thread.
        shared_bytes: the maximum shared memory of one program, in bytes.
        access_bytes: the most bytes of global memory that one instruction of a thread moves.
        prefetch_work: the fewest instructions of an iteration, estimated, for which loads into
            registers start an iteration ahead.
        unrolled_work: the most instructions of an iteration, estimated, with which the assembler
            unrolls loops of unknown length.
        packs: whether a block of threads may run several programs, of which none may wait for all
            threads of the block.
    """

    target: str
    title: str
    lanes: int
    warps: int
    registers: int
    thread_registers: int
    shared_bytes: int
    access_bytes: int = ACCESS_BYTES
    prefetch_work: int = 0
    unrolled_work: int = 0
    packs: bool = False

    @property
    def threads(self) -> int:
        """Threads per program."""
        return self.lanes * self.warps
