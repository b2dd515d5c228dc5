"""Integers beyond fp16's range are infinite after a conversion to fp16, also where their few bits
that may be set would let LLVM convert them to a wider type at once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.lowering.simt import harness as simt
from tests.targets.cpu.harness import assert_same
from tilewright.ir.core import Module

SHIFTED = "(n & 3) * tl.arange(0, 8) + (n & 1)"
RESULTS = {"fp32": np.float32, "u32": np.uint32, "i64": np.int64, "fp64": np.float64}


def _kernel(integer: str, result: str) -> Module:
    kernel = kernel_from(f"""
        def kernel(y, n):
            x = (({SHIFTED}).to(tl.{integer}) << 17) * {-1 if integer[0] == "i" else 1}
            tl.store(y + tl.arange(0, 8), x.to(tl.float16).to(tl.{np.dtype(RESULTS[result])}))
    """)
    return build(kernel, {"y": f"*{result}", "n": "i32"})


@pytest.mark.parametrize("integer", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("n", [0, 1, 2])
def test_infinities(integer: str, result: str, n: int) -> None:
    module = _kernel(integer, result)
    args = [np.zeros(8, RESULTS[result]), np.int32(n)]
    assert_same(module, (1, 1, 1), [x.copy() for x in args])
    simt.assert_same(module, (1, 1, 1), args, warps=1, lanes=4)
