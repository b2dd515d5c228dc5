"""A report of a kernel's resource usage: vector width, spills, workspace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.targets.cpu.machine import Machine
from tilewright.targets.protocol import Resource


def resources_of(machine: Machine, asm: str, metadata: Mapping[str, Any]) -> list[Resource]:
    """The resources of a compiled kernel, from its metadata, and its assembly with comments."""
    return list(_resources(machine, asm, metadata))


def _resources(machine: Machine, asm: str, metadata: Mapping[str, Any]) -> Iterator[Resource]:
    bits = 8 * machine.vector_bytes
    used, note = _widest(machine, asm), f"{machine.vector_registers} registers of {bits} bits"
    yield Resource("vector width", used, bits, "bits", f"{machine.cpu}: {note}")
    spills = sum("Spill" in line for line in asm.splitlines())
    what = "places that write a register to the stack" if spills else ""
    yield Resource("spills", spills, None, "", what)
    workspace = int(metadata.get("scratch_bytes", 0))
    what = "tiles that are kept while a program runs, for each thread" if workspace else ""
    yield Resource("workspace", workspace, None, "bytes", what)


def _widest(machine: Machine, asm: str) -> int:
    """The width in bits of the widest registers that the code uses."""
    for name, bits in (("%zmm", 512), ("%ymm", 256), ("%xmm", 128)):
        if name in asm:
            return bits
    return 8 * machine.vector_bytes if machine.triple.startswith(("aarch64", "arm64")) else 0
