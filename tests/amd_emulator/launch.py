"""Launches compiled kernels on the emulator, with NumPy arrays as arguments."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from tests.amd_emulator.elf import read_kernels
from tests.amd_emulator.listing import text_faults
from tests.amd_emulator.machine import Grid, Machine
from tests.amd_emulator.state import Array
from tilewright.base import knobs
from tilewright.base.diagnostics import CompilationError
from tilewright.compiler.driver import compile_source
from tilewright.conformance.case import Case, NotInLanguage, Program, Shifted, is_array
from tilewright.conformance.claims import exact_options
from tilewright.conformance.compare import difference
from tilewright.targets.amd.features import processor
from tilewright.targets.protocol import GPUTarget
from tilewright.targets.registry import target as find_target


def target_of(arch: str) -> GPUTarget:
    """The target of a processor."""
    return GPUTarget("hip", arch, processor(arch).lanes)


def launch(kernel: Any, arch: str, grid: Sequence[int], args: Sequence[Any]) -> list[Array]:
    """The arrays after a launch of a compiled kernel.

    Args:
        args: of the run-time parameters: arrays, `Shifted` arrays, numbers.
    """
    hsaco = kernel.asm["hsaco"]
    (found,) = read_kernels(hsaco).values()
    entries = [e for e in found.metadata[".args"] if not e[".value_kind"].startswith("hidden_")]
    machine = Machine(arch)
    segment = bytearray(found.metadata[".kernarg_segment_size"])
    places: list[tuple[int, int, Array]] = []
    for entry, value in zip(entries, args, strict=True):
        offset, size = entry[".offset"], entry[".size"]
        if is_array(value):
            array = value.array if isinstance(value, Shifted) else value
            shift = value.shift * array.itemsize if isinstance(value, Shifted) else 0
            room = np.concatenate([np.zeros(shift, np.uint8), _bytes(array)])
            start = machine.memory.place(room)
            places.append((start, shift, array))
            raw = struct.pack("<Q", start + shift)
        else:
            raw = _scalar(value, size)
        segment[offset : offset + size] = raw
    threads = kernel.metadata["num_warps"] * machine.lanes
    machine.launch(hsaco, _full(grid), bytes(segment), threads)
    return [
        machine.memory.content(start)[shift:].view(a.dtype).reshape(a.shape).copy()
        for start, shift, a in places
    ]


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


def case_fault(case: Case, arch: str) -> str | None:
    """How a program of the conformance suite fails on a processor.

    The code is decoded to the text that LLVM prints, and leaves what the interpreter does.

    Returns:
        "" if it passes, None if the language or the target does not have it.
    """
    try:
        program = cast("Callable[[], Program]", case.body)()
    except NotInLanguage:
        return None
    target = target_of(arch)
    options = exact_options(find_target(target))
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        try:
            kernel = compile_source(program.source(), target, options)
        except CompilationError:
            return None
    assembly, hsaco = str(kernel.asm["amdgcn"]), cast("bytes", kernel.asm["hsaco"])
    faults = text_faults(assembly, hsaco, arch, processor(arch).lanes)
    if faults:
        return f"{len(faults)} instructions are decoded as others: {faults[0]}"
    found = launch(kernel, arch, program.grid, program.args)
    module = program.source().module(find_target(target).frontend_options(options))
    expected = program.interpreted(module)
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        text = difference(a, b, program.ulp)
        if text:
            return f"array {number}: {text}"
    return ""
