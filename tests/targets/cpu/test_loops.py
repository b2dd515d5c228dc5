"""Loops over the lanes of tiles, as machine code."""

import re
from collections.abc import Iterator

import pytest

from tests.frontend.kernels import build, kernel_from
from tests.targets.cpu.harness import host
from tests.targets.cpu.test_processor import on_x86
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.passes import PassContext, run
from tilewright.targets.cpu import emit
from tilewright.targets.cpu.codegen import generate
from tilewright.targets.cpu.loops import LOOP_ALIGNMENT


@on_x86
@pytest.mark.parametrize("mask", ["i < 4096", "i < n"])
def test_heads_of_loops_are_aligned(mask: str) -> None:
    """So that their speed does not depend on the code before them."""
    kernel = kernel_from(f"""
        def kernel(x, out, n):
            i = tl.arange(0, 4096)
            tl.store(out + i, tl.load(x + i, mask={mask}) + 1, mask={mask})
    """)
    module = build(kernel, {"x": "*fp32", "out": "*fp32", "n": "i32"})
    run(module, STEPS, PassContext())
    machine = host()
    optimised, _ = emit.compile_text(generate(module, machine)[0], machine)
    lines = emit.assembly(optimised, machine).splitlines()
    aligned = {lines[i + 1].partition(":")[0] for i, x in enumerate(lines) if ".p2align\t6" in x}
    assert LOOP_ALIGNMENT == 1 << 6
    assert aligned & set(_heads(lines))


def _heads(lines: list[str]) -> Iterator[str]:
    """The labels to which something jumps back."""
    for i, line in enumerate(lines):
        jump = re.search(r"\bj\w+\s+(\.\w+)", line)
        if jump and any(before.startswith(f"{jump[1]}:") for before in lines[:i]):
            yield jump[1]
