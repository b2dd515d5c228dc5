"""Selections of -0.0 and -1.0 that ptxas would make converted integers are of bits."""

from __future__ import annotations

import re

import pytest

from tests.frontend.kernels import build, kernel_from
from tests.targets.nvidia.lowered import ptx_of
from tilewright.targets.nvidia.zero_repairs import with_selected_bits


@pytest.mark.parametrize(
    ("x", "y", "selected"),
    [
        ("0f80000000", "0fBF800000", "selp.b32 \t%r1, 0x80000000, 0xBF800000, %p2;"),
        ("%r7", "0fBF800000", "selp.b32 \t%r1, %r7, 0xBF800000, %p2;"),
        ("0f80000000", "%r7", "selp.b32 \t%r1, 0x80000000, %r7, %p2;"),
        ("0f00000000", "0f3F800000", "selp.f32 \t%r1, 0f00000000, 0f3F800000, %p2;"),
        ("%r7", "%r8", "selp.f32 \t%r1, %r7, %r8, %p2;"),
    ],
)
def test_selections_are_of_bits(x: str, y: str, selected: str) -> None:
    assert with_selected_bits(f"\tselp.f32 \t%r1, {x}, {y}, %p2;") == f"\t{selected}"


def test_negated_truth_value_keeps_its_sign() -> None:
    text = (
        "def k(x, y, o, n):\n"
        "    i = tl.arange(0, 32)\n"
        "    negated = tl.load(x + i).to(tl.int32).to(tl.float32) * -1.0\n"
        "    number = tl.load(y + i)\n"
        "    if n > 3:\n"
        "        chosen = number\n"
        "    else:\n"
        "        chosen = negated\n"
        "    tl.store(o + i, chosen)\n"
    )
    module = build(kernel_from(text), {"x": "*i1", "y": "*fp32", "o": "*fp32", "n": "i32"})
    ptx = ptx_of(module)
    assert re.search(r"selp\.b32 \t%r\d+, (0x80000000, 0xBF800000|0xBF800000, 0x80000000),", ptx)
