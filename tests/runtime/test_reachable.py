"""Interpreted kernels that read addresses from memory, as products of groups of matrices do."""

from typing import Any

import numpy as np
import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.base import knobs
from tilewright.base.diagnostics import InterpreterError
from tilewright.runtime.jit import InterpretedFunction, jit
from tilewright.runtime.reachable import reachable_tensors

Matrix = np.ndarray[Any, np.dtype[np.float32]]


def grouped_product(a_table, b_table, c_table, sizes, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """c = a @ b of group `program_id(0)`, whose addresses and sizes M, N, K are in tables."""
    group = tl.program_id(0)
    a = tl.load(a_table + group).to(tl.pointer_type(tl.float32))
    b = tl.load(b_table + group).to(tl.pointer_type(tl.float32))
    c = tl.load(c_table + group).to(tl.pointer_type(tl.float32))
    m = tl.load(sizes + 3 * group)
    n = tl.load(sizes + 3 * group + 1)
    k = tl.load(sizes + 3 * group + 2)
    rows = tl.arange(0, BLOCK_M)[:, None]
    columns = tl.arange(0, BLOCK_N)[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for i in tl.range(k):
        left = tl.load(a + rows * k + i, rows < m, 0.0)
        sums += left * tl.load(b + i * n + columns, columns < n, 0.0)
    tl.store(c + rows * n + columns, sums, (rows < m) & (columns < n))


class Group:
    """Products of several sizes, of small integers, so that they are exact."""

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self.sizes = np.array([(3, 5, 2), (8, 8, 8), (1, 7, 4)], np.int32)

        def made(rows: int, columns: int) -> Matrix:
            return rng.integers(-8, 8, (rows, columns)).astype(np.float32)

        self.a = [made(m, k) for m, _, k in self.sizes.tolist()]
        self.b = [made(k, n) for _, n, k in self.sizes.tolist()]
        self.c = [np.zeros((m, n), np.float32) for m, n, _ in self.sizes.tolist()]

    def launch(self, kernel: Any) -> None:
        tables = [
            np.array([matrix.ctypes.data for matrix in matrices], np.int64)
            for matrices in (self.a, self.b, self.c)
        ]
        kernel[(len(self.sizes),)](*tables, self.sizes, BLOCK_M=8, BLOCK_N=8)

    def is_right(self) -> bool:
        return all((a @ b == c).all() for a, b, c in zip(self.a, self.b, self.c, strict=True))


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.mark.parametrize("make", [jit, InterpretedFunction])
def test_a_grouped_product(make: Any, group: Group) -> None:
    with tw.runtime.reachable(*group.a, *group.b, *group.c):
        group.launch(make(grouped_product))
    assert group.is_right()
    assert reachable_tensors() == []


def test_of_torch(group: Group) -> None:
    group.a, group.b, group.c = (
        [torch.from_numpy(matrix).numpy() for matrix in matrices]
        for matrices in (group.a, group.b, group.c)
    )
    tensors = [torch.from_numpy(matrix) for matrix in (*group.a, *group.b, *group.c)]
    with tw.runtime.reachable(*tensors):
        group.launch(InterpretedFunction(grouped_product))
    assert group.is_right()


def test_unregistered_memory_is_out_of_bounds(group: Group) -> None:
    kernel = InterpretedFunction(grouped_product)
    with pytest.raises(InterpreterError, match="out of bounds") as raised:
        group.launch(kernel)
    assert "`with tw.runtime.reachable(…)`" in raised.value.__notes__[0]
    with tw.runtime.reachable(*group.a, *group.b), pytest.raises(InterpreterError, match="bounds"):
        group.launch(kernel)
    assert not any(matrix.any() for matrix in group.c)
    with tw.runtime.reachable(*group.a, *group.b), tw.runtime.reachable(*group.c):
        group.launch(kernel)
    assert group.is_right()


def test_read_only_memory_is_not_written(group: Group) -> None:
    for matrix in group.c:
        matrix.flags.writeable = False
    kernel = InterpretedFunction(grouped_product)
    reachable = tw.runtime.reachable(*group.a, *group.b, *group.c)
    with reachable, pytest.raises(InterpreterError, match="read-only"):
        group.launch(kernel)


def test_any_address_is_trusted(group: Group) -> None:
    with knobs.runtime.scope():
        knobs.runtime.interpret_any_address = True
        group.launch(InterpretedFunction(grouped_product))
    assert group.is_right()
