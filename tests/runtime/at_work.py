"""A process that compiles and tunes, for tests that kill it.

    python -m tests.runtime.at_work nursery         forks a child for each line, "compile 7" or
                                                    "tune 7", and answers with its number
    python -m tests.runtime.at_work check 0 40      does the first 40 things of both kinds and says
                                                    how many were compiled or measured

Forking spares each child the import, so that it can be killed in the midst of its work.
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
    """Launch a kernel that no other number needs, and look at what it did."""
    x, out = np.arange(SIZE, dtype=np.float32), np.zeros(SIZE, np.float32)
    scale[(1,)](x, out, FACTOR=number, BLOCK=SIZE)
    assert (out == number * x).all(), number


def tune(number: int) -> None:
    """The same for a tuned one."""
    x = np.zeros(SIZE, np.float32)
    increment[lambda meta: (SIZE // meta["BLOCK"],)](x, SIZE, FACTOR=number)
    assert (x == number).all(), number


KINDS = {"compile": compile, "tune": tune}


def listen() -> None:
    """Note what is compiled or measured from now on."""

    def compiled(*, cache_hit: bool, **told: object) -> None:
        if not cache_hit:
            made.append("compiled")

    def tuned(*, cache_hit: bool, **told: object) -> None:
        if not cache_hit:
            made.append("measured")

    knobs.compilation.listener = compiled
    knobs.autotuning.listener = tuned


def nursery(lines: Iterable[str]) -> None:
    for module in ("targets.cpu.target", "compiler.workers", "runtime.launchers.cpu"):
        importlib.import_module(f"tilewright.{module}")
    for line in lines:
        kind, number = line.split()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                # Two processes that compile for the one that tunes.
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
    if sys.argv[1] == "nursery":
        nursery(sys.stdin)
    else:
        check(int(sys.argv[2]), int(sys.argv[3]))
