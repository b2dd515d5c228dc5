"""Counts the waits for loads from global memory in machine code.

    load_waits(cubin, "add_kernel")     # 2: the loads of an index, then those at it

Each instruction encodes which of six scoreboards it sets until it has completed, and for which it
waits. Loads that are issued before the first wait are in flight together, and expose the memory
latency once. With few registers, ptxas places each load before the first use of its result, and a
thread waits for them one by one.

Instructions are counted once each, in program order. The encoding is not documented, but has been
the same since compute capability 7.0; it is used for performance decisions only.
"""

from __future__ import annotations

import struct

from tilewright.targets.nvidia.cubin import machine_code

_HALVES = struct.Struct("<QQ")  # of an instruction
_OPERATION = 0x1FF
_LOAD = 0x181  # LDG

# Places in the upper half: of the counter that an instruction raises, and of the set of those that
# it waits for, with a bit for each.
_RAISED, _AWAITED, _COUNTERS = 110 - 64, 116 - 64, 0b111111


def load_waits(cubin: bytes, kernel: str) -> int:
    """The number of times that a thread waits for loads that have been issued since the last time.

    Raises:
        ValueError: the data is not an ELF file.
    """
    waits = in_flight = 0
    for lower, upper in _HALVES.iter_unpack(machine_code(cubin, kernel)):
        if (upper >> _AWAITED) & in_flight & _COUNTERS:
            waits += 1
            in_flight = 0
        if lower & _OPERATION == _LOAD:
            in_flight |= 1 << ((upper >> _RAISED) & 7)
    return waits
