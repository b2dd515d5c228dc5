"""The largest and the smallest float: NaN only where there is nothing else."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.covering import covering
from tests.targets.cpu.harness import PLAIN_AVX2, assert_same, host, places_ir
from tilewright.base.record import replace
from tilewright.targets.cpu import avx512
from tilewright.targets.cpu.machine import Machine

NARROW = {"fp32": np.float32, "fp64": np.float64, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
SIGNALING = {
    "fp32": 0x7F800001, "fp64": 0x7FF0000000000001, "fp16": 0x7C01, "bf16": 0x7F81,
}  # fmt: skip
ROWS = 24


def _machines() -> dict[str, Machine]:
    found = {"host": host()}
    if avx512.has_extremum(host()):  # as it would be without the instruction for it
        features = host().features - {"avx512dq"}
        without = frozenset({"avx512dq"})
        found["AVX-512"] = replace(host(), features=features, without=without)
    if "avx2" in host().features:
        found["AVX2"] = host(PLAIN_AVX2)
    return found


MACHINES = _machines()


def hard_rows(element: str, length: int) -> np.ndarray:
    """Rows of numbers, infinities and NaN in all mixtures; the first are of one kind."""
    rng = np.random.default_rng(length)
    numbers = rng.standard_normal((ROWS, length)).astype(NARROW[element])
    unsigned = numbers.view(f"u{numbers.itemsize}")
    for value, chance in ((np.inf, 0.2), (-np.inf, 0.4), (np.nan, 0.4)):
        often = rng.random((ROWS, 1)) < 0.6
        numbers[(rng.random((ROWS, length)) < chance) & often] = value
    often = rng.random((ROWS, 1)) < 0.6
    unsigned[(rng.random((ROWS, length)) < 0.3) & often] = SIGNALING[element]
    for row, value in enumerate((np.nan, -np.inf, np.inf)):
        numbers[row] = value
    unsigned[3] = SIGNALING[element]
    numbers[4] = np.where(np.arange(length) == length // 2, -np.inf, np.nan)
    numbers[5] = np.where(np.arange(length) == length - 1, np.inf, np.nan)
    return numbers


LOAD = """mem.load %from, %inside, %nan, cache="", evict="", volatile=False : (\
{size}xptr<{element}>, {size}xi1, {size}x{element}) -> {size}x{element}"""


def module(element: str, length: int, axis: int, op: str) -> str:
    """Extrema of the rows, or with axis 0 of the columns, of a matrix of which `n` columns count;
    what lies behind them is NaN."""
    count = (ROWS, length)[1 - axis]
    stored = f"{count}x{element}"
    size = f"{ROWS}x{length}"
    return f"""
func @extrema(%x: ptr<{element}>, %o: ptr<{element}>, %n: i32) {{
{places_ir(ROWS, length)}
  %limit = tile.splat %n, shape=({ROWS}, {length}) : i32 -> {size}xi32
  %inside = arith.cmp %column, %limit, predicate="lt" : ({size}xi32, {size}xi32) -> {size}xi1
  %base = tile.splat %x, shape=({ROWS}, {length}) : ptr<{element}> -> {size}xptr<{element}>
  %from = mem.addptr %base, %offset : ({size}xptr<{element}>, {size}xi32) -> {size}xptr<{element}>
  %nan = arith.constant value=nan, type={size}x{element} : () -> {size}x{element}
  %v = {LOAD.format(size=size, element=element)}
  %m = tile.reduce [%v], axis={axis} : {size}x{element} -> {stored} {{
    (%a: {element}, %b: {element})
    %c = arith.{op} %a, %b, propagate_nan=False : ({element}, {element}) -> {element}
    control.yield [%c] : {element} -> ()
  }}
  %place = tile.arange start=0, end={count} : () -> {count}xi32
  %out = tile.splat %o, shape=({count},) : ptr<{element}> -> {count}xptr<{element}>
  %to = mem.addptr %out, %place : ({count}xptr<{element}>, {count}xi32) -> {count}xptr<{element}>
  mem.store %to, %m, _, cache="", evict="" : ({count}xptr<{element}>, {stored}) -> ()
  control.return [] : () -> ()
}}
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("element", "length", "machine", "axis", "op"),
    covering(NARROW, [1, 2, 5, 16, 100], MACHINES, [1, 0], ["max", "min"], strength=3),
)
def test_extremum_is_nan_only_where_all_are(
    element: str, length: int, machine: str, axis: int, op: str
) -> None:
    x = hard_rows(element, length)
    text = module(element, length, axis, op)
    out = np.zeros((ROWS, length)[1 - axis], x.dtype)
    for n in {length, length * 2 // 3, 0}:
        assert_same(text, (1, 1, 1), [x, out, np.int32(n)], machine=MACHINES[machine])
