"""Latency of a first compilation, each in a new process, without the disk cache.

There are two measurements. *LLVM loaded* starts when the package, LLVM and the description of this
processor are loaded, and ends with the kernel's object code; the compiler's own Python modules are
not yet imported. *Process* is from the start of Python to the end of the first launch.
``python -m benchmarks.compile_time staged softmax`` is a process of the first kind, and
``… launch softmax`` one of the second.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from statistics import median
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import matmul
import numpy as np

from benchmarks import ROOT, child_environment
from tilewright.compiler.pipeline import pipeline
from tilewright.compiler.source import ASTSource
from tilewright.ir.passes import PassContext, run
from tilewright.runtime.jit import JITFunction
from tilewright.targets import registry
from tilewright.tools.load import find_kernel, source_of

BARS_MS = {"add": 60, "softmax": 100, "layer norm": 150, "matmul": 250}
"""Limits of *LLVM loaded*, in milliseconds."""

KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "add": ("vector_add.py::add_kernel", {"BLOCK": 1024}),
    "softmax": ("fused_softmax.py::softmax_kernel", {"BLOCK": 4096}),
    "layer norm": ("layer_norm.py::forward_kernel", {"BLOCK": 4096}),
    "matmul": (
        "matmul.py::matmul_kernel",
        {"ACTIVATION": matmul.identity, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8},
    ),
}


def _source(name: str) -> ASTSource:
    # The layer norm example imports torch, which takes a second and is not part of compilation.
    stub: Any = SimpleNamespace(autograd=SimpleNamespace(Function=object))
    sys.modules["torch"] = stub
    place, constants = KERNELS[name]
    kernel, module = find_kernel(str(ROOT / "examples" / place))
    signature, _ = module.__tilewright_signatures__[kernel.__name__]
    return source_of(kernel, signature, constants)


def _staged(name: str) -> dict[str, float]:
    """Milliseconds of each phase of a first compilation."""
    from tilewright.targets.cpu import emit
    from tilewright.targets.cpu.codegen import generate
    from tilewright.targets.cpu.host import host_machine

    source, target = _source(name), registry.target("cpu")
    options, machine = target.parse_options({}), host_machine()
    times, start = {}, perf_counter()

    def lap(part: str) -> None:
        nonlocal start
        now = perf_counter()
        times[part], start = (now - start) * 1e3, now

    module = source.module(target.frontend_options(options))
    lap("front end")
    run(module, pipeline(target), PassContext(target.features()))
    lap("tile passes")
    text, _ = generate(module, machine)
    lap("LLVM IR")
    emit.compile_text(text, machine)
    lap("LLVM")
    return times


def _launched(name: str) -> None:
    """Run the kernel once on arguments that fit its signature."""
    source = _source(name)
    arrays = (np.ones((64, 64), np.float32) for _ in range(9))
    args = [
        next(arrays) if type.startswith("*") else 1e-5 if type == "fp32" else 64
        for type in source.signature.values()
        if type != "constexpr"
    ]
    assert isinstance(source.fn, JITFunction)
    source.fn[(1,)](*args, **KERNELS[name][1])


def measure(name: str, processes: int = 5) -> dict[str, float]:
    """Medians in milliseconds: of each phase, ``LLVM loaded`` (their sum), and ``process``."""
    found: list[dict[str, float]] = []
    for _ in range(processes):
        times: dict[str, float] = json.loads(_child("staged", name)[0])
        times["LLVM loaded"] = sum(times.values())
        times["process"] = _child("launch", name)[1] * 1e3
        found.append(times)
    return {part: median(times[part] for times in found) for part in found[0]}


def _child(mode: str, name: str) -> tuple[str, float]:
    """The output of a process, and its duration in seconds."""
    with tempfile.TemporaryDirectory() as cache:
        settings = {"TILEWRIGHT_CACHE_DIR": cache, "TILEWRIGHT_ALWAYS_COMPILE": "1"}
        command = [sys.executable, "-m", "benchmarks.compile_time", mode, name]
        start = perf_counter()
        done = subprocess.run(
            command, cwd=ROOT, env=child_environment(**settings), capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        return done.stdout, perf_counter() - start


if __name__ == "__main__":
    if sys.argv[1] == "staged":
        print(json.dumps(_staged(sys.argv[2])))
    else:
        _launched(sys.argv[2])
