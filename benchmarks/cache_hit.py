"""Measures the first launch of a kernel from the disk cache in a new process.

python -m benchmarks.cache_hit                  the minimum of 20 processes
python -m benchmarks.cache_hit --runs 50
python -m benchmarks.cache_hit --device cuda    the kernel runs on a GPU

Each process imports NumPy, then tilewright, and launches a kernel that a first process compiled.
For a GPU it imports PyTorch instead of NumPy and creates the tensors first, which initialises the
device's context. The limits are 150 ms for the imports of tilewright and 20 ms for the first
launch. Run it on an idle machine, with Python's bytecode cached.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import ROOT, child_environment

_BIRTH = "import json, time; born = time.perf_counter()\n"

_ARRAYS = {
    "cpu": "import numpy as np; make = lambda: np.ones(1000, np.float32); wait = int",
    "cuda": """
import torch
make = lambda: torch.ones(1000, device="cuda")
wait = torch.cuda.synchronize
""",
}

_PROGRAM = """
x, out = make(), make()
wait()
begin = time.perf_counter()
import tilewright as tw
import tilewright.language as tl
imported = time.perf_counter()

@tw.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, inside) + tl.load(y + i, inside), inside)

start = time.perf_counter()
add[(8,)](x, x, out, 1000, BLOCK=128)
wait()
launched = time.perf_counter()
assert (out == 2).all()
times = {"arrays": begin - born, "import": imported - begin, "launch": launched - start}
print(json.dumps(times))
"""


def measure(script: Path, cache: Path) -> dict[str, float]:
    """Seconds of each part of one process: other imports and arrays, import of tilewright, first
    launch."""
    environment = child_environment(PYTHONPATH=str(ROOT), TILEWRIGHT_CACHE_DIR=str(cache))
    command = [sys.executable, str(script)]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="processes (default 20)")
    parser.add_argument("--device", choices=_ARRAYS, default="cpu", help="default cpu")
    arguments = parser.parse_args()
    runs: int = arguments.runs
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "program.py")
        script.write_text(_BIRTH + _ARRAYS[arguments.device] + _PROGRAM)
        cache = Path(folder, "cache")
        cold = measure(script, cache)
        warm = [measure(script, cache) for _ in range(runs)]
    print(f"compiling it:            {cold['launch'] * 1e3:6.1f} ms")
    titles = {"arrays": "what comes first", "import": "imports", "launch": "first launch"}
    for name, title in titles.items():
        times = sorted(run[name] for run in warm)
        print(f"{title + ':':<24} {times[0] * 1e3:6.1f} ms, median {times[runs // 2] * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
