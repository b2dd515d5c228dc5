"""Diagnostics of the installation: the available assemblers and disassemblers."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base import knobs
from tilewright.base.findings import NOTE, OK, PROBLEM, Finding
from tilewright.targets.nvidia.assemble import NO_ASSEMBLER, NvJitLink, Ptxas, find_assembler
from tilewright.targets.nvidia.disassemble import find_disassembler
from tilewright.targets.nvidia.toolkit import find_library, find_program


def examine() -> Iterator[Finding]:
    """Findings about the assembler in use, the available ones, and the disassembler."""
    try:
        chosen = find_assembler()
    except FileNotFoundError as error:
        yield Finding(PROBLEM, "assembler", str(error), "Unset the setting, or correct it.")
        return
    if chosen is None:
        level = OK if knobs.nvidia.assembler == "driver" else NOTE
        yield Finding(level, "assembler", "the driver, when a kernel is loaded", NO_ASSEMBLER)
    else:
        yield Finding(OK, "assembler", f"{chosen.name} {chosen.version()}")
    if path := find_program("ptxas", knobs.nvidia.ptxas_path):
        yield Finding(OK, "ptxas", f"{Ptxas(path).version()}, {path}")
    if path := find_library("libnvJitLink.so*", knobs.nvidia.nvjitlink_path):
        yield Finding(OK, "nvJitLink", f"{NvJitLink(path).version()}, {path}")
    disassembler = find_disassembler() or "none; only the stage `sass` needs it"
    yield Finding(OK, "nvdisasm", str(disassembler))
