"""Programs as newcomers write them, which import `triton` or compile a model, in an empty folder.

JAX's is examples/jax_training.py, which test_examples.py runs.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.forked import TORCH, output

ROOT = Path(__file__).parents[2]


TUTORIAL = '''
import torch

import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.autotune([triton.Config({"BLOCK": b}, num_warps=4) for b in (256, 1024)], key=["n"])
@triton.jit
def fused(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """relu(x) * y"""
    offsets = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * y, mask=mask)


def relu_times(x, y):
    out = torch.empty_like(x)
    assert x.device == y.device == DEVICE == out.device
    fused[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
    return out


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["size"], x_vals=[2**12, 2**14], line_arg="provider", line_vals=["ours", "torch"],
        line_names=["Ours", "Torch"], ylabel="GB/s", plot_name="relu-times", args={},
    )
)
def benchmark(size, provider):
    x, y = torch.rand(2, size, device=DEVICE)
    run = {"ours": lambda: relu_times(x, y), "torch": lambda: x.relu() * y}[provider]
    ms, low, high = triton.testing.do_bench(run, warmup=1, rep=5, quantiles=[0.5, 0.2, 0.8])
    speed = lambda ms: 3 * x.numel() * x.element_size() * 1e-9 / (ms * 1e-3)
    return speed(ms), speed(high), speed(low)


torch.manual_seed(0)
x, y = torch.randn(2, 98432, device=DEVICE)
print(torch.equal(relu_times(x, y), x.relu() * y))
benchmark.run(print_data=True)
'''


def test_tutorial_runs_unchanged(tmp_path: Path) -> None:
    """With a kernel, autotuning and a benchmark, and without any name of tilewright."""
    pytest.importorskip("torch", minversion="2.9")
    file = tmp_path / "program.py"
    file.write_text(TUTORIAL)
    run = subprocess.run(
        [sys.executable, "-m", "tilewright", "run", str(file)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    lines = run.stdout.strip().splitlines()
    assert lines[0] == "True"
    assert lines[1] == "relu-times:"
    # Sizes and speeds, with the number of the row where pandas prints them.
    assert [max(map(float, line.split())) for line in lines[-2:]] == [4096.0, 16384.0]


LIBRARY = """
import tilewright
tilewright.install_as_triton()

import torch
import triton
import triton.language as tl


@triton.jit
def rows_kernel(out_ptr, in_ptr, columns, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(in_ptr + row * columns + i, mask=i < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * columns + i, e / tl.sum(e, 0), mask=i < columns)


calls = []


def softmax(x, dim, half_to_float):
    calls.append(tuple(x.shape))
    x = x.movedim(dim, -1).contiguous()
    out, columns = torch.empty_like(x), x.shape[-1]
    block = triton.next_power_of_2(columns)
    rows_kernel[(x.numel() // columns,)](out, x, columns, BLOCK=block)
    return out.movedim(-1, dim)


class use_tile_operators:
    def __enter__(self):
        self.library = torch.library.Library("aten", "IMPL")
        self.library.impl("_softmax", softmax, "CPU")

    def __exit__(self, *error):
        self.library._destroy()


import warnings
warnings.filterwarnings("ignore", message=".*[Oo]verrid")
x = torch.randn(33, 100, 7)
expected = [torch.softmax(x, dim) for dim in (0, 1, 2)]
with use_tile_operators():
    found = [torch.softmax(x, dim) for dim in (0, 1, 2)]
torch.testing.assert_close(found, expected)
torch.softmax(x, 1)
print(len(calls))
"""


def test_library_replaces_operators_of_torch() -> None:
    """A context manager in which torch's operators are tile kernels."""
    pytest.importorskip("torch", minversion="2.9")
    assert output(LIBRARY, TORCH) == "3"


def test_model_is_compiled_as_the_page_shows() -> None:
    pytest.importorskip("torch", minversion="2.9")
    page = (ROOT / "docs" / "torch-compile.md").read_text()
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    use = """
launches = []
tilewright.knobs.runtime.launch_enter_hook.add(lambda data: launches.append(data.get()["name"]))
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32))
x = torch.randn(8, 16)
torch.testing.assert_close(torch.compile(model)(x), model(x))
torch.testing.assert_close(f(x, x), torch.relu(x + x))
print(len(launches) > 1)
"""
    assert output(found[1] + use, TORCH) == "True"
