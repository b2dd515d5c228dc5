"""cubin → SASS, the machine code as text. Only readers and tests need it.

    text = sass(cubin)
    count_instructions(text)["LDG.E.128"]

It takes the program `nvdisasm`, whose wheel is `nvidia-cuda-nvdisasm`. `cuobjdump` is of no help
where that is missing, as it calls it.
"""

from __future__ import annotations

import re
from collections import Counter

from tilewright.base import knobs
from tilewright.targets.nvidia.toolkit import INPUT, find_program, run_program

# One instruction: its address, perhaps a predicate, its name, its operands.
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)


def find_disassembler() -> str | None:
    """The path of nvdisasm, or None where there is none."""
    return find_program("nvdisasm", knobs.nvidia.nvdisasm_path)


def sass(cubin: bytes) -> str:
    """The machine code of every kernel in a cubin, with the lines that it comes from where known.

    Raises:
        FileNotFoundError: there is no disassembler.
        RuntimeError: it does not know this cubin.
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
    """How often each instruction stands in SASS, by its full name and by its first part.

    ``LDG.E.128`` counts as ``LDG.E.128`` and as ``LDG``.
    """
    counts: Counter[str] = Counter()
    for name in _INSTRUCTION.findall(text):
        counts[name] += 1
        if "." in name:
            counts[name.partition(".")[0]] += 1
    return counts
