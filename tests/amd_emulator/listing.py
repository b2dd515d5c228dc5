"""Compares decoded code with the assembly that LLVM prints for the same kernel."""

from __future__ import annotations

import re

from tests.amd_emulator.decode import Decoder, Instruction
from tests.amd_emulator.elf import read_kernels
from tests.amd_emulator.text import Printer

# Instructions without effect on results, whose operands LLVM prints in words.
_HINTS = ("s_delay_alu", "s_waitcnt_depctr", "s_wait_alu", "s_sendmsg")

# What LLVM prints, and the decoder for the same bits.
_EQUAL = {
    r" offset:0x0$": "",  # behind a register, in the encoding of RDNA
    r"\bflat_scratch_lo\b": "s102",
    r"\bflat_scratch_hi\b": "s103",
    r"^s_waitcnt vmcnt\(63\) expcnt\(7\) lgkmcnt\(15\)$": "s_waitcnt",
}


def text_faults(assembly: str, hsaco: bytes, processor: str, lanes: int) -> list[str]:
    """Instructions whose decoded text is not LLVM's: both texts of each."""
    (kernel,) = read_kernels(hsaco).values()
    decoder = Decoder(processor)
    printer = Printer(decoder, lanes)
    body = assembly[assembly.index(f"\n{kernel.name}:") : assembly.index(".amdhsa_kernel")]
    at, labels, rows = kernel.entry, dict[str, int](), list[tuple[Instruction, str]]()
    for line in body.splitlines():
        line = line.partition(";")[0].rstrip()
        if label := re.match(r"(\.?\w+):", line):
            labels[label[1]] = at
        elif align := re.match(r"\s+\.p2align\s+(\d+)", line):
            at = -((-at >> int(align[1])) << int(align[1]))
        elif re.match(r"\t[a-z]+_", line):
            made = decoder.decode(kernel.code, at)
            rows.append((made, " ".join(line.split())))
            at = made.end
    found: list[str] = []
    for made, line in rows:
        expected = re.sub(r"\.L\w+", lambda m: hex(labels.get(m[0], -1)), line)
        text = printer.text(made).strip()
        for shown, decoded in _EQUAL.items():
            expected = re.sub(shown, decoded, expected)
        if made.name in _HINTS:
            text, expected = made.name, expected.partition(" ")[0]
        elif "@rel32" in expected:  # LLVM prints the relocation
            text, expected = text.rpartition(",")[0], expected.rpartition(",")[0]
        if text != expected:
            found.append(f"{text!r}, not {expected!r}")
    return found
