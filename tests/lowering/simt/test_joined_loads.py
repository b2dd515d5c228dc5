"""Loads of fields of elements, which become one: on the emulated GPU and interpreted."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.kernels import kernel_from
from tests.gpu_machine import gpu_machine
from tests.lowering.simt.harness import assert_same
from tilewright.compiler.pipeline import STEPS
from tilewright.frontend.build import build_module
from tilewright.ir.passes import PassContext, Step, Verifier, run
from tilewright.ir.types import scalar_type
from tilewright.ops.memory import Load
from tilewright.passes.join_loads import join_loads

KERNEL = """
def kernel(x, out, n, FIELDS: tl.constexpr, STRIDE: tl.constexpr):
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    inside = i < n
    total = tl.zeros((16,), tl.float32)
    for f in tl.static_range(FIELDS):
        field = FIELDS - 1 - f
        v = tl.load(x + i * STRIDE + field, mask=inside, other=7)
        total = total * 3 + v.to(tl.float32)
    tl.store(out + i, total, mask=inside)
"""


@pytest.mark.parametrize(
    ("element", "fields", "stride", "loads"),
    [("fp32", 4, 4, 1), ("fp16", 8, 8, 1), ("i64", 2, 2, 1), ("i8", 8, 8, 1), ("i8", 4, 4, 4),
     ("fp32", 6, 8, 2), ("fp32", 3, 4, 2), ("fp32", 2, 3, 2), ("i32", 8, 8, 2)],
)  # fmt: skip
def test_fields(element: str, fields: int, stride: int, loads: int) -> None:
    """Loads that are left, of which each thread has one access per element."""
    wide = element == "i64"  # so are offsets
    module = build_module(
        kernel_from(KERNEL.replace("i * STRIDE", "i.to(tl.int64) * STRIDE") if wide else KERNEL),
        {"x": f"*{element}", "out": "*fp32", "n": "i32"},
        {"FIELDS": fields, "STRIDE": stride},
        {(0,): [["tt.divisibility", 16]]},
    )
    ctx = PassContext(machine=gpu_machine(lanes=4, warps=2))
    joined = module.clone()
    run(joined, [*STEPS, Step(join_loads)], ctx, [Verifier()])
    assert sum(isinstance(op, Load) for op in joined.walk()) == loads
    x = (np.arange(2 * 16 * stride) % 5).astype(scalar_type(element).numpy)
    args = [x, np.full(32, -1, np.float32), 27]
    for warps, lanes in ((1, 4), (2, 32)):
        assert_same(module, (2, 1, 1), args, warps=warps, lanes=lanes)
