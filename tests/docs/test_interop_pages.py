"""The code blocks of the pages about other libraries run, each page as one program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop.forked import TORCH, output

ROOT = Path(__file__).parents[2]
PAGES = {"jax": "", "torch-operators": TORCH}
"""And what is imported before."""


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_the_page_runs(page: str) -> None:
    pytest.importorskip(page.partition("-")[0])
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    output("\n".join(blocks), PAGES[page], strict=True)
