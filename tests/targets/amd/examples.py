"""Compiles the kernels of the examples for AMD processors, and prints what is known of each.

    python -m tests.targets.amd.examples gfx942 gfx1100:top_k,vector_add

prints a line for each processor, about all examples or those that are named. A process of its
own: LLVM ends the process if it cannot select an instruction.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.compiler.driver import compile
from tilewright.targets.amd.features import processor
from tilewright.targets.amd.kernel_note import kernels
from tilewright.targets.protocol import GPUTarget
from tilewright.tools.load import import_script, kernels_of, source_of

ROOT = Path(__file__).parents[3]
STEMS = (
    "attention", "convolution", "custom_attention", "dropout", "equalize", "fused_softmax",
    "giou_loss", "layer_norm", "learned_norm", "matmul", "quantized_matmul", "segmented_scan",
    "top_k", "vector_add",
)  # fmt: skip

THREADS = 256  # of a program
FACTS = ("name", "shared", "num_warps", "warp_size", "n_regs", "n_spills", "kernarg_bytes")


def facts_of(hsaco: bytes) -> dict[str, Any]:
    """What the code object itself states."""
    (kernel,) = kernels(hsaco)
    return {"size": len(hsaco), "lds": kernel[".group_segment_fixed_size"]}


def compiled(chip: str, stems: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What is known of each kernel of these examples."""
    lanes = processor(chip).lanes
    target, options = GPUTarget("hip", chip, lanes), {"num_warps": THREADS // lanes}
    found: dict[str, dict[str, Any]] = {}
    for stem in stems:
        module = import_script(ROOT / "examples" / f"{stem}.py")
        kernels = kernels_of(module)
        for name, (signature, constants) in module.__tilewright_signatures__.items():
            if stem == "matmul":  # the example's tiles are made for a CPU
                constants = {**constants, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}
            kernel = compile(source_of(kernels[name], signature, constants), target, options)
            facts = {key: kernel.metadata[key] for key in FACTS}
            found[f"{stem}.{name}"] = facts | facts_of(kernel.asm["hsaco"])
    return found


def in_a_process(chips: Mapping[str, Sequence[str]]) -> dict[str, dict[str, dict[str, Any]]]:
    """The results of `compiled` by processor, of a process of its own."""
    words = [f"{chip}:{','.join(stems)}" for chip, stems in chips.items()]
    command = [sys.executable, "-m", "tests.targets.amd.examples", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    found = dict(zip(chips, map(json.loads, done.stdout.splitlines()), strict=False))
    missing = next((chip for chip in chips if chip not in found), None)
    assert not missing, f"compiling for {missing} ended the process:\n{done.stderr[-3000:]}"
    return found


if __name__ == "__main__":
    for word in sys.argv[1:]:
        chip, _, named = word.partition(":")
        print(json.dumps(compiled(chip, named.split(",") if named else STEMS)), flush=True)
