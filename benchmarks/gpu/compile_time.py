"""Compile times of kernels for sm_90, without caches.

A process for each module imports it, compiles a copy kernel as a warm-up, and then the kernels of
`KERNELS`, one after the other, each to a cubin. No GPU is needed.
``python -m benchmarks.gpu.compile_time triton`` is such a process.
"""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from benchmarks import ROOT, child_environment
from benchmarks.gpu import dialect
from benchmarks.gpu.results import why

PROGRAM = "benchmarks.gpu.compile_time"
TARGET = ("cuda", 90, 32)


@dataclass(frozen=True)
class Kernel:
    """A kernel with its specialisation.

    Attributes:
        place: file in `kernels/` and name of the kernel.
        types: types of the run-time parameters in order. The suffix ``:16`` means divisible by 16;
            1 is a stride of 1.
        constants: values of the compile-time parameters.
        options: compilation options.
    """

    place: str
    types: str
    constants: dict[str, Any]
    options: dict[str, int]


WARM_UP = Kernel(
    "elementwise.copy_kernel", "*fp32:16 *fp32:16 i32:16", {"BLOCK": 128}, {"num_warps": 4}
)

KERNELS = {
    "add 1024": Kernel(
        "elementwise.add_kernel",
        "*fp32:16 *fp32:16 *fp32:16 i32:16",
        {"BLOCK": 1024},
        {"num_warps": 4},
    ),
    "softmax 4096": Kernel(
        "softmax.row_kernel", "*fp32:16 *fp32:16 i32:16 i32:16 i32:16", {"BLOCK": 4096},
        {"num_warps": 8},
    ),
    "layer norm 4096": Kernel(
        "layer_norm.forward_kernel",
        "*fp16:16 *fp16:16 *fp16:16 *fp16:16 *fp32:16 *fp32:16 i32:16 i32:16 fp32",
        {"BLOCK": 4096},
        {"num_warps": 8},
    ),
    "matmul 128 x 256 x 64": Kernel(
        "matmul.matmul_kernel",
        "*fp16:16 *fp16:16 *fp16:16 i32:16 i32:16 i32:16 i32:16 1 i32:16 1 i32:16 1",
        {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 8, "PRECISION": "tf32"},
        {"num_warps": 8, "num_stages": 3},
    ),
    "attention 128 x 64, D 128, causal": Kernel(
        "attention.forward_kernel",
        "*fp16:16 *fp16:16 *fp16:16 *fp16:16 *fp32:16 i32:16 fp32",
        {"D": 128, "BLOCK_M": 128, "BLOCK_N": 64, "CAUSAL": True},
        {"num_warps": 8, "num_stages": 3},
    ),
}  # fmt: skip

_HALVES = "*fp16:16 *fp16:16 *fp16:16 *fp16:16 *fp32:16 *fp16:16 *fp16:16"

LARGE = {
    "parts of attention combined, 16 x 512, 4 unrolled": Kernel(
        "large.combine_parts",
        "*fp16:16 *fp32:16 *fp16:16 *fp32:16 *i32:16 i32:16",
        {"PARTS": 32, "ROWS": 16, "D": 512, "UNROLL": 4},
        {"num_warps": 4},
    ),
    "parts of attention combined, 16 x 512, 32 unrolled": Kernel(
        "large.combine_parts",
        "*fp16:16 *fp32:16 *fp16:16 *fp32:16 *i32:16 i32:16",
        {"PARTS": 32, "ROWS": 16, "D": 512, "UNROLL": 32},
        {"num_warps": 4},
    ),
    "chunked linear attention, gradients": Kernel(
        "large.chunk_backward",
        f"{_HALVES} *fp16:16 *fp16:16 *fp16:16 *fp32:16 i32:16 fp32",
        {"K": 128, "V": 128, "C": 64, "BLOCK_K": 64, "BLOCK_V": 64},
        {"num_warps": 4, "num_stages": 2},
    ),
    "convolution of volumes, window 3 x 3 x 3": Kernel(
        "large.convolve_volume",
        "*fp16:16 *fp16:16 *fp16:16" + " i32:16" * 6 + " i32" * 3,
        {
            "DEEP": 3, "HIGH": 3, "WIDE": 3, "STEP": 1, "PAD": 1, "BLOCK_P": 128, "BLOCK_C": 32,
            "BLOCK_F": 64,
        },
        {"num_warps": 4, "num_stages": 2},
    ),
    "columns normalised, 2048 x 16": Kernel(
        "large.normalise_columns",
        "*fp32:16 *fp32:16 *fp32:16 *fp32:16 i32:16 i32:16 fp32",
        {"ROWS": 2048, "COLUMNS": 16},
        {"num_warps": 4},
    ),
}  # fmt: skip
"""Kernels with long compile times, whose speed is not measured: ``… compile_time MODULE large``.
Their times are processor time, of the assembler too, as other work on the machine would distort
measurements of many seconds by the clock."""


