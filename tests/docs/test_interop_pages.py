"""The code blocks of the pages about other libraries run, each page as one program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {"jax": "jax", "torch-operators": "torch"}


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_the_page_runs(page: str, tmp_path: Path) -> None:
    pytest.importorskip(PAGES[page])
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    script = tmp_path / "page.py"
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    script.write_text("\n".join(blocks), "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
