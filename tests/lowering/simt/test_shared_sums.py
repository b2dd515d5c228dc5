"""Addresses of a thread's registers that differ by constants share the rest of their sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.ir_values import same_bits
from tests.lowering.simt.harness import run_emulated
from tests.targets.nvidia.lowered import ptx_of
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret

POINTERS = {"x": "*i32", "y": "*i32", "m": "i32", "n": "i32"}


def aligned(text: str) -> Module:
    module = build(kernel_from(text), POINTERS)
    for i in (0, 1, 3):
        module.entry.arg_attrs[i]["divisibility"] = 16
    return module


def test_vectors_of_a_thread_share_their_address() -> None:
    """A thread of 128 moves two vectors, of which the second is 2048 bytes behind the first."""
    text = ptx_of(
        aligned("""
            def kernel(x, y, m, n):
                i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
                tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)
        """),
        num_warps=4,
    )
    assert text.count("ld.global.v4") == text.count("st.global.v4") == 2
    assert text.count("mul.wide.s32") == 1
    assert "shl.b64" not in text


PLACES = {
    "from somewhere": "m + tl.arange(0, 64)",
    "of two ranges": "(m + tl.arange(0, 8)[:, None]) + (tl.arange(0, 8)[None, :] * 8 + n)",
    "plus a constant": "tl.arange(5, 69) + 7 + m",
    "twice": "(m + tl.arange(0, 64)) + (tl.arange(0, 64) + m)",
}


@pytest.mark.parametrize("name", PLACES)
def test_sums_wrap_around(name: str) -> None:
    """Masks of sums beyond the largest integer are those of the interpreter."""
    shape = "tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :]"
    out = shape if name == "of two ranges" else "tl.arange(0, 64)"
    module = aligned(f"""
        def kernel(x, y, m, n):
            place = {PLACES[name]}
            tl.store(y + {out}, 1, mask=place < n)
    """)
    for m, n in ((0, 32), (-20, 16), (2**31 - 40, 0), (2**31 - 8, 2**31 - 16), (2**30, 16)):
        expected, found = arguments(m, n), arguments(m, n)
        interpret(module, (1, 1, 1), expected)
        for warps, lanes in ((1, 1), (1, 4), (2, 32)):
            found[1][:] = 0
            run_emulated(module, (1, 1, 1), found, warps=warps, lanes=lanes)
            assert same_bits(found[1], expected[1]), f"m {m}, n {n}, {warps} x {lanes}"


def arguments(m: int, n: int) -> list[Any]:
    return [np.zeros(1, np.int32), np.zeros(64, np.int32), m, n]
