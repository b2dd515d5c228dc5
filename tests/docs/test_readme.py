"""The code in the README and on the page about the language runs, and that page is whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright.language as tl

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


# Modules, and what annotations, classes of arguments and the compiler's own code need.
NOT_ON_THE_PAGE = {
    "TRITON_MAX_TENSOR_NUMEL",
    "PropagateNan",
    "block_type",
    "const",
    "constexpr_type",
    "core",
    "dtype",
    "extra",
    "math",
    "operators",
    "pi32_t",
    "pointer_type",
    "random",
    "semantic",
    "slice",
    "standard",
    "str_to_ty",
    "target_info",
    "tensor",
    "tensor_descriptor",
    "tensor_descriptor_type",
    "tuple",
    "tuple_type",
    "void",
}


def test_page_about_the_language_names_everything() -> None:
    table = PAGE.partition("## What there is")[2]
    named = set(re.findall(r"`(\w+)`", table))
    assert set(tl.__all__) - NOT_ON_THE_PAGE <= named
    assert not named & NOT_ON_THE_PAGE
