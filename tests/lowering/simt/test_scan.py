"""Prefixes of tiles whose lanes and warps do not follow the axis in order."""

import numpy as np
import pytest

from tests.lowering.simt.harness import assert_same
from tilewright.ir.parser import parse_module
from tilewright.ir.verify import verify_module

SCAN = """
func @kernel(%x: ptr<i32>, %o: ptr<i32>) {{
  %i = tile.arange start=0, end={n} : () -> {n}xi32
  %s = tile.splat %x, shape=({n},) : ptr<i32> -> {n}xptr<i32>
  %p = mem.addptr %s, %i : ({n}xptr<i32>, {n}xi32) -> {n}xptr<i32>
  %v = mem.load %p, _, _, cache="", evict="", volatile=False : {n}xptr<i32> -> {n}xi32
  %m = tile.reshape %v, shape=({r}, {c}) : {n}xi32 -> {r}x{c}xi32
  %t = tile.permute %m, order=(1, 0) : {r}x{c}xi32 -> {c}x{r}xi32
  %w = tile.reshape %t, shape=({n},) : {c}x{r}xi32 -> {n}xi32
  %y = tile.scan [%w], axis=0, reverse={reverse} : {n}xi32 -> {n}xi32 {{
    (%a: i32, %b: i32)
    %z = arith.add %a, %b : (i32, i32) -> i32
    control.yield [%z] : i32 -> ()
  }}
  %so = tile.splat %o, shape=({n},) : ptr<i32> -> {n}xptr<i32>
  %q = mem.addptr %so, %i : ({n}xptr<i32>, {n}xi32) -> {n}xptr<i32>
  mem.store %q, %y, _, cache="", evict="" : ({n}xptr<i32>, {n}xi32) -> ()
  control.return [] : () -> ()
}}
"""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (8, 2), (2, 16), (16, 32)])
@pytest.mark.parametrize("warps", [1, 4])
def test_scan_of_a_permuted_tile(rows: int, columns: int, warps: int, reverse: bool) -> None:
    n = rows * columns
    module = parse_module(SCAN.format(n=n, r=rows, c=columns, reverse=reverse))
    verify_module(module)
    x = np.random.default_rng(0).integers(-99, 99, n).astype(np.int32)
    assert_same(module, (1, 1, 1), [x, np.zeros_like(x)], warps=warps, lanes=32)
