"""The arguments that a kernel's loads and stores may go through."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright.language as tl
from tilewright.analysis.accessed_arguments import argument_accesses
from tilewright.compiler.source import ASTSource
from tilewright.frontend.options import FrontendOptions
from tilewright.runtime.jit import jit

SIGNATURE = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}


def copies(x, y, out, n):
    i = tl.arange(0, 4)
    tl.store(out + i, tl.load(x + i))


def adds(x, y, out, n):
    tl.atomic_add(out, tl.load(y))


def selects(x, y, out, n):
    source = x if n > 4 else y
    tl.store(tl.where(n > 2, out, x), tl.load(source))


def advances(x, y, out, n):
    for _ in range(n):
        tl.store(out, tl.load(x))
        x += 4
        out += 8
    while tl.load(y) > 0:
        y += 1


def exchanges(x, y, out, n):
    for _ in range(n):
        x, out = out, x
    tl.store(x, tl.load(y))


@jit(noinline=True)
def store_twice(to, value, i):
    tl.store(to + i, value)
    tl.store(to - i, value)
    return to + 1


def calls(x, y, out, n):
    after = store_twice(out, tl.load(x), n)
    tl.store(store_twice(after, tl.load(y), n), 2.0)


def finds_addresses_by_index(x, y, out, n):
    tl.store(out + tl.load(x).to(tl.int32), 1.0)


def casts(x, y, out, n):
    address = out.to(tl.int64) + 16
    tl.store(address.to(tl.pointer_type(tl.float32)), 1.0)


def loads_the_address(x, y, out, n):
    address = tl.load(x.to(tl.pointer_type(tl.int64)))
    tl.store(address.to(tl.pointer_type(tl.float32)), 1.0)


def takes_the_address(x, y, out, n):
    tl.store(n.to(tl.int64).to(tl.pointer_type(tl.float32)), 1.0)


def asserts(x, y, out, n):
    tl.device_assert(n > 0)
    tl.debug_barrier()
    tl.device_print("n", n)


X, Y, OUT = 0, 1, 2
CASES: dict[Any, tuple[list[set[int]], list[set[int]]]] = {
    copies: ([{X}], [{OUT}]),
    adds: ([{Y}, {OUT}], [{OUT}]),
    selects: ([{X, Y}], [{X, OUT}]),
    advances: ([{X}, {Y}], [{OUT}]),
    exchanges: ([{Y}], [{X, OUT}]),
    calls: ([{X}, {Y}], [{OUT}, {OUT}, {OUT}]),
    finds_addresses_by_index: ([{X}], [{OUT}]),
    casts: ([], [{OUT}]),
    loads_the_address: ([{X}], [{X, Y, OUT}]),
    takes_the_address: ([], [{X, Y, OUT}]),
    asserts: ([], []),
}


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
def test_accesses(kernel: Any) -> None:
    source = ASTSource(jit(kernel), SIGNATURE)
    found = argument_accesses(source.module(FrontendOptions(debug=True)))
    reads, writes = CASES[kernel]
    assert sorted(map(sorted, found.reads)) == sorted(map(sorted, reads))
    assert sorted(map(sorted, found.writes)) == sorted(map(sorted, writes))
    assert found.written == sorted(set().union(*writes))
