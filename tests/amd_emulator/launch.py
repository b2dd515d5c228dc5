"""Launches compiled kernels on the emulator, with NumPy arrays as arguments."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tests.amd_emulator.elf import read_kernels
from tests.amd_emulator.machine import Grid, Machine
from tests.amd_emulator.state import Array
from tilewright.conformance.case import Shifted, is_array
from tilewright.targets.amd.features import processor
from tilewright.targets.protocol import GPUTarget


def target_of(arch: str) -> GPUTarget:
    """The target of a processor."""
    return GPUTarget("hip", arch, processor(arch).lanes)


def launch(
    hsaco: bytes,
    arch: str,
    warps: int,
    grid: Sequence[int],
    args: Sequence[Any],
    starts: Mapping[int, int] = MappingProxyType({}),
) -> list[Array]:
    """The arrays after a launch of the only kernel of a code object.

    Args:
        args: of the run-time parameters: arrays, `Shifted` arrays, numbers. An array may be a part
            of an earlier one.
        starts: for some arguments, the element of the array that the kernel gets the address of.
    """
    (found,) = read_kernels(hsaco).values()
    entries = [e for e in found.metadata[".args"] if not e[".value_kind"].startswith("hidden_")]
    machine = Machine(arch)
    segment = bytearray(found.metadata[".kernarg_segment_size"])
    places: list[tuple[int, int, Array]] = []
    for number, (entry, value) in enumerate(zip(entries, args, strict=True)):
        offset, size = entry[".offset"], entry[".size"]
        if is_array(value):
            array = value.array if isinstance(value, Shifted) else value
            shift = value.shift * array.itemsize if isinstance(value, Shifted) else 0
            start, shift = _shared(array, places) or (
                machine.memory.place(np.concatenate([np.zeros(shift, np.uint8), _bytes(array)])),
                shift,
            )
            places.append((start, shift, array))
            raw = struct.pack("<Q", start + shift + starts.get(number, 0) * array.itemsize)
        else:
            raw = _scalar(value, size)
        segment[offset : offset + size] = raw
    machine.launch(hsaco, _full(grid), bytes(segment), warps * machine.lanes)
    return [
        machine.memory.content(start)[shift : shift + a.nbytes]
        .view(a.dtype)
        .reshape(a.shape)
        .copy()
        for start, shift, a in places
    ]


def _shared(array: Array, places: Sequence[tuple[int, int, Array]]) -> tuple[int, int] | None:
    """The place of an array that is a part of an earlier one, as in `places`."""
    for start, shift, other in places:
        ahead = array.ctypes.data - other.ctypes.data
        if ahead >= 0 and ahead + array.nbytes <= other.nbytes:
            return start, shift + ahead
    return None


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _full(grid: Sequence[int]) -> Grid:
    x, y, z = (*grid, 1, 1)[:3]
    return x, y, z


def _scalar(value: Any, size: int) -> bytes:
    if isinstance(value, float):
        return struct.pack("<f" if size == 4 else "<d", value)
    if isinstance(value, np.generic):
        return value.tobytes()
    return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")
