"""The blocks of memory that a report lists, and why an access is none."""

from __future__ import annotations

import pytest

from tests.tools.explain.conftest import Explain
from tilewright.tools.explain.text import as_text

EXPECTED = {
    "add": """
13  loads 512 elements of `x`
  axis 0: from 512*program_id(0), stride 1, below `n`
13  loads 512 elements of `y`
  axis 0: from 512*program_id(0), stride 1, below `n`
13  stores 512 elements of `out`
  axis 0: from 512*program_id(0), stride 1, below `n`
""",
    "looked_up": """
31  loads 512 elements of `places`
  axis 0: from 0, stride 1
31  loads 512 elements, not a block: the index is loaded from memory
31  stores 512 elements of `out`
  axis 0: from 0, stride 1
""",
    "rows": """
37  loads 512 elements of `x`
  axis 0: from 0, stride 1
  outer axis: at program_id(0), stride `row_stride`
37  stores 512 elements of `out`
  axis 0: from 0, stride 1
  outer axis: at program_id(0), stride `row_stride`
""",
    "positive": """
43  loads 512 elements of `x`
  axis 0: from 0, stride 1
44  stores 512 elements of `out`
  axis 0: from 0, stride 1
  with a mask per element
""",
    "product": """
70  loads 64 x 32 elements of `a`
  axis 0: from 0, stride `a_stride`
  axis 1: from 32*(iteration of line 69), stride 1
71  loads 32 x 64 elements of `b`
  axis 0: from 32*(iteration of line 69), stride `b_stride`
  axis 1: from 0, stride 1
73  stores 64 x 64 elements of `out`
  axis 0: from 0, stride 64
  axis 1: from 0, stride 1
""",
    "chain": """
60  loads 512 elements of `x`
  axis 0: from (a loop-carried value), stride 1
61  loads 1 element of `links`
  outer axis: at (a loop-carried value), stride 1
62  stores 512 elements of `out`
  axis 0: from 0, stride 1
""",
}


def listed(text: str) -> str:
    """The section of a report's text, without the file's name."""
    section = text.split("Blocks of memory\n", 1)[1].split("\n\n", 1)[0]
    lines = section.splitlines()[1:]
    return "\n".join(line.replace("kernels.py:", "").replace("    ", "  ") for line in lines)


@pytest.mark.parametrize("kernel", EXPECTED)
def test_blocks_are_listed(kernel: str, explain: Explain) -> None:
    assert listed(as_text(explain(kernel))) == EXPECTED[kernel].strip()


def test_rejections_have_a_code(explain: Explain) -> None:
    report = explain("looked_up", "sm_90")
    assert [access.reason for access in report.accesses] == ["", "loaded", ""]
    assert report.plain()["accesses"][1]["reason"] == "loaded"
