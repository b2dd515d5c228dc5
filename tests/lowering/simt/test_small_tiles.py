"""Small tiles that are used in two layouts: loaded twice, or exchanged between threads."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.ir_values import same_bits
from tests.lowering.simt.harness import run_emulated
from tilewright.ir.interpret import interpret

# Numbers of 16 rows below 64, of which a factor of each row is loaded.
PLACES = {
    "loaded": "at = tl.load(numbers + i)",
    "the result of a loop": """
        at = i
        for k in range(n):
            at = (at * 3 + k) % 64
        """,
    "the result of a loop without a trip count": """
        at = i
        while tl.sum(at) < n * 64:
            at = at + 1
        """,
    "the result of a branch": """
        at = i
        if n > 3:
            at = tl.load(numbers + i)
        """,
    "one of two results": """
        pairs = tl.load(numbers + i[:, None] * 2 + tl.arange(0, 2)[None, :])
        other, at = tl.split(pairs)
        """,
    "the sum of a tile": """
        at = tl.sum(tl.load(numbers + i[:, None] + tl.arange(0, 8)[None, :]), 1) % 64
        """,
    "a scan": "at = tl.cumsum(tl.load(numbers + i), 0) % 64",
}


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("place", PLACES)
def test_a_factor_of_each_row(place: str, warps: int) -> None:
    lines = indent(dedent(PLACES[place]).strip("\n"), " " * 12)
    kernel = kernel_from(f"""
        def kernel(numbers, factors, x, y, z, n):
            i = tl.arange(0, 16)
            j = tl.arange(0, 64)
{lines}
            factor = tl.load(factors + at)
            tile = tl.load(x + i[:, None] * 64 + j[None, :])
            tl.store(y + i[:, None] * 64 + j[None, :], tile * factor[:, None])
            tl.store(z + i, factor)
    """)
    floats = dict.fromkeys(("factors", "x", "y", "z"), "*fp32")
    module = build(kernel, {"numbers": "*i32", **floats, "n": "i32"})
    rng = np.random.default_rng(0)

    def arguments() -> list[Any]:
        return [
            np.arange(32, dtype=np.int32) * 5 % 64,
            np.arange(64, dtype=np.float32) + 1,
            rng.random((16, 64), np.float32),
            np.zeros((16, 64), np.float32),
            np.zeros(16, np.float32),
            4,
        ]

    expected = arguments()
    found = [np.array(a) if isinstance(a, np.ndarray) else a for a in expected]
    interpret(module, (1, 1, 1), expected)
    run_emulated(module, (1, 1, 1), found, warps=warps, lanes=32)
    assert same_bits(found[3], expected[3])
    assert same_bits(found[4], expected[4])


def test_halves_of_a_pair_are_scalars() -> None:
    kernel = kernel_from(
        """
        def kernel(x, out):
            low, high = tl.split(tl.load(x + tl.arange(0, 2)))
            tl.store(out, low - high)
        """
    )
    module = build(kernel, {"x": "*i32", "out": "*i32"})
    args = [np.array([7, 3], np.int32), np.zeros(1, np.int32)]
    run_emulated(module, (1, 1, 1), args)
    assert args[1] == 4
