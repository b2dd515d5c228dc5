"""Runs kernels compiled for AArch64 under QEMU's user-mode emulation, without a C library.

A kernel becomes a static executable with two segments:

    code     the linked kernel and `_start`
    data     argument slots | grid | arrays, each between guard bytes | workspace (zeros)

Addresses are known when it is linked, so the slots hold the arrays' addresses from the start.
`_start` runs all programs on one thread and writes slots, grid and arrays to standard output. All
bytes outside of the arrays must be unchanged.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tests.targets.cpu import harness
from tilewright.ir.core import Module
from tilewright.runtime.devices.elf import link
from tilewright.targets.cpu import emit
from tilewright.targets.cpu.codegen import generate
from tilewright.targets.cpu.machine import Machine

QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
needs_qemu = pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 (QEMU user mode) is missing")

BASE = frozenset({"neon", "fp-armv8"})
SECONDS = 60  # limit of one run
CODE, DATA = 0x400000, 0x10000000  # addresses of the segments
GUARD = bytes([0xA5]) * 64
ALIGNMENT = 64

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_PAGE = 0x10000  # the largest page of Linux on AArch64
_READ, _WRITE, _EXECUTE = 4, 2, 1

# void _start(): calls the kernel, then writes the data from `first` to `end`. In machine code, as
# llvmlite has an assembler for the host only. The literals follow the code.
_START = (
    0x58000280,  # ldr x0, slots
    0x580002A1,  # ldr x1, workspace
    0xD2800002,  # mov x2, #0
    0x580002A3,  # ldr x3, programs
    0x580002C4,  # ldr x4, grid
    0x580002F0,  # ldr x16, kernel
    0xD63F0200,  # blr x16
    0x580002F3,  # ldr x19, first
    0x58000314,  # ldr x20, end
    0xD2800020,  # write: mov x0, #1
    0xAA1303E1,  # mov x1, x19
    0xCB130282,  # sub x2, x20, x19
    0xD2800808,  # mov x8, #64
    0xD4000001,  # svc #0
    0x8B000273,  # add x19, x19, x0
    0xEB14027F,  # cmp x19, x20
    0x54FFFF23,  # b.lo write
    0xD2800000,  # mov x0, #0
    0xD2800BA8,  # mov x8, #93
    0xD4000001,  # svc #0
)

# Their loops must not become calls of themselves.
_RUNTIME = """
define ptr @memset(ptr %p, i32 %value, i64 %n) "no-builtins" {
  %byte = trunc i32 %value to i8
  br label %head
head:
  %i = phi i64 [ 0, %0 ], [ %next, %body ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %q = getelementptr i8, ptr %p, i64 %i
  store i8 %byte, ptr %q
  %next = add i64 %i, 1
  br label %head
end:
  ret ptr %p
}

define ptr @memcpy(ptr %p, ptr %from, i64 %n) "no-builtins" {
  br label %head
head:
  %i = phi i64 [ 0, %0 ], [ %next, %body ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %r = getelementptr i8, ptr %from, i64 %i
  %byte = load i8, ptr %r
  %q = getelementptr i8, ptr %p, i64 %i
  store i8 %byte, ptr %q
  %next = add i64 %i, 1
  br label %head
end:
  ret ptr %p
}
"""


def aarch64(*features: str, sve_bytes: int = 0) -> Machine:
    """An AArch64 processor with these LLVM features in addition to those of Armv8.0."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    has = BASE | frozenset(features) | ({"sve"} if sve_bytes else frozenset())
    return Machine("aarch64-unknown-linux-gnu", "generic", has, sve_bytes=sve_bytes)


def run_emulated(
    module: Module,
    grid: tuple[int, int, int],
    args: Sequence[Any],
    *,
    machine: Machine,
    fp_fusion: bool = False,
) -> None:
    """Compile a kernel for a machine, and run it under QEMU on arrays, in place."""
    text, scratch = generate(module, machine, fp_fusion=fp_fusion)
    optimised, _ = emit.compile_text(text, machine)
    data = _Data(args, grid)
    program = _executable(optimised, module.entry.name, prod(grid), scratch, data, machine)
    data.read_back(_output(program, machine.sve_bytes))


both = partial(harness.both, run=run_emulated)
assert_same = partial(harness.assert_same, run=run_emulated)


def _output(program: bytes, sve_bytes: int) -> bytes:
    assert QEMU is not None
    cpu = f"max,sve-max-vq={sve_bytes // 16},sve-default-vector-length={sve_bytes}"
    with tempfile.TemporaryDirectory() as folder:
        path, result = Path(folder, "kernel"), Path(folder, "data")
        path.write_bytes(program)
        path.chmod(0o700)
        with result.open("wb") as file:
            subprocess.run(
                [QEMU, "-cpu", cpu if sve_bytes else "max", path],
                stdout=file,
                check=True,
                timeout=SECONDS,
            )
        return result.read_bytes()


class _Data:
    """The initial content of the data segment, but for the workspace.

    Arrays that overlap here, as views of one array, overlap there.
    """

    def __init__(self, args: Sequence[Any], grid: tuple[int, int, int]) -> None:
        self.slots = DATA
        self.grid = DATA + 8 * max(1, len(args))
        self._content = bytearray(8 * max(1, len(args)))
        self._content += struct.pack("<3i", *grid)
        arrays = [arg for arg in args if _is_array(arg)]
        # Ranges of this process's memory, and their offsets in the segment.
        self._ranges = [(first, end, self._place(first, end)) for first, end in _ranges(arrays)]
        for i, arg in enumerate(args):
            raw = np.asarray(arg).tobytes()
            if _is_array(arg):
                raw = self._address(arg.ctypes.data).to_bytes(8, "little")
            self._content[8 * i : 8 * i + len(raw)] = raw

    def _place(self, first: int, end: int) -> int:
        """Append memory, as misaligned as it is in this process; returns its offset."""
        self._content += GUARD
        self._content += bytes((first - len(self._content)) % ALIGNMENT)
        offset = len(self._content)
        self._content += ctypes.string_at(first, end - first) + GUARD
        return offset

    def _address(self, here: int) -> int:
        """The emulated address of an array of this process."""
        return next(DATA + at + here - first for first, end, at in self._ranges if here < end)

    @property
    def content(self) -> bytes:
        return bytes(self._content)

    def read_back(self, output: bytes) -> None:
        """Update the arrays from the program's output."""
        assert len(output) == len(self._content)
        for first, end, at in self._ranges:
            part = output[at : at + end - first]
            ctypes.memmove(first, part, end - first)
            self._content[at : at + end - first] = part
        assert output == self._content, "the kernel wrote outside of its arrays"


def _is_array(arg: Any) -> bool:
    return isinstance(arg, np.ndarray) and arg.ndim > 0


def _ranges(arrays: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """The ranges of memory that arrays occupy, ascending; overlapping ones are merged."""
    found: list[tuple[int, int]] = []
    for array in sorted(arrays, key=lambda a: a.ctypes.data):
        assert array.flags.c_contiguous
        first = array.ctypes.data
        end = first + array.nbytes
        if found and first < found[-1][1]:
            first, end = found[-1][0], max(end, found.pop()[1])
        found.append((first, end))
    return found


def _executable(
    text: str, name: str, programs: int, scratch: int, data: _Data, machine: Machine
) -> bytes:
    """A static ELF executable for Linux."""
    content = data.content
    workspace = DATA + _up(len(content), ALIGNMENT)
    image = link(emit.object_of([text, _RUNTIME], name, machine), [name], lambda _: None, "aarch64")
    first = CODE + _PAGE  # the headers are not loaded
    words = [data.slots, workspace, programs, data.grid, first + image.entries[name]]
    words += [DATA, DATA + len(content)]
    start = struct.pack(f"<{len(_START)}I{len(words)}Q", *_START, *words)
    entry = _up(image.size, ALIGNMENT)
    code = image.placed(first).ljust(entry, b"\0") + start
    offset = _PAGE + _up(len(code), _PAGE)  # of the data
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    counts = _HEADER.size, _SEGMENT.size, 2, 0, 0, 0
    headers = _HEADER.pack(identity, 2, 183, 1, first + entry, _HEADER.size, 0, 0, *counts)
    headers += _SEGMENT.pack(1, _READ | _EXECUTE, _PAGE, first, first, len(code), len(code), _PAGE)
    size = workspace - DATA + scratch
    headers += _SEGMENT.pack(1, _READ | _WRITE, offset, DATA, DATA, len(content), size, _PAGE)
    return (headers.ljust(_PAGE, b"\0") + code).ljust(offset, b"\0") + content


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
