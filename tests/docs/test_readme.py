"""The code blocks in the README and in docs/language.md run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


PAGE = (ROOT / "docs" / "language.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("code", CODE.findall(README) + CODE.findall(PAGE))
def test_code_of_a_document_runs(code: str, tmp_path: Path) -> None:
    script = tmp_path / "document.py"
    script.write_text(code)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_kernel_of_the_readme_is_ten_lines() -> None:
    code = CODE.findall(README)[0]
    kernel = re.search(r"^@tw\.jit\n(.+?)\n\n", code, re.DOTALL | re.MULTILINE)
    assert kernel is not None
    assert len(kernel[0].strip().splitlines()) <= 10
