"""The package that docs/add-an-accelerator.md builds passes the levels that the page says."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/add-an-accelerator.md").read_text("utf-8")
BLOCK = re.compile(r"`([\w/]+\.py)`:\n\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^python -m tilewright (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in which the package of the page is installed."""
    home = tmp_path_factory.mktemp("accelerator")
    found = BLOCK.findall(PAGE)
    assert len(found) == 6
    (home / "abacus").mkdir()
    assert "an empty file `abacus/__init__.py`" in PAGE
    (home / "abacus/__init__.py").touch()
    for name, code in found:
        (home / name).write_text(code)
    toml = re.search(r"`pyproject\.toml`:\n\n```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert toml is not None
    project = tomllib.loads(toml[1])["project"]
    facts = home / f"{project['name']}-{project['version']}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = project["entry-points"].items()
    points = [f"[{g}]\n" + "\n".join(f"{k} = {v}" for k, v in e.items()) for g, e in groups]
    (facts / "entry_points.txt").write_text("\n".join(points) + "\n")
    return home


def command(folder: Path, start: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command of the page that starts with a word."""
    line = next(c for c in COMMAND.findall(PAGE) if c.startswith(start))
    return python(folder, "-m", "tilewright", *line.split(), *more)


def python(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *args],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT)))},
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_accelerator_passes_the_levels_of_the_page(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "results.json"
    # Part of the cases, as the time of a test is limited.
    found = command(folder, "conformance", "--json", str(report), "-j2", "--part", "1/15")
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout.rstrip().endswith(" 0 failed")
    levels = json.loads(report.read_text())["levels"]
    assert set(levels) == {"0", "1", "2", "R"}
    assert levels["1"]["passed"] > 50
    assert levels["1"]["rejected"] > 6
    assert levels["2"]["passed"] > 40
    assert "the abacus has no bf16" in found.stdout


def test_doctor_runs_a_kernel_on_the_accelerator(folder: Path) -> None:
    found = command(folder, "doctor")
    assert "abacus = abacus.driver:AbacusDriver, of abacus 1.0" in found.stdout, found.stdout
    assert "kernel on abacus:0 compiled and ran" in found.stdout, found.stdout


def test_first_kernel_runs(folder: Path) -> None:
    found = python(folder, "double.py")
    assert found.stdout.startswith("1998.0\ndef double(program, grid, a0, a1, a2):"), found.stderr


def test_package_is_small_and_imports_public_names_only(folder: Path) -> None:
    lines = 0
    for path in sorted(folder.glob("abacus/*.py")):
        text = path.read_text()
        lines += len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                names = [*(node.module or "").split("."), *(a.name for a in node.names)]
                assert not [n for n in names if n.startswith("_")], f"{path.name}:{node.lineno}"
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                own = isinstance(node.value, ast.Name) and node.value.id == "self"
                assert own or node.attr.startswith("__"), f"{path.name}:{node.lineno}"
    assert 100 < lines < 1500
