"""Barriers between loads by several threads and stores of the same elements by one thread.

On the emulated GPU, a thread runs as far as the next barrier before another one begins.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.lowering.simt.harness import assert_same, laid_out
from tilewright.ir.core import Module
from tilewright.lowering.simt.shared_memory import SharedMemory

SIGNATURE = {"w": "*i32", "out": "*i32", "n": "i32"}

# Programs whose accesses of `w` are ordered by elements: each is loaded and stored as the same one.
PROGRAMS = {
    "a scalar is loaded, then stored": """
        c = tl.load(w)
        tl.store(out + i, c + i)
        tl.store(w, c + 1)
        """,
    "a scalar is stored, then loaded": """
        tl.store(w, n)
        tl.store(out + i, tl.load(w) + i)
        """,
    "a scalar is loaded, then added to": """
        c = tl.load(w)
        tl.store(out + i, c + i)
        tl.atomic_add(w, 1)
        """,
    "a small tile is loaded, then stored": """
        j = tl.arange(0, 16)
        c = tl.load(w + j)
        tl.store(out + j[:, None] * 64 + tl.arange(0, 64)[None, :], c[:, None])
        tl.store(w + j, c + 1)
        """,
    "a small tile is stored, then loaded": """
        j = tl.arange(0, 16)
        tl.store(w + j, j * n)
        c = tl.load(w + j)
        tl.store(out + j[:, None] * 64 + tl.arange(0, 64)[None, :], c[:, None])
        """,
    "iterations of a loop": """
        for k in range(n):
            c = tl.load(w)
            tl.store(out + k * 128 + i, c + i)
            tl.store(w, c * 3)
        """,
    "a pointer that a loop carries": """
        for k in range(n):
            c = tl.load(w)
            tl.store(out + k * 128 + i, c + i)
            tl.store(w, c * 3)
            w += 1
        """,
    "a branch": """
        c = tl.load(w)
        if n > 3:
            tl.store(w, c + 1)
        tl.store(out + i, c + i)
        """,
}


def program(text: str, *, apart: bool = False) -> Module:
    lines = text.strip("\n").replace("\n        ", "\n            ").strip()
    module = build(
        kernel_from(f"""
        def kernel(w, out, n):
            i = tl.arange(0, 128)
            {lines}
    """),
        SIGNATURE,
    )
    if apart:
        for number, attrs in enumerate(module.entry.arg_attrs[:2]):
            attrs["alias"] = number
    return module


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("apart", [True, False])
def test_elements_that_several_threads_hold(name: str, apart: bool) -> None:
    args = [np.arange(5, 21, dtype=np.int32), np.zeros(1024, np.int32), 5]
    module = program(PROGRAMS[name], apart=apart)
    for warps in (1, 4):
        assert_same(module, (1, 1, 1), args, warps=warps, lanes=8)


def barriers(text: str, *, apart: bool = True) -> int:
    ready = laid_out(program(text, apart=apart), warps=4, lanes=8)
    return len(SharedMemory(ready.entry).barriers)


@pytest.mark.parametrize(
    ("text", "apart", "expected"),
    [
        ("tl.store(out + i, tl.load(w) + i)", True, 0),
        ("tl.store(out + i, tl.load(w) + i)", False, 1),
        ("x = tl.load(w + i)\n        tl.store(w + i, x + 1)", True, 0),
        ("c = tl.load(w)\n        tl.store(w, c + 1)\n        tl.store(w + 1, c)", True, 1),
    ],
    ids=["of another array", "perhaps of the same array", "of one thread", "two stores"],
)
def test_barriers_are_only_where_threads_would_race(text: str, apart: bool, expected: int) -> None:
    assert barriers(text, apart=apart) == expected
