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
        args: of the run-time parameters: arrays, `Shifted` arrays, numbers. Arrays may overlap.
        starts: for some arguments, the element of the array that the kernel gets the address of.
    """
    (found,) = read_kernels(hsaco).values()
    entries = [e for e in found.metadata[".args"] if not e[".value_kind"].startswith("hidden_")]
    machine = Machine(arch)
    segment = bytearray(found.metadata[".kernarg_segment_size"])
    arrays = [_array(value) for value in args]
    places = placed(machine, args)
    for number, (entry, value) in enumerate(zip(entries, arrays, strict=True)):
        offset, size = entry[".offset"], entry[".size"]
        if is_array(value):
            start, shift = places[number]
            raw = struct.pack("<Q", start + shift + starts.get(number, 0) * value.itemsize)
        else:
            raw = _scalar(value, size)
        segment[offset : offset + size] = raw
    machine.launch(hsaco, _full(grid), bytes(segment), warps * machine.lanes)
    return [
        machine.memory.content(start)[shift : shift + arrays[number].nbytes]
        .view(arrays[number].dtype)
        .reshape(arrays[number].shape)
        .copy()
        for number, (start, shift) in places.items()
    ]


def placed(machine: Machine, args: Sequence[Any]) -> dict[int, tuple[int, int]]:
    """Where the arrays are in the machine's memory: the start of a block, and bytes behind it.
    Those that overlap are in one block."""
    blocks: list[dict[int, Any]] = []
    arrays = {i: value for i, value in enumerate(args) if is_array(value)}
    end = 0
    for number, value in sorted(arrays.items(), key=lambda item: _address(item[1])):
        if not blocks or _address(value) >= end:
            blocks.append({})
        blocks[-1][number] = value
        end = max(end, _address(value) + _array(value).nbytes)
    places: dict[int, tuple[int, int]] = {}
    for block in blocks:
        first = next(iter(block.values()))
        begin = first.shift * first.array.itemsize if isinstance(first, Shifted) else 0
        shifts = {n: begin + _address(value) - _address(first) for n, value in block.items()}
        content = np.zeros(max(shifts[n] + _array(v).nbytes for n, v in block.items()), np.uint8)
        for n, value in block.items():
            content[shifts[n] : shifts[n] + _array(value).nbytes] = _bytes(_array(value))
        start = machine.memory.place(content)
        places |= {n: (start, shift) for n, shift in shifts.items()}
    return dict(sorted(places.items()))


def _array(value: Any) -> Array:
    return value.array if isinstance(value, Shifted) else value


def _address(value: Any) -> int:
    return _array(value).ctypes.data


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
