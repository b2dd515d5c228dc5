"""The code in the README runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", CODE.findall((ROOT / "README.md").read_text("utf-8")))
def test_code_of_the_readme_runs(code: str, tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
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
    code = CODE.findall((ROOT / "README.md").read_text("utf-8"))[0]
    kernel = re.search(r"^@tw\.jit\n(.+?)\n\n", code, re.DOTALL | re.MULTILINE)
    assert kernel is not None
    assert len(kernel[0].strip().splitlines()) <= 10
