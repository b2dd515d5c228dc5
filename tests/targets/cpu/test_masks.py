"""Loops under masks that end where vectors do need no code for vectors that are cut; what was
loaded under a mask stays what it was."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.cpu.harness import assert_same, both, host, places_ir
from tilewright.ir.parser import parse_module
from tilewright.targets.cpu.codegen import generate

ROWS, COLUMNS = 4, 96


def kernel(divisibility: int, rows: bool) -> str:
    """Columns below n, and rows below m where `rows` says so, divided by their row's sum; what is
    outside counts as 1."""
    size = f"{ROWS}x{COLUMNS}"
    other = "%rows" if rows else "%columns"
    return f"""
func @divide(%x: ptr<fp32>, %o: ptr<fp32>, %n: i32 {{divisibility={divisibility}}}, %m: i32) {{
{places_ir(ROWS, COLUMNS)}
  %ns = tile.splat %n, shape=({ROWS}, {COLUMNS}) : i32 -> {size}xi32
  %columns = arith.cmp %column, %ns, predicate="lt" : ({size}xi32, {size}xi32) -> {size}xi1
  %ms = tile.splat %m, shape=({ROWS}, 1) : i32 -> {ROWS}x1xi32
  %few = arith.cmp %r1, %ms, predicate="lt" : ({ROWS}x1xi32, {ROWS}x1xi32) -> {ROWS}x1xi1
  %rows = tile.broadcast %few, shape=({ROWS}, {COLUMNS}) : {ROWS}x1xi1 -> {size}xi1
  %mask = arith.and %columns, {other} : ({size}xi1, {size}xi1) -> {size}xi1
  %xs = tile.splat %x, shape=({ROWS}, {COLUMNS}) : ptr<fp32> -> {size}xptr<fp32>
  %from = mem.addptr %xs, %offset : ({size}xptr<fp32>, {size}xi32) -> {size}xptr<fp32>
  %one = arith.constant value=1.0, type={size}xfp32 : () -> {size}xfp32
  %v = mem.load %from, %mask, %one, cache="", evict="", volatile=False : (\
{size}xptr<fp32>, {size}xi1, {size}xfp32) -> {size}xfp32
  %s = tile.reduce [%v], axis=1 : {size}xfp32 -> {ROWS}xfp32 {{
    (%a: fp32, %b: fp32)
    %t = arith.add %a, %b : (fp32, fp32) -> fp32
    control.yield [%t] : fp32 -> ()
  }}
  %s1 = tile.expand_dims %s, axis=1 : {ROWS}xfp32 -> {ROWS}x1xfp32
  %sum = tile.broadcast %s1, shape=({ROWS}, {COLUMNS}) : {ROWS}x1xfp32 -> {size}xfp32
  %q = arith.sub %v, %sum : ({size}xfp32, {size}xfp32) -> {size}xfp32
  %os = tile.splat %o, shape=({ROWS}, {COLUMNS}) : ptr<fp32> -> {size}xptr<fp32>
  %to = mem.addptr %os, %offset : ({size}xptr<fp32>, {size}xi32) -> {size}xptr<fp32>
  mem.store %to, %q, %mask, cache="", evict="" : (\
{size}xptr<fp32>, {size}xfp32, {size}xi1) -> ()
  control.return [] : () -> ()
}}
"""


TWO_BOUNDS = """
func @two_bounds(%x: ptr<fp32>, %o: ptr<fp32>, %n: i32 {divisibility=16}, \
%m: i32 {divisibility=16}) {
  %i = tile.arange start=0, end=96 : () -> 96xi32
  %ns = tile.splat %n, shape=(96,) : i32 -> 96xi32
  %ms = tile.splat %m, shape=(96,) : i32 -> 96xi32
  %below_n = arith.cmp %i, %ns, predicate="lt" : (96xi32, 96xi32) -> 96xi1
  %below_m = arith.cmp %i, %ms, predicate="lt" : (96xi32, 96xi32) -> 96xi1
  %mask = arith.and %below_n, %below_m : (96xi1, 96xi1) -> 96xi1
  %xs = tile.splat %x, shape=(96,) : ptr<fp32> -> 96xptr<fp32>
  %from = mem.addptr %xs, %i : (96xptr<fp32>, 96xi32) -> 96xptr<fp32>
  %one = arith.constant value=1.0, type=96xfp32 : () -> 96xfp32
  %v = mem.load %from, %below_n, %one, cache="", evict="", volatile=False : (\
96xptr<fp32>, 96xi1, 96xfp32) -> 96xfp32
  %os = tile.splat %o, shape=(96,) : ptr<fp32> -> 96xptr<fp32>
  %to = mem.addptr %os, %i : (96xptr<fp32>, 96xi32) -> 96xptr<fp32>
  mem.store %to, %v, %MASK, cache="", evict="" : (96xptr<fp32>, 96xfp32, 96xi1) -> ()
  control.return [] : () -> ()
}
"""


def masked_accesses(text: str) -> int:
    code, _ = generate(parse_module(text), host())
    return sum("call" in line and "llvm.masked." in line for line in code.splitlines())


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("n", [-16, 0, 16, 48, 80, 96, 112])
def test_mask_that_ends_with_a_vector(n: int, rows: bool) -> None:
    x = np.random.default_rng(n + 16).integers(-9, 9, (ROWS, COLUMNS)).astype(np.float32)
    for divisibility in (16, 1):
        text = kernel(divisibility, rows)
        for m in (0, 3, ROWS):
            args = [x, np.zeros_like(x), np.int32(n), np.int32(m)]
            assert_same(text, (1, 1, 1), args)


@pytest.mark.parametrize("mask", ["mask", "below_m"])
@pytest.mark.parametrize(("n", "m"), [(0, 96), (32, 64), (64, 32), (96, 16), (48, 48)])
def test_masks_that_end_at_different_vectors(n: int, m: int, mask: str) -> None:
    x = np.arange(96, dtype=np.float32)
    args = [x, -np.ones_like(x), np.int32(n), np.int32(m)]
    assert_same(TWO_BOUNDS.replace("MASK", mask), (1, 1, 1), args)


def test_no_code_for_truncated_vectors() -> None:
    lanes = host().vector_bytes // 4
    assert masked_accesses(kernel(1, rows=False))
    assert not masked_accesses(kernel(lanes, rows=False))
    assert not masked_accesses(kernel(lanes, rows=True))


def test_fewer_known_lanes_than_a_vector_has() -> None:
    """A bound of which too little is known may cut a vector."""
    x = np.ones((ROWS, COLUMNS), np.float32)
    ours, theirs = both(kernel(4, rows=False), (1, 1, 1), [x, 0 * x, np.int32(20), np.int32(0)])
    assert np.array_equal(ours[1], theirs[1])
    assert masked_accesses(kernel(2, rows=False))


EXCHANGE = """
func @exchange(%x: ptr<fp32>, %o: ptr<fp32>) {
  %i = tile.arange start=0, end=8 : () -> 8xi32
  %xs = tile.splat %x, shape=(8,) : ptr<fp32> -> 8xptr<fp32>
  %os = tile.splat %o, shape=(8,) : ptr<fp32> -> 8xptr<fp32>
  %from = mem.addptr %xs, %i : (8xptr<fp32>, 8xi32) -> 8xptr<fp32>
  %to = mem.addptr %os, %i : (8xptr<fp32>, 8xi32) -> 8xptr<fp32>
  %new = mem.load %to, _, _, cache="", evict="", volatile=False : 8xptr<fp32> -> 8xfp32
  %zero = arith.constant value=0.0, type=8xfp32 : () -> 8xfp32
  %mask = arith.cmp %new, %zero, predicate="gt" : (8xfp32, 8xfp32) -> 8xi1
  %old = mem.load %from, %mask, %zero, cache="", evict="", volatile=False : (\
8xptr<fp32>, 8xi1, 8xfp32) -> 8xfp32
  mem.store %from, %new, %mask, cache="", evict="" : (8xptr<fp32>, 8xfp32, 8xi1) -> ()
  %kept = arith.select %mask, %old, %new : (8xi1, 8xfp32, 8xfp32) -> 8xfp32
  mem.store %to, %kept, _, cache="", evict="" : (8xptr<fp32>, 8xfp32) -> ()
  control.return [] : () -> ()
}
"""


def test_masked_loads_precede_later_stores() -> None:
    """LLVM 22 makes one load of load and selection, behind the store."""
    x, y = np.arange(8, dtype=np.float32), np.array([1, -1, 2, -2, 3, -3, 4, -4], np.float32)
    assert_same(parse_module(EXCHANGE), (1, 1, 1), [x, y])
