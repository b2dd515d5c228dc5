"""Quotients and remainders of integers that may be negative round toward 0 in addresses, too."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.lowering.simt.harness import assert_same
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.passes import PassContext, run

# Indices of 64 elements, from -64 on; 16 divides n, and the first element of x.
INDICES = {
    "quotient": "(n + tl.arange(0, 64)) // 16",
    "quotient of a difference": "(pid * 16 - 64 + tl.arange(0, 64)) // 16",
    "quotient of a loaded start": "(tl.multiple_of(tl.load(x + 64), 16) + tl.arange(0, 64)) // 16",
    "quotient by an argument": "(n + tl.arange(0, 64)) // m",
    "remainder": "(n + tl.arange(0, 64)) % 16",
    "remainder of a product": "(n * 4 + tl.arange(0, 64)) % m",
    "remainder of a maximum": "(tl.maximum(n, -48) + tl.arange(0, 64)) % 16",
}


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("start", [-64, -32, -16, 0, 32])
def test_accesses_at_quotients(index: str, start: int) -> None:
    kernel = kernel_from(f"""
        def kernel(x, y, n, m):
            n = tl.multiple_of(n, 16)
            m = tl.multiple_of(m, 16)
            pid = tl.program_id(0)
            index = {INDICES[index]}
            tl.store(y + pid * 64 + tl.arange(0, 64), tl.load(x + 64 + index))
    """)
    module = build(kernel, {"x": "*i32", "y": "*i32", "n": "i32", "m": "i32"})
    run(module, STEPS, PassContext())
    for pointer in module.entry.arg_attrs[:2]:
        pointer["divisibility"] = 16
    x = np.arange(192, dtype=np.int32)
    x[64] = start
    args = [x, np.zeros(128, np.int32), np.int32(start), np.int32(16)]
    assert_same(module, (2, 1, 1), args, warps=1, lanes=4)
