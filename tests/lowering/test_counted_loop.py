"""Counted loops whose bounds or steps are near the ends of their types, on every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.lowering.simt.harness import run_emulated
from tests.targets.cpu.harness import run_compiled
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.passes import PassContext, run

CASES = [
    ("u32", 0, 2**32 - 1, 3 * 2**30),
    ("u32", 2**31 - 2, 2**31 + 9, 4),
    ("u32", 2**32 - 9, 2**32 - 1, 5),
    ("u64", 0, 2**64 - 1, 2**63),
    ("u64", 5, 2**64 - 1, 2**62 + 1),
    ("i64", -(2**63), 2**63 - 1, 2**62),
    ("i64", 2**63 - 5, 2**63 - 1, 3),
    ("i32", -(2**31), 2**31 - 1, 2**30),
    ("i32", -2, 1, 1),
    ("u8", 200, 255, 100),
]


def _sums(kind: str, bounds: str, arguments: str = "") -> Module:
    """A kernel that writes how many indices there are, and a checksum of them."""
    kernel = kernel_from(f"""
        def kernel(out{arguments}):
            count = tl.full((), 0, tl.uint64)
            total = tl.full((), 0, tl.uint64)
            for i in range({bounds}):
                count += 1
                total = total * 3 + i.to(tl.uint64)
            tl.store(out, count)
            tl.store(out + 1, total)
    """)
    types = {"out": "*u64"} | {name: kind for name in ("a", "b", "s") if arguments}
    return build(kernel, types)


def _expected(indices: range) -> list[int]:
    total = 0
    for i in indices:
        total = (total * 3 + i) % 2**64
    return [len(list(indices)), total]


@pytest.mark.parametrize("known", [True, False], ids=["known", "arguments"])
@pytest.mark.parametrize(("kind", "start", "stop", "step"), CASES)
def test_loop_runs_over_its_range(kind: str, start: int, stop: int, step: int, known: bool) -> None:
    args: list[Any] = [np.zeros(2, np.uint64)]
    if known:
        name = ("tl.uint" if kind[0] == "u" else "tl.int") + kind[1:]
        bounds = ", ".join(f"tl.full((), {n}, {name})" for n in (start, stop, step))
        module = _sums(kind, bounds)
    else:
        module = _sums(kind, "a, b, s", ", a, b, s")
        dtype = np.dtype({"u": "uint", "i": "int"}[kind[0]] + kind[1:])
        args += [np.array(n, dtype)[()] for n in (start, stop, step)]
    lowered = module.clone()
    run(lowered, STEPS, PassContext())
    expected = _expected(range(start, stop, step))
    for launch in (
        lambda a: interpret(module, (1,), a),
        lambda a: run_compiled(lowered.clone(), (1, 1, 1), a),
        lambda a: run_emulated(module, (1, 1, 1), a, warps=1, lanes=4),
    ):
        args[0][:] = 0
        launch(args)
        assert args[0].tolist() == expected


def test_loop_over_all_numbers_of_a_type_compiles() -> None:
    low, high = (f"tl.full((), {n}, tl.int64)" for n in (-(2**63), 2**63 - 1))
    run(_sums("i64", f"{low}, {high}"), STEPS, PassContext())
