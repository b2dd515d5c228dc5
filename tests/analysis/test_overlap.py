"""Overlap of blocks (equal, disjoint or unknown), against the bytes that they access."""

from __future__ import annotations

import pytest

from tests.analysis.recording import kernel_ir, moments
from tilewright.analysis.blocks import Block, blocks_of
from tilewright.analysis.overlap import Overlap, overlap

SAME, DISJOINT, POSSIBLE = Overlap.SAME, Overlap.DISJOINT, Overlap.POSSIBLE
PAIRS = {
    "the same": ("x + off", "off < n", "x + off", "off < n", SAME),
    "in other words": ("x + off * 2", "off < n", "x + off + off", "n > off", SAME),
    "another mask": ("x + off", "off < n", "x + off", "off < m", POSSIBLE),
    "the next block": ("x + off", "off < n", "x + off + 16", "off < n", DISJOINT),
    "half a block on": ("x + off", "off < n", "x + off + 8", "off < n", POSSIBLE),
    "before": ("x + off", "off < n", "x + off - 16", "off < n", DISJOINT),
    "backwards": ("x - off", "off < n", "x + off + 1", "off < n", POSSIBLE),
    "backwards from 0": ("x - i", "i < n", "x + i + 1", "i < n", DISJOINT),
    "even and odd": ("x + off * 2", "off < n", "x + off * 2 + 1", "off < n", DISJOINT),
    "by an argument": ("x + off", "off < n", "x + off + m", "off < n", POSSIBLE),
    "by a stride": ("x + off * m", "off < n", "x + off * m + 1", "off < n", POSSIBLE),
    "another array": ("x + off", "off < n", "y + off", "off < n", DISJOINT),
    "an array that may be the same": ("x + off", "off < n", "z + off", "off < n", POSSIBLE),
    "one element": ("x + off * 0", "off < n", "x + off * 0 + 1", "off < n", DISJOINT),
    "rows of a number": ("x + off * 4", "off < n", "x + off * 4 + 64", "off < n", DISJOINT),
    "a wrap": ("x + off % 16", "off < n", "x + off % 16", "off < n", SAME),
}


@pytest.mark.parametrize("name", PAIRS)
def test_overlap(name: str) -> None:
    first, mask, second, other_mask, expected = PAIRS[name]
    module = kernel_ir(
        f"""
        def kernel(x, y, z, n, m):
            i = tl.arange(0, 16)
            off = tl.program_id(0) * 16 + i
            tl.load({first}, mask={mask}, volatile=True)
            tl.store({second}, 1.0, mask={other_mask})
        """,
        "*fp32, *fp32, *fp32, i32, i32",
    )
    fn = module.entry
    fn.arg_attrs[0]["alias"], fn.arg_attrs[1]["alias"] = 0, 1
    a, b = blocks_of(fn).values()
    assert isinstance(a, Block)
    assert isinstance(b, Block)
    assert overlap(fn, a, b) is expected
    assert overlap(fn, b, a) is expected
    assert overlap(fn, a, a) is SAME
    meet = False
    for n, m in ((40, 3), (1000, 0), (7, 100)):
        found = moments(module, (3,), [1 << 40, 1 << 41, 1 << 40, n, m])
        for load, store in zip(found[::2], found[1::2], strict=True):
            touched = [moment.addresses[moment.mask] for moment in (load, store)]
            meet |= bool(set(touched[0]) & set(touched[1]))
            if expected is SAME:
                assert touched[0].tolist() == touched[1].tolist()
    assert not (meet and expected is DISJOINT)
