"""cubin → SASS, the machine code as text, for inspection and tests.

    text = sass(cubin)
    count_instructions(text)["LDG.E.128"]

Requires the program `nvdisasm`, from the wheel `nvidia-cuda-nvdisasm`, which `cuobjdump` calls,
too.
"""

from __future__ import annotations

import re
from collections import Counter

from tilewright.base import knobs
from tilewright.targets.nvidia.toolkit import INPUT, find_program, run_program

# One instruction: its address, perhaps a predicate, its name, its operands.
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)


def find_disassembler() -> str | None:
    """The path of nvdisasm; None if it is not found."""
    return find_program("nvdisasm", knobs.nvidia.nvdisasm_path)


def sass(cubin: bytes) -> str:
    """The machine code of every kernel in a cubin, with source lines where available.

    Raises:
        FileNotFoundError: nvdisasm is not found.
        RuntimeError: nvdisasm fails, for example on an architecture newer than itself.
    """
    program = find_disassembler()
    if program is None:
        raise FileNotFoundError(
            "SASS needs nvdisasm, which is not found; `pip install nvidia-cuda-nvdisasm` brings "
            "it, TILEWRIGHT_NVDISASM_PATH names another"
        )
    ended = run_program([program, "-c", "-g", INPUT], cubin)
    if ended.status != 0:
        raise RuntimeError(f"{program} failed: {(ended.stderr or ended.stdout).strip()}")
    return ended.stdout


def count_instructions(text: str) -> Counter[str]:
    """The number of occurrences of each instruction in SASS, by full name and by opcode.

    ``LDG.E.128`` counts as ``LDG.E.128`` and as ``LDG``.
    """
    counts: Counter[str] = Counter()
    for name in _INSTRUCTION.findall(text):
        counts[name] += 1
        if "." in name:
            counts[name.partition(".")[0]] += 1
    return counts
