"""A program that imports only `triton` and NumPy, on a machine without Triton, torch and GPU.

It runs in a virtual environment with tilewright's dependencies and nothing else.
"""

import os
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPENDENCIES = ("llvmlite", "ml_dtypes", "numpy")

PROGRAM = """
import math
import multiprocessing
import sys

import numpy as np
import triton
import triton.language as tl
import triton.testing
from triton.language.extra import libdevice


@triton.jit
def activated(x):
    return 0.5 * x * (1 + libdevice.erf(x * 0.7071067811865476))


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=4) for block in (64, 256)], key=["n"]
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + i, activated(tl.load(x_ptr + i)))
    else:
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
        tl.store(out_ptr + i, activated(x), mask=i < n)


def check(n):
    x = np.linspace(-3, 3, n, dtype=np.float32)
    out = np.zeros_like(x)

    def launch():
        gelu_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)

    launch()
    right = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.tolist()]
    np.testing.assert_allclose(out, right, atol=1e-6)
    assert gelu_kernel.best_config.kwargs["BLOCK"] in (64, 256)
    return launch


def work(n):
    check(n)
    return n


if __name__ == "__main__":
    milliseconds = triton.testing.do_bench(check(1000), warmup=1, rep=2)
    assert 0 < milliseconds < 1000
    triton.testing.assert_close(np.ones(3), np.ones(3))
    for way in ("fork", "spawn"):
        with multiprocessing.get_context(way).Pool(1) as pool:
            assert pool.map(work, [1024, 999]) == [1024, 999]
    assert triton.runtime.driver.active.get_current_target().backend == "cpu"
    assert "torch" not in sys.modules
    print("all right", sys.argv[1:], triton.__version__)
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The interpreter of an environment with tilewright's dependencies alone."""
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in DEPENDENCIES:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        for beside in package.parent.glob(f"{name}*"):  # and the libraries that wheels bring
            (packages / beside.name).symlink_to(beside)
    return folder / "bin" / Path(sys.executable).name


def _run(python: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
    }
    return subprocess.run(
        [python, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_program_that_imports_only_triton(bare: Path, tmp_path: Path) -> None:
    for module in ("triton", "torch"):
        assert (
            f"No module named '{module}'" in _run(bare, tmp_path, "-c", f"import {module}").stderr
        )
    script = tmp_path / "main.py"
    script.write_text(PROGRAM)
    run = _run(bare, tmp_path, "-m", "tilewright", "run", str(script), "--steps", "3")
    assert run.stdout == "all right ['--steps', '3'] 3.7.1\n", run.stderr
    assert run.returncode == 0
