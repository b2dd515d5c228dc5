"""A kernel that accesses memory that there is not ends the process, with a report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

KERNEL = """
import faulthandler
import sys
import numpy as np
import tilewright as tw
import tilewright.language as tl

@tw.jit
def reads_beyond(x, n):
    if tl.program_id(0) == 0:  # of the calling thread
        i = tl.load(x)
        while i < n:
            i += tl.load(x + 1, volatile=True)
    else:  # of a worker
        tl.store(x, tl.load(x + n * 16))

if sys.argv[1] == "python":
    faulthandler.enable()
tw.knobs.runtime.cpu_threads = 2
reads_beyond[(2,)](np.ones(2, np.int64), 1 << 40)
"""


@pytest.mark.skipif(not sys.platform.startswith(("linux", "darwin")), reason="without sigaction")
@pytest.mark.parametrize("handler", ["none", "python"])
def test_fault_of_a_worker_names_the_kernel(handler: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL)
    command = [sys.executable, str(program), handler]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode in (-11, -10, -7)
    assert "memory fault in kernel reads_beyond" in done.stderr
    assert ("Fatal Python error" in done.stderr) == (handler == "python")