def source(module: str, kernel: Kernel) -> Any:
    """The `ASTSource` of a kernel for `module`, tilewright or triton."""
    stem, _, name = kernel.place.partition(".")
    fn = getattr(dialect.load(stem, module), name)
    signature: dict[str, str] = dict.fromkeys(kernel.constants, "constexpr")
    constants, attrs = dict(kernel.constants), dict[tuple[int, ...], list[Any]]()
    given = [parameter for parameter in fn.arg_names if parameter not in constants]
    for parameter, text in zip(given, kernel.types.split(), strict=True):
        type, colon, _ = text.partition(":")
        signature[parameter] = type
        if type == "1":  # as a launch takes a stride of 1
            signature[parameter], constants[parameter] = "constexpr", 1
        if colon:
            attrs[fn.arg_names.index(parameter),] = [["tt.divisibility", 16]]
    ordered = {parameter: signature[parameter] for parameter in fn.arg_names}
    return importlib.import_module(module).compiler.ASTSource(fn, ordered, constants, attrs)


def compiled(module: str, kernel: Kernel) -> Any:
    """The kernel compiled for sm_90 by `module`."""
    target = importlib.import_module(f"{module}.backends.compiler").GPUTarget(*TARGET)
    compile = importlib.import_module(module).compile
    return compile(source(module, kernel), target=target, options=kernel.options)


def _processor_time() -> float:
    """Seconds of processor time of this process and of its children that have ended."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _times(
    module: str, kernels: dict[str, Kernel], clock: Callable[[], float]
) -> Iterator[tuple[str, float | str]]:
    """Milliseconds of each kernel, or why it could not be compiled."""
    for name, kernel in {"": WARM_UP, **kernels}.items():
        start = clock()
        try:
            size = len(compiled(module, kernel).asm["cubin"])
            yield name, (clock() - start) * 1e3 if size else "the cubin is empty"
        except Exception as error:
            yield name, why(error)


def in_a_process(module: str) -> dict[str, float | str]:
    """Milliseconds of each kernel in a process of its own, or why it could not be compiled."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            f"{prefix}_{name}": value
            for prefix in ("TILEWRIGHT", "TRITON")
            for name, value in (("CACHE_DIR", folder), ("ALWAYS_COMPILE", "1"))
        }
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM, module],
            cwd=ROOT, env=child_environment(**settings), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    if done.returncode:
        return dict.fromkeys(KERNELS, done.stderr.strip()[-500:] or f"exit {done.returncode}")
    return json.loads(done.stdout)


def main() -> None:
    module = sys.argv[1]
    # Output of a compiler must not be parsed as a result.
    with redirect_stdout(sys.stderr):
        importlib.import_module(module)
        large = "large" in sys.argv
        clock = _processor_time if large else perf_counter
        times = dict(_times(module, LARGE if large else KERNELS, clock))
    print(json.dumps(times))


if __name__ == "__main__":
    main()
