"""The commands of the README and of the pages run as printed, and so do the code blocks of pages
that no other test here reads."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^python -m (?:tilewright|tests)\b.*$", re.MULTILINE)

# Pages with a test of their own, whose commands need what the page has made or installed.
ELSEWHERE = {
    "add-a-gpu-target", "add-a-pass", "add-a-target", "add-an-accelerator", "add-an-op",
    "ahead-of-time", "derivatives", "jax", "torch-operators", "tour", "triton-back-ends",
}  # fmt: skip
SHORTER = "--part=1/2000"  # of the conformance suite, which takes minutes
PROFILED = """
import numpy as np
import tilewright as tw
import tilewright.language as tl
n, grid = 5000, (5,)
x = y = np.ones(n, np.float32)
out = np.empty_like(x)
"""
BODY = "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    " + "; ".join(
    ["a = tl.load(x + i, i < n)", "b = tl.load(y + i, i < n)", "tl.store(out + i, a + b, i < n)"]
)


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in a language; "" for those without one."""
    return [text for name, text in BLOCK.findall(page.read_text("utf-8")) if name == language]


def commands(page: Path) -> list[str]:
    """The commands of the code blocks of a page, without the explanations beside them."""
    lines = "\n".join(blocks(page, ""))
    return [re.split(r"\s{3,}", line)[0] for line in COMMAND.findall(lines)]


PAGES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if path.stem not in ELSEWHERE and commands(path)
]


def run(arguments: list[str], folder: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like the root of the repository, in which commands may write."""
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def profile(folder: Path) -> None:
    """Write the profile that the page of the profiler shows how to make."""
    (block,) = blocks(ROOT / "docs" / "profiler.md", "python")
    assert "): ...\n" in block
    (folder / "profiled.py").write_text(PROFILED + block.replace("): ...", f"):\n    {BODY}"))
    run(["-W", "error", "profiled.py"], folder)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_commands_of_the_page_run(page: Path, folder: Path) -> None:
    if page.stem == "profiler":
        profile(folder)
    for command in commands(page):
        arguments = shlex.split(command)[1:]
        if "--device" in arguments or "tests.amd_emulator.conformance" in arguments:
            continue  # of a device that is not here; minutes
        if "conformance" in arguments:
            arguments.append(SHORTER)
        run(arguments, folder)


def test_profile_of_the_page_has_its_scope_and_metrics(folder: Path) -> None:
    profile(folder)
    shown = run(["-m", "tilewright", "profile", "step.hatchet", "-m", "count"], folder)
    assert "forward" in shown
    assert "add 5000" in shown


def test_code_for_amd_gpus_compiles(folder: Path) -> None:
    (code,) = blocks(ROOT / "docs" / "amd.md", "python")
    source = """
import tilewright as tw, tilewright.language as tl
from tilewright.compiler.source import ASTSource
@tw.jit
def k(x): tl.store(x, 1.0)
source = ASTSource(k, {"x": "*fp32"})
"""
    (folder / "page.py").write_text(source + code)
    run(["-W", "error", "page.py"], folder)
