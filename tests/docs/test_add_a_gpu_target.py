"""The GPU target of docs/add-a-gpu-target.md compiles and runs kernels, and imports no vendor's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "add-a-gpu-target.md"
BLOCK = re.compile(r"`(toygpu/\w+\.py)`:\n\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

# A program of its own, as the package of a vendor would be used.
PROGRAM = """
import sys
import numpy as np
import tilewright as tw
import tilewright.language as tl
import toygpu.driver

toygpu.driver.activate()

@tw.jit
def row_sums(x_ptr, out_ptr, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + rows[:, None] * n + columns[None, :], mask=columns[None, :] < n, other=0.0)
    x = x * 3 + 1
    tl.store(out_ptr + rows, tl.sum(tl.where(columns[None, :] < n, x, 0.0), 1))

@tw.jit
def transposed(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + m[:, None] * N + n[None, :])
    tl.store(out_ptr + n[:, None] * M + m[None, :], tl.trans(x))

@tw.jit
def product(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, STEP)
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, K, STEP):
        a = tl.load(a_ptr + m * K + start + k[None, :])
        b = tl.load(b_ptr + (start + k[:, None]) * N + n)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + m * N + n, acc)

rng = np.random.default_rng(0)
x, out = rng.integers(-9, 9, (16, 100)).astype(np.float32), np.zeros(16, np.float32)
compiled = row_sums[(4,)](x, out, 100, ROWS=4, BLOCK=128)
np.testing.assert_array_equal(out, (x * 3 + 1).sum(1))
assert compiled.metadata.target.backend == "toygpu"
assert compiled.metadata.threads == 128

x = rng.standard_normal((32, 64)).astype(np.float32)
out = np.zeros((64, 32), np.float32)
transposed[(1,)](x, out, M=32, N=64, num_warps=4)
np.testing.assert_array_equal(out, x.T)

for warps in (1, 2, 4):
    for m, n, step in ((32, 16, 16), (8, 32, 8), (64, 8, 16), (4, 4, 4)):
        a = rng.integers(-9, 9, (m, 3 * step)).astype(np.float32)
        b = rng.integers(-9, 9, (3 * step, n)).astype(np.float32)
        c = np.zeros((m, n), np.float32)
        compiled = product[(1,)](a, b, c, 3 * step, M=m, N=n, STEP=step, num_warps=warps)
        np.testing.assert_array_equal(c, a @ b)
        assert ("toygpu.mma" in compiled.asm["ttgir"]) == (m > 4), (m, n, step)

vendors = [name for name in sys.modules if "targets.nvidia" in name]
assert vendors == [], vendors
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the tree that holds the package of the page."""
    folder = tmp_path_factory.mktemp("plug_in")
    files = BLOCK.findall(PAGE.read_text("utf-8"))
    assert [Path(file).stem for file, _ in files] == [
        *("machine", "hardware", "compiler", "matrix", "launch", "driver"),
    ]
    (folder / "toygpu").mkdir()
    (folder / "toygpu" / "__init__.py").write_text("")
    for file, code in files:
        (folder / file).write_text(code)
    installed = folder / "toygpu-1.0.dist-info"  # what pip writes
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toygpu\nVersion: 1.0\n")
    groups = re.findall(r"^\[project\.entry-points\.(.+)\]\n(toygpu = .+)$", PAGE.read_text(), re.M)
    assert len(groups) == 2
    lines = [f"[{group}]\n{entry}\n".replace('"', "") for group, entry in groups]
    (installed / "entry_points.txt").write_text("".join(lines))
    return folder


def run(package: Path, *arguments: str) -> str:
    environment = {"PYTHONPATH": f"{package}:{ROOT}", "PATH": "", "HOME": str(package)}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_target_of_the_page_runs_kernels(package: Path) -> None:
    program = package / "program.py"
    program.write_text(PROGRAM)
    run(package, str(program))


def test_command_of_the_page(package: Path) -> None:
    command = re.search(r"^python (-m tilewright .* --target toygpu .*)$", PAGE.read_text(), re.M)
    assert command is not None
    arguments = [str(ROOT / a) if a.startswith("examples/") else a for a in command[1].split()]
    # The example's tiles, made for a CPU, are many registers of a thread.
    smaller = [f"-cBLOCK_{axis}=16" for axis in "MNK"]
    text = run(package, *arguments, *smaller)
    assert "lane[" in text
    assert "toygpu.mma" in text


def test_doctor_lists_the_plug_in(package: Path) -> None:
    program = "from tilewright.tools import doctor; print(*doctor.CHECKS['plug-ins'](), sep='\\n')"
    found = run(package, "-c", program).splitlines()
    assert len(found) == 2
    assert "tilewright.launchers: toygpu = toygpu.launch:ToyLaunch, of toygpu 1.0" in found[1]
