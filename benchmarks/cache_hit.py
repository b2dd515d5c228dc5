"""Measures what a kernel from the disk cache costs a new process, from a cache that has it.

python -m benchmarks.cache_hit                  the least of 20 processes
python -m benchmarks.cache_hit --runs 50

Each process imports NumPy, then tilewright, and launches a kernel that the first process has
compiled. The bar is 20 ms for the first launch. Run it on a machine that does nothing else, with
Python's compiled files in place.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import ROOT

_PROGRAM = """
import json, time
begin = time.perf_counter()
import numpy as np
numpy = time.perf_counter()
import tilewright as tw
import tilewright.language as tl
imported = time.perf_counter()

@tw.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, inside) + tl.load(y + i, inside), inside)

x, out = np.ones(1000, np.float32), np.zeros(1000, np.float32)
start = time.perf_counter()
add[(8,)](x, x, out, 1000, BLOCK=128)
launched = time.perf_counter()
assert (out == 2).all()
print(json.dumps({"numpy": numpy - begin, "import": imported - begin, "launch": launched - start}))
"""


def measure(script: Path, cache: Path) -> dict[str, float]:
    """Seconds of one process: NumPy's import, all imports, the first launch."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, str(script)]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="processes (default 20)")
    runs: int = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "program.py")
        script.write_text(_PROGRAM)
        cache = Path(folder, "cache")
        cold = measure(script, cache)
        warm = [measure(script, cache) for _ in range(runs)]
    print(f"compiling it:            {cold['launch'] * 1e3:6.1f} ms")
    for name, title in (("numpy", "NumPy"), ("import", "all imports"), ("launch", "first launch")):
        times = sorted(run[name] for run in warm)
        print(f"{title + ':':<24} {times[0] * 1e3:6.1f} ms, median {times[runs // 2] * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
