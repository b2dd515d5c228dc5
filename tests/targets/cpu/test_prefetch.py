"""Prefetches: of the next program's rows and of a program's own results.

The prefetch instructions are replaced by calls of a Python function that records them.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.arrays import aligned
from tests.targets.cpu.harness import assert_same, host, run_text_on
from tests.targets.cpu.test_kernels import module_of
from tilewright.targets.cpu.codegen import generate

CALL = re.compile(r"call void @llvm\.prefetch\.p0\(([^)]*)\)")
REQUEST = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int)


def requests(fn: Any, programs: int, args: list[Any], **constexprs: Any) -> list[tuple[int, int]]:
    """(address, whether it is for writing) of all requests of a launch, in order."""
    module = module_of(fn, args, **constexprs)
    seen: list[tuple[int, int]] = []

    def request(address: int, write: int, locality: int, data: int) -> None:
        seen.append((address, write))

    called = REQUEST(request)
    function = ctypes.cast(called, ctypes.c_void_p).value
    text, scratch = generate(module, host(), fp_fusion=False)
    lines = [line for line in text.splitlines() if "declare void @llvm.prefetch" not in line]
    text = CALL.sub(rf"call void inttoptr (i64 {function} to ptr)(\1)", "\n".join(lines))
    run_text_on(args, text, module.entry.name, scratch, (programs, 1, 1), machine=host())
    return seen


def floats(*shape: int) -> Any:
    """Ones that begin with a cache line."""
    return aligned(np.ones(shape, np.float32))


def lines_of(array: np.ndarray) -> set[int]:
    """The cache lines that hold an array's elements."""
    first = array.ctypes.data
    return {a // 64 for a in range(first, first + array.nbytes)}


@tw.jit
def normalise(x, o, stride, columns, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, B)
    inside = i < columns
    v = tl.load(x + row * stride + i, mask=inside, other=0.0)
    total = tl.sum(tl.exp(v - tl.max(v, axis=0)), axis=0)
    tl.store(o + row * columns + i, v / total, mask=inside)


@pytest.mark.parametrize("columns", [512, 500, 1024])
def test_next_row_and_the_result_are_prefetched(columns: int) -> None:
    block = tw.next_power_of_2(columns)
    x, o = floats(5, block + 32), floats(4, columns)
    sizes = [np.int32(block + 32), np.int32(columns)]
    seen = requests(normalise, 4, [x, o, *sizes], B=block)
    reads = {a // 64 for a, write in seen if not write}
    writes = {a // 64 for a, write in seen if write}
    expected = set.union(*(lines_of(row[:columns]) for row in x[1:]))
    assert expected <= reads
    assert len(reads) <= len(expected) * 1.2 + 8  # masked-off addresses may be prefetched
    assert lines_of(o) <= writes


@tw.jit
def rows(x, o, B: tl.constexpr, C: tl.constexpr):
    p = tl.program_id(0) * B * C + tl.arange(0, B)[:, None] * C + tl.arange(0, C)[None, :]
    v = tl.load(x + p)
    s = tl.sum(v * v, axis=1)
    t = tl.sum(tl.exp(v) * s[:, None], axis=1)
    tl.store(o + p, v * t[:, None])


def test_several_rows_of_a_program() -> None:
    x, o = floats(3, 4, 256), floats(2, 4, 256)
    seen = requests(rows, 2, [x, o], B=4, C=256)
    assert {a // 64 for a, write in seen if not write} == lines_of(x[1:])
    assert {a // 64 for a, write in seen if write} == lines_of(o)


@tw.jit
def twice(x, o, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.exp(tl.load(x + i)))


@tw.jit
def by_table(x, table, o, B: tl.constexpr):
    start = tl.load(table + tl.program_id(0))
    i = tl.arange(0, B)
    v = tl.load(x + start + i)
    tl.store(o + start + i, v / tl.sum(tl.exp(v - tl.max(v, axis=0)), axis=0))


def test_a_single_pass_prefetches_nothing() -> None:
    x, o = floats(2048), floats(2048)
    assert not requests(twice, 2, [x, o], B=1024)


def test_rows_from_a_table_are_not_prefetched() -> None:
    """Where the next program reads is not known, but what this one writes is."""
    x, o = floats(2048), floats(2048)
    table = np.array([1024, 0], np.int32)
    seen = requests(by_table, 2, [x, table, o], B=1024)
    assert {write for _, write in seen} == {1}
    assert {a // 64 for a, _ in seen} == lines_of(o)


def test_short_rows_are_not_prefetched() -> None:
    x, o = floats(4, 128), floats(4, 128)
    assert not requests(normalise, 4, [x, o, np.int32(128), np.int32(128)], B=128)


@tw.jit
def store_after_a_loop(x, n, B: tl.constexpr):
    """What it stores through last is known only after the loop."""
    p = x + tl.arange(0, B)
    v = tl.load(p)
    v -= tl.max(v, axis=0)
    total = tl.sum(v, axis=0)
    tl.store(p, v + total)
    for k in range(n):
        p += B + k
    tl.store(p, v * total)


@tw.jit
def _stored(x, B: tl.constexpr):
    """A row updated in place: where it is, what it was, and a sum of it."""
    p = x + tl.arange(0, B)
    v = tl.load(p)
    total = tl.sum(v - tl.max(v, axis=0), axis=0)
    tl.store(p, v + total)
    return p, v, total


@tw.jit
def store_after_a_while(x, n, B: tl.constexpr):
    p, v, total = _stored(x, B)
    at = 0
    while at < n * B:
        at += B + 1
    tl.store(p + at, v * total)


@tw.jit
def store_after_a_branch(x, n, B: tl.constexpr):
    p, v, total = _stored(x, B)
    at = B
    if n > 2:
        tl.store(x + 4 * B, total)
        at = 2 * B
    tl.store(p + at, v * total)


@tw.jit
def store_where_it_loads(x, n, B: tl.constexpr):
    """The address is loaded from memory that the kernel writes in between."""
    p, v, total = _stored(x, B)
    tl.store(x + 5 * B, 3.0)
    at = tl.load(x + 5 * B).to(tl.int32) * B
    tl.store(p + at, v * total)


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize(
    "kernel",
    [store_after_a_loop, store_after_a_while, store_after_a_branch, store_where_it_loads],
    ids=lambda k: k.__name__,
)
def test_only_computable_addresses_are_prefetched(kernel: Any, n: int) -> None:
    x = (np.arange(6 * 1024) % 7).astype(np.float32)
    assert_same(module_of(kernel, [x, n], B=1024), (1, 1, 1), [x, np.int32(n)])
