"""Loads and barriers in PTX."""

from __future__ import annotations

from tests.frontend.kernels import build, kernel_from
from tests.targets.nvidia.lowered import ptx_of

SCALED_ROWS = """
def kernel(x, scales, shifts):
    column = tl.arange(0, 64)
    scale = tl.load(scales + column).to(tl.float32)[None, :]
    shift = tl.load(shifts + column).to(tl.float32)[None, :]
    at = x + tl.arange(0, 32)[:, None] * 64 + column[None, :]
    tl.store(at, (tl.load(at) * scale + shift).to(tl.float16))
"""


def test_no_load_waits_for_a_barrier_of_another_one() -> None:
    """Each thread loads one scale and one shift, and needs those of 8 columns."""
    types = {"x": "*fp16", "scales": "*fp16", "shifts": "*fp16"}
    module = build(kernel_from(SCALED_ROWS), types)
    module.entry.arg_attrs = [{"divisibility": 16}] * 3
    ptx = ptx_of(module, num_warps=4)
    assert ptx.count("bar.sync") == 2
    assert "ld.global" not in ptx[ptx.index("bar.sync") :]
