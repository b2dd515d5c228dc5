"""The widths of vectors of loops with AVX-512: half where loops only move data."""

from __future__ import annotations

import pytest

from tests.frontend.kernels import build, kernel_from
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.passes import PassContext, run
from tilewright.targets.cpu.codegen import generate
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.pipeline import STEPS as CONTRACTION

AVX512 = Machine("x86_64-unknown-linux-gnu", "x86-64-v4", frozenset({"avx2", "fma", "avx512f"}))


@pytest.mark.parametrize(("steps", "lanes"), [(1, 8), (6, 16)])
def test_lanes_of_a_loop(steps: int, lanes: int) -> None:
    """Products and sums that are contracted are as much work as others."""
    kernel = kernel_from(f"""
        def kernel(x, n, a, b):
            at = x + tl.program_id(0) * n + tl.arange(0, 256)
            y = tl.load(at, mask=tl.arange(0, 256) < n)
            for _ in tl.static_range({steps}):
                y = y * a + b
            tl.store(at, y, mask=tl.arange(0, 256) < n)
    """)
    module = build(kernel, {"x": "*fp32", "n": "i32", "a": "fp32", "b": "fp32"})
    run(module, (*STEPS, *CONTRACTION), PassContext())
    text, _ = generate(module, AVX512, fp_fusion=True)
    stores = [line for line in text.splitlines() if "store <" in line]
    assert max(int(line.split("<")[1].split()[0]) for line in stores) == lanes
