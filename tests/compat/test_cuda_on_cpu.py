"""Programs that request CUDA's devices of torch, under `python -m tilewright run --cuda-on-cpu`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.compat.install import cuda_search_path
from tilewright.tools.cli import main

ROOT = Path(__file__).parents[2]

PROGRAM = """
import subprocess, sys
import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i, i < n), i < n)

assert torch.cuda.is_available() and torch.cuda.device_count() == 1
torch.cuda.set_device("cuda:0")
threads = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
assert threads > 0 and torch.cuda.get_device_name() and torch.cuda.get_device_capability() >= (8, 0)
free, total = torch.cuda.mem_get_info()
assert 0 < free < total

# Launches, on a stream and between events.
x = torch.randn(100, device="cuda:0")
out = torch.empty_like(x)
assert x.is_cuda and x.get_device() == 0 and x.device == torch.device("cpu")
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
with torch.cuda.device(x.device.index), torch.cuda.stream(torch.cuda.Stream()) as stream:
    begin.record()
    double[(4,)](x, out, 100, BLOCK=32)
    end.record()
    torch.cuda.current_stream().wait_stream(stream)
torch.cuda.synchronize()
assert begin.elapsed_time(end) > 0
assert out.equal(2 * x)

if "child" in sys.argv:
    print("right", __import__("os").environ["HIDDEN"])
    sys.exit()

# A program that Inductor has generated.
allocated = torch._C._dynamo.guards._empty_strided_cuda((2, 3), (3, 1), torch.float32)
assert allocated.stride() == (3, 1) and torch._C._cuda_getCurrentRawStream(0) == 0
torch.cuda._DeviceGuard(0).__enter__()

# Moves are copies, through which gradients flow; conversions to a tensor's own device are not.
for move in (torch.Tensor.cuda, torch.Tensor.cpu, lambda t: t.to("cuda"), lambda t: t.to("cpu"),
             lambda t: t.to(device=torch.device("cuda", 0)), torch.Tensor.pin_memory):
    old = x.clone()
    new = move(old).fill_(7)
    assert old.equal(x) and new.eq(7).all(), move
assert x.to(x.device) is x and x.to(torch.float32) is x
assert x.to("cuda", torch.float16).dtype == torch.float16
leaf = torch.ones(3, requires_grad=True)
(leaf.cuda() * 2).sum().backward()
assert leaf.grad.eq(2).all()

# What creates tensors: modules, generators, default devices.
layer = torch.nn.Linear(2, 3).to("cuda")
assert layer.weight.is_leaf and torch.nn.Linear(2, 3, device="cuda").cuda()(torch.ones(2)).is_cuda
torch.cuda.manual_seed_all(3)
first = torch.rand(2, device="cuda")
generator = torch.Generator(device="cuda").manual_seed(3)
assert isinstance(generator, torch.Generator)
assert first.equal(torch.rand(2, generator=generator, device="cuda"))
with torch.device("cuda"):
    assert torch.ones(1).is_cuda
torch.set_default_device("cuda")
assert torch.zeros(1).is_cuda
with torch.autocast("cuda"):
    assert layer(torch.ones(2)).dtype == torch.float16

# Contexts by the name of a tensor's device, and what Dynamo knows of torch's own.
with getattr(torch, x.device.type).device(x.device.index):
    pass
assert torch.compile(lambda t: t + 1, backend="eager")(x).equal(x + 1)

subprocess.run([sys.executable, __file__, "child"], check=True)
print("right", __import__("os").environ["HIDDEN"])
"""

HIDDEN = "import os\nos.environ['HIDDEN'] = 'sitecustomize'\n"


def test_program_for_cuda_on_the_cpu(tmp_path: Path) -> None:
    """Also its child processes, and with the environment's own `sitecustomize`."""
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "sitecustomize.py").write_text(HIDDEN)
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    run = subprocess.run(
        [sys.executable, "-m", "tilewright", "run", "--cuda-on-cpu", str(tmp_path / "program.py")],
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "right sitecustomize\n" * 2, run.stderr


def test_the_option_adds_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--path"]) == 0
    folder = capsys.readouterr().out.rstrip()
    assert main(["run", "--path", "--cuda-on-cpu"]) == 0
    both = capsys.readouterr().out.rstrip().split(os.pathsep)
    assert both == [folder, cuda_search_path()]
