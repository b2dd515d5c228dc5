"""Kernels compile and run where the interfaces of Linux are missing: see `other_systems`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cross.other_systems import SYSTEMS

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys
import threading
import numpy as np
import tilewright as tw
import tilewright.language as tl
from tilewright.base.machine_code import can_hold_code


@tw.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.exp(tl.load(x + i, mask=i < n)), mask=i < n)


def launch():
    x = np.linspace(0, 1, 100_000, dtype=np.float32)
    y = np.zeros_like(x)
    kernel[(tw.cdiv(x.size, 256),)](x, y, x.size, BLOCK=256)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


launch()
launch()
threads = [threading.Thread(target=launch) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with tw.knobs.runtime.scope():
    tw.knobs.runtime.interpret = True
    launch()
print(sys.platform, "holds code" if can_hold_code() else "has no code memory")
"""


def run(system: str, folder: Path, *args: str) -> str:
    found = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.cross.other_systems", system, *args],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(folder / "cache")},
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


@pytest.mark.parametrize("system", SYSTEMS)
def test_kernel_runs(system: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert run(system, tmp_path, str(script)).startswith(system)
    assert any((tmp_path / "cache").iterdir())
    run(system, tmp_path, str(script))  # from the cache


@pytest.mark.parametrize("system", SYSTEMS)
def test_doctor_finds_no_problem(system: str, tmp_path: Path) -> None:
    script = tmp_path / "doctor.py"
    script.write_text(
        "import sys\nfrom tilewright.__main__ import main\nsys.argv = ['tilewright', 'doctor']\n"
        "sys.exit(main())\n"
    )
    text = run(system, tmp_path, str(script))
    assert "kernel on cpu    compiled and ran" in text
    assert "\n ! " not in text
