"""A process that compiles and autotunes, for tests that kill it.

    python -m tests.runtime.worker_process serve        forks a child for each input line, such as
                                                        "compile 7" or "tune 7"; prints its pid
    python -m tests.runtime.worker_process check 0 40   compiles and tunes kernels 0 to 39; prints
                                                        how many were not found in the cache

Forked children skip the import of the package, so that a kill lands while they compile.
"""

import importlib
import os
import sys
from collections.abc import Iterable

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright import knobs
from tilewright.runtime.autotuner import Config, autotune

SIZE = 64
made: list[str] = []


@tw.jit
def scale(x, out, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * FACTOR)


@autotune([Config({"BLOCK": 16}), Config({"BLOCK": 32})], ["n", "FACTOR"])
@tw.jit
def increment(x, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) + FACTOR, i < n)


def compile(number: int) -> None:
    """Launch a variant unique to this number and check its result."""
    x, out = np.arange(SIZE, dtype=np.float32), np.zeros(SIZE, np.float32)
    scale[(1,)](x, out, FACTOR=number, BLOCK=SIZE)
    assert (out == number * x).all(), number


def tune(number: int) -> None:
    """The same for an autotuned kernel."""
    x = np.zeros(SIZE, np.float32)
    increment[lambda meta: (SIZE // meta["BLOCK"],)](x, SIZE, FACTOR=number)
    assert (x == number).all(), number


KINDS = {"compile": compile, "tune": tune}


def listen() -> None:
    """Record compilations and measurements from now on."""

    def compiled(*, cache_hit: bool, **event: object) -> None:
        if not cache_hit:
            made.append("compiled")

    def tuned(*, cache_hit: bool, **event: object) -> None:
        if not cache_hit:
            made.append("measured")

    knobs.compilation.listener = compiled
    knobs.autotuning.listener = tuned


def serve(lines: Iterable[str]) -> None:
    for module in ("targets.cpu.target", "compiler.workers", "runtime.launchers.cpu"):
        importlib.import_module(f"tilewright.{module}")
    for line in lines:
        kind, number = line.split()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                # Autotuning compiles in two worker processes.
                knobs.autotuning.workers = 2
                for later in range(1000):
                    KINDS[kind](int(number) + later)
                status = 0
            finally:
                os._exit(status)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def check(first: int, last: int) -> None:
    listen()
    for number in range(first, last):
        for kind in KINDS.values():
            kind(number)
    print(len(made))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.stdin)
    else:
        check(int(sys.argv[2]), int(sys.argv[3]))
