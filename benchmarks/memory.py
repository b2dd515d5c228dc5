"""Checks for memory leaks over many launches and many compilations.

python -m benchmarks.memory                                     a million and a thousand
python -m benchmarks.memory --launches 20000 --compiles 50      fewer
python -m benchmarks.memory --device cuda                       on a GPU

For each way of launching, and for compiling kernels that are launched once and then dropped, it
prints the process's memory after a warm-up, after half of the work and at the end: resident pages,
blocks of Python's allocator, and used GPU memory (of all processes).
"""

from __future__ import annotations

import argparse
import gc
import linecache
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.base import knobs

WARM_LAUNCHES, WARM_COMPILES = 2000, 70
"""Compilations before the first measurement: an LLVM linker serves 64 kernels, and the first one
must have been replaced."""

_TEXT = """
def kernel(out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(out + i) * {factor} + 1, i < n)
"""


class Held(NamedTuple):
    """Memory in use: KiB of resident pages, blocks of Python's allocator, KiB of GPU memory."""

    kib: int
    blocks: int
    gpu_kib: int


class Growth(NamedTuple):
    """Memory in use before the work, halfway and after it."""

    before: Held
    halfway: Held
    after: Held

    @property
    def kib(self) -> int:
        return self.after.kib - self.before.kib

    @property
    def blocks(self) -> int:
        return self.after.blocks - self.before.blocks


Make = Callable[[], Any]
"""Creates an fp32 array of 64 zeros on the device."""


def numpy_zeros() -> Any:
    return np.zeros(64, np.float32)


def cuda_zeros() -> Any:
    import torch

    return torch.zeros(64, device="cuda")


def held() -> Held:
    """Memory in use by this process (Linux)."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    gpu = 0
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        gpu = (total - free) // 1024
    return Held(pages * os.sysconf("SC_PAGE_SIZE") // 1024, sys.getallocatedblocks(), gpu)


def new_kernel(number: int) -> Any:
    """A new kernel, different for each number."""
    text, name = _TEXT.format(factor=float(number)), f"<kernel {number % 64}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    scope: dict[str, Any] = {"tl": tl}
    exec(compile(text, name, "exec"), scope)
    return tw.jit(scope["kernel"])


def compile_one(number: int, make: Make = numpy_zeros) -> None:
    """Compile a kernel, launch it once, and drop it."""
    new_kernel(number)[(1,)](make(), 64, BLOCK=64)


def launches(make: Make = numpy_zeros) -> dict[str, Callable[[int], Any]]:
    """Ways of launching, by title."""
    out = make()
    kernel = new_kernel(1)
    configs = [tw.Config({"BLOCK": 64}), tw.Config({"BLOCK": 32})]
    tuned = tw.autotune(configs, key=["n"])(new_kernel(2))
    bound = kernel.bind(out, 64, BLOCK=64, grid=(1,))
    return {
        "a launch": lambda i: kernel[(1,)](out, 64, BLOCK=64),
        "with a grid function": lambda i: kernel[lambda meta: (1,)](out, 64, BLOCK=64),
        "of a fresh array each": lambda i: kernel[(1,)](make(), 64, BLOCK=64),
        "by Python": lambda i: kernel.run(out, 64, BLOCK=64, grid=(1,)),
        "of a tuned kernel": lambda i: tuned[(1,)](out, 64),
        "of bound arguments": lambda i: bound(),
    }


def growth(work: Callable[[int], Any], warm: int, count: int) -> Growth:
    """Memory growth over repeated work.

    Args:
        work: called with a different number each time.
        warm: calls before the first measurement.
        count: calls after it.
    """
    for number in range(warm):
        work(number)
    before = held()
    for number in range(warm, warm + count // 2):
        work(number)
    halfway = held()
    for number in range(warm + count // 2, warm + count):
        work(number)
    return Growth(before, halfway, held())


def _report(what: str, count: int, found: Growth) -> None:
    kib = " ".join(f"{each.kib:>8}" for each in found)
    blocks = " ".join(f"{each.blocks:>8}" for each in found)
    gpu = " ".join(f"{each.gpu_kib:>8}" for each in found)
    print(f"{count:>9,} {what:<24}{kib} KiB {blocks} blocks {gpu} KiB of GPU", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--launches", type=int, default=1_000_000)
    parser.add_argument("--compiles", type=int, default=1000)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default cpu")
    args = parser.parse_args()
    make = {"cpu": numpy_zeros, "cuda": cuda_zeros}[args.device]
    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope(), knobs.autotuning.scope():
        knobs.cache.dir = folder
        knobs.autotuning.workers = 0
        for what, work in launches(make).items():
            _report(what, args.launches, growth(work, WARM_LAUNCHES, args.launches))
        compiled = growth(lambda number: compile_one(number, make), WARM_COMPILES, args.compiles)
        _report("compilations", args.compiles, compiled)


if __name__ == "__main__":
    main()
