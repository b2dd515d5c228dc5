"""The machine: its sizes, latencies and rates."""

from __future__ import annotations

CORES = 8
CLUSTER = 4  # cores that share an L2
SCRATCH_BYTES = 192 << 10  # of a core
ALIGNMENT = 64  # of tiles in scratch memory, and of allocations

FRACTAL = 16  # rows of a fractal, the unit of the matrix unit's memories
FRACTAL_BYTES = 32  # of a row of a fractal
CAPACITY = {
    "scratch": SCRATCH_BYTES,
    "l1": 512 << 10,
    "l0a": 64 << 10,
    "l0b": 64 << 10,
    "l0c": 128 << 10,
    "workspace": 64 << 20,
}
"""Bytes of the memories of a core. The workspace is a part of the device's memory, for tiles that
the scratch memory cannot hold; only copies and the scalar pipe access it. Half of a memory of the
matrix unit holds one tile, so that the next one can be packed meanwhile."""

SCALAR, IN, VECTOR, OUT, MOVE, CUBE = PIPES = ("scalar", "in", "vector", "out", "move", "cube")
"""The pipes of a core. Each executes its instructions in order; the scalar pipe issues those of the
others. Between pipes there is no order but that of issue and of events."""

DMA_AXES = 5
DMA_LATENCY = 400  # cycles until a copy from memory, or to it, is complete
DMA_OVERHEAD = 8  # cycles of a copy, in addition to those of its bursts
DMA_BYTES = 64  # of a burst, aligned, which takes a cycle
L2_LATENCY = 120  # cycles until a copy from the L2 is complete
L2_BURSTS = 4  # per cycle
L2_LINE = 512
L2_BYTES = 4 << 20  # of a cluster
VECTOR_BYTES = 256  # of a repeat, which takes a cycle
VECTOR_OVERHEAD = 4
SLOW_CYCLES = 8  # of the scalar pipe for each element
POISON = 0xCD  # the contents of scratch memory before it is written


def repeat_cycles(nbytes: int) -> int:
    """The cycles of the vector pipe, or of `move`, for a tile."""
    return -(-nbytes // VECTOR_BYTES) + VECTOR_OVERHEAD


def copy_cycles(nbytes: int) -> int:
    """The least cycles of a copy between memory and scratch memory."""
    return -(-nbytes // DMA_BYTES) + DMA_OVERHEAD
