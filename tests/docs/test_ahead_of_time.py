"""The commands of docs/ahead-of-time.md run unchanged, with the results that the page states."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ahead-of-time.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(PAGE) if found == kind]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the page's kernel, and a `python` and `cc` that are the tests' own."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("needs a C compiler: cc, gcc, clang")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / "bin" / "cc").symlink_to(compiler)
    (tmp_path / "kernels.py").write_text(blocks("python")[0])
    return tmp_path


def run(commands: str, folder: Path) -> str:
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_for_the_cpu_run(folder: Path) -> None:
    make, build, _ = blocks("console")
    program, workers = blocks("c")
    (folder / "main.c").write_text(program)
    run(make, folder)
    printed = run(build, folder)
    assert f"It prints `{printed.strip()}`" in PAGE
    # With the page's workers, and without OpenMP, whose line then does nothing.
    shared = program.replace("int main", f"{workers}\nint main").replace("(NULL,", "(&threads,")
    (folder / "main.c").write_text(shared)
    assert run(build, folder) == printed


def test_commands_for_cuda_run_and_match_the_table(folder: Path) -> None:
    run(blocks("console")[2], folder)
    header = (folder / "scale_gpu.h").read_text()
    declared = re.findall(r"^\| `([^`]*)` \|", PAGE, re.MULTILINE)
    assert len(declared) == 5
    for line in declared:
        pattern = re.escape(line).replace("…", ".*")
        assert re.search(f"^{pattern};$", header, re.MULTILINE), line
    assert len(list(folder.glob("scale_gpu*.o"))) == 2
