"""Integers beyond fp16's range are infinite after a conversion to fp16, also where their few bits
that may be set would let LLVM convert them to a wider type at once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.lowering.simt import harness as simt
from tests.targets.cpu.harness import PLAIN_AVX2, assert_same, host
from tilewright.analysis.from_integers import from_integers
from tilewright.ir.core import Module
from tilewright.ops.arith import Cast

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


# Values with few bits that may be set, as fp16, whose conversions LLVM may combine.
BEYOND = (
    "t",
    "u",
    "(k << 17).to(tl.float32).to(tl.float16)",
    "(k << 17).to(tl.float64).to(tl.float16)",
    '(k << 17).to(tl.float32).to(tl.float16, fp_downcast_rounding="rtz")',
    "(k.to(tl.int64) << 41).to(tl.float32).to(tl.float64).to(tl.float16)",
    "((k << 15).to(tl.float32) + (k << 14).to(tl.float32)).to(tl.float16)",
    "((k << 9).to(tl.float32) * (k << 8).to(tl.float32)).to(tl.float16)",
    "tl.where(k > 1, (k << 17).to(tl.float32), (k << 3).to(tl.float32)).to(tl.float16)",
    "(k << 14).to(tl.uint16).to(tl.float16) + (k << 14).to(tl.uint16).to(tl.float16)",
    "(k << 12).to(tl.int16).to(tl.float16) * (k << 8).to(tl.int16).to(tl.float16)",
    "tl.sum(((k << 14)[:, None] + tl.zeros((8, 4), tl.int32)).to(tl.float32), 1).to(tl.float16)",
)


@pytest.mark.parametrize("wide", ["float32", "float64"])
def test_infinities_of_conversions_in_a_row(wide: str) -> None:
    stores = "\n".join(
        f"            tl.store(y + {8 * i} + r, ({x}).to(tl.{wide}))" for i, x in enumerate(BEYOND)
    )
    kernel = kernel_from(f"""
        def kernel(y, n):
            r = tl.arange(0, 8)
            k = (r + n) & 3
            tl.store(y + r, (k << 17).to(tl.{wide}))
            t = tl.load(y + r).to(tl.float16)
            u = (k << 17).to(tl.{wide})
            for j in range(n):
                u = (k << 17 + j).to(tl.{wide})
            u = u.to(tl.float16)
{stores}
    """)
    module = build(kernel, {"y": f"*fp{wide[5:]}", "n": "i32"})
    args = [np.zeros(8 * len(BEYOND), wide), np.int32(1)]
    for features in (None, PLAIN_AVX2):
        assert_same(module, (1, 1, 1), args, machine=host(features))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("r.to(tl.float32) * 2.0 + 1.0", True),
        ("tl.sum(r.to(tl.float32)[:, None] + tl.zeros((8, 2), tl.float32), 1)", True),
        ("r.to(tl.float32) + tl.load(y + r)", True),
        ("r.to(tl.float32) / tl.load(y + r)", False),
        ("tl.exp(r.to(tl.float32))", False),
        ("tl.load(y + r).to(tl.bfloat16).to(tl.float32)", False),
    ],
)
def test_floats_from_integers(text: str, expected: bool) -> None:
    kernel = kernel_from(f"""
        def kernel(y):
            r = tl.arange(0, 8)
            tl.store(y + r, ({text}).to(tl.float16))
    """)
    casts = [op for op in build(kernel, {"y": "*fp32"}).entry.walk() if isinstance(op, Cast)]
    (last,) = (op for op in casts if op.to.short == "fp16")
    assert from_integers(last.src) == expected
