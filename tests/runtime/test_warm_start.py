"""A process whose kernels are all in the disk cache loads neither the compiler nor LLVM."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

# What such a process has no use for: LLVM, the walk from Python to tile IR, passes, lowering.
IDLE = (
    "llvmlite",
    "tilewright.frontend.build",
    "tilewright.lowering",
    "tilewright.passes",
    "tilewright.targets.cpu.codegen",
    "tilewright.targets.cpu.emit",
    "tilewright.targets.nvidia.codegen",
    "tilewright.targets.nvidia.emit",
)

# Python's modules that would take 5 of 20 ms: OpenSSL, and what `pathlib` imports in Python 3.11.
SLOW = ("_hashlib", "ipaddress", "pathlib", "urllib.parse")

COMMON = """
import json, sys
import numpy as np
import tilewright as tw
import tilewright.language as tl

@tw.jit
def powers(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x + i, inside)
    tl.store(out + i, tl.exp(v) + tl.erf(v), inside)

hits = []
tw.knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
"""

ON_CPU = """
x, out = np.zeros(1000, np.float32), np.zeros(1000, np.float32)
for _ in range(3):
    powers[(8,)](x, out, 1000, BLOCK=128)
assert (out == 1).all()
"""

ON_CUDA = """
import pytest
from tests.runtime.fake_cuda import FakeCuda, Tensor
tw.knobs.nvidia.assembler = "driver"  # PTX, in which this one finds the kernel
patch = pytest.MonkeyPatch()
fake = FakeCuda()
fake.install(patch)
fake.widths["powers"] = [8, 8, 4]
x, out = Tensor(1 << 20, "cuda:0"), Tensor(1 << 21, "cuda:0")
for _ in range(3):
    powers[(8,)](x, out, 1000, BLOCK=128)
assert [launch.grid for launch in fake.launches] == [(8, 1, 1)] * 3
assert not fake.faults
"""

ONCE_AND_AGAIN = """
from functools import partial
from types import BuiltinFunctionType
from tilewright.runtime.jit import JITFunction
native = "tilewright.runtime.native.launcher"
x, out = np.zeros(1000, np.float32), np.zeros(1000, np.float32)
launch = powers[(8,)]
around = partial(launch, x, out, BLOCK=128)
around(1000)
assert native not in sys.modules
launch(x, n=1000, out=out, BLOCK=128)
assert native in sys.modules
seen = []
JITFunction.run = lambda *args, **kwargs: seen.append(args)
out[:] = 0
launch(x, n=1000, out=out, BLOCK=128)
assert (out == 1).all()
out[:] = 0
around(1000)
assert (out == 1).all()
assert not seen
# Nothing of ours is between.
assert around.func is launch
assert type(launch.func) is BuiltinFunctionType
"""

TELL = """
print(json.dumps([hits, sorted(sys.modules)]))
"""

NUMPY_ALONE = """
import json, sys
import numpy as np
hits = []
"""


def _run(program: Path, cache: Path) -> tuple[list[bool], set[str]]:
    """Whether each kernel came from the store, and what the process has loaded."""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answer[0], set(answer[1])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_hit_in_a_new_process_loads_no_compiler(device: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(COMMON + (ON_CPU if device == "cpu" else ON_CUDA) + TELL)
    hits, loaded = _run(program, tmp_path / "cache")
    assert hits == [False]
    assert "llvmlite" in loaded
    hits, loaded = _run(program, tmp_path / "cache")
    assert hits == [True]
    assert not loaded.intersection(IDLE)


def test_hit_on_the_cpu_loads_no_slow_modules(tmp_path: Path) -> None:
    program, alone = tmp_path / "program.py", tmp_path / "alone.py"
    program.write_text(COMMON + ON_CPU + TELL)
    alone.write_text(NUMPY_ALONE + TELL)
    _run(program, tmp_path / "cache")
    _, needed = _run(alone, tmp_path / "cache")
    hits, loaded = _run(program, tmp_path / "cache")
    assert hits == [True]
    assert not (loaded - needed).intersection(SLOW)


def test_native_code_is_loaded_by_the_second_launch(tmp_path: Path) -> None:
    """And what the first launch was made with then launches natively."""
    program = tmp_path / "program.py"
    program.write_text(COMMON + ONCE_AND_AGAIN + TELL)
    hits, _ = _run(program, tmp_path / "cache")
    assert hits == [False]
