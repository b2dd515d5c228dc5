"""Kernels for GPUs that Inductor compiles before its compile workers start, without a GPU."""

from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.interop.forked import run_text
from tilewright.targets.nvidia.assemble import find_assembler

PROGRAM = '''
import sys, threading
import tilewright, torch
tilewright.torch.enable(cpu=False)
from torch._inductor import config
config.compile_threads = {threads}
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

# What needs a GPU; and the compile workers.
triton_helpers.set_driver_to_gpu = lambda: None
CachingAutotuner._make_launchers = CachingAutotuner._dynamic_scale_rblock = lambda self: None
AsyncCompile.use_process_pool = classmethod(lambda cls: False)

compile, threads = triton_heuristics.triton.compile, []
def recorded(*rest, **named):
    threads.append(threading.current_thread().name)
    return compile(*rest, **named)
triton_heuristics.triton.compile = recorded

SOURCE = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties
from tilewright.interop.torch_kernels import adapt_autotuner
adapt_autotuner()

device = DeviceProperties("cuda", 0, 132, 90, 9, 65536, 2048, 1024, 32)
aligned = [["tt.divisibility", 16]]

@triton_heuristics.pointwise(
    size_hints={{"x": 4096, "y": 4096}},
    filename=__file__,
    triton_meta={{
        "signature": {{
            "x": "*fp32", "out": "*fp32", "ynumel": "i32", "xnumel": "i32",
            "YBLOCK": "constexpr", "XBLOCK": "constexpr",
        }},
        "device": device, "constants": {{}}, "configs": [{{(0,): aligned, (1,): aligned}}],
    }},
    inductor_meta={{"grid_type": "Grid2D", "kernel_name": "NAME", "autotune_pointwise": True}},
    min_elem_per_thread=0,
)
@triton.jit
def NAME(x, out, ynumel, xnumel, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    j = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    inside = (i < xnumel) & (j < ynumel)
    tl.store(out + j + i * ynumel, tl.load(x + i + j * xnumel, inside) * 2{fault}, inside)
"""
compiler = AsyncCompile()
names = ["first", "second"]
scope = {{name: compiler.triton(name, SOURCE.replace("NAME", name)) for name in names}}
are_kernels = [isinstance(kernel, CachingAutotuner) for kernel in scope.values()]
compiler.wait(scope)
results = [len(kernel.compile_results) for kernel in scope.values()]
blocks = {{str(made.config.kwargs) for made in scope["first"].compile_results}}
assert len(blocks) == results[0]
print(are_kernels, len(threads) == sum(results), results[0] > 2, {{n[:10] for n in threads}})
'''


def _run(folder: Path, threads: int, fault: str = "") -> CompletedProcess[str]:
    pytest.importorskip("torch", minversion="2.13")
    if find_assembler() is None:
        pytest.skip("there is no assembler of PTX")
    environment = {
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
    return run_text(PROGRAM.format(threads=threads, fault=fault), environment=environment)


def test_configurations_of_all_kernels_of_a_module_are_compiled_in_threads(tmp_path: Path) -> None:
    run = _run(tmp_path, threads=2)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[False, False] True True {'tilewright'}"


def test_one_compile_thread_is_the_programs(tmp_path: Path) -> None:
    run = _run(tmp_path, threads=1)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[True, True] True True {'MainThread'}"


def test_errors_reach_the_program(tmp_path: Path) -> None:
    run = _run(tmp_path, threads=2, fault=" + tl.nothing")
    assert run.returncode != 0
    assert "tl.nothing" in run.stderr
