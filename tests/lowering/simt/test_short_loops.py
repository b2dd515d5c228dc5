"""Loops that assemblers unroll end by comparing the index with that after the last iteration."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu_machine import gpu_machine
from tests.lowering.simt.emulator import Emulated, EmulatedHardware
from tests.lowering.simt.harness import laid_out
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PassContext

TEXT = """
func @count(%out: ptr<{type}>, %start: {type}, %stop: {type}) {{
  %zero = arith.constant value=0, type={type} : () -> {type}
  %one = arith.constant value=1, type={type} : () -> {type}
  %step = arith.constant value={step}, type={type} : () -> {type}
  %count, %sum = control.for %start, %stop, %step, [%zero, %zero], num_stages=0, unroll=0, hints=()
    : ({type}, {type}, {type}, {type}, {type}) -> ({type}, {type}) {{
    (%i: {type}, %n: {type}, %s: {type})
    %m = arith.add %n, %one : ({type}, {type}) -> {type}
    %t = arith.add %s, %i : ({type}, {type}) -> {type}
    control.yield [%m, %t] : ({type}, {type}) -> ()
  }}
  %at = mem.addptr %out, %one : (ptr<{type}>, {type}) -> ptr<{type}>
  mem.store %out, %count, _, cache="", evict="" : (ptr<{type}>, {type}) -> ()
  mem.store %at, %sum, _, cache="", evict="" : (ptr<{type}>, {type}) -> ()
  control.return [] : () -> ()
}}
"""

RANGES = [(0, 0), (0, 1), (0, 64), (0, 65), (5, 100), (7, 3)]
HIGH = (1 << 31) - 1
ENDS = [(HIGH - 100, HIGH), (HIGH - 64, HIGH - 1), (~HIGH, ~HIGH + 90)]


@pytest.mark.parametrize("step", [1, 16, 64, 24])
@pytest.mark.parametrize(
    ("type", "ranges"),
    [
        (
            "i32",
            [*RANGES, (-70, 3), *ENDS],
        ),
        ("u32", [*RANGES, (HIGH - 30, HIGH + 90), (2 * HIGH - 99, 2 * HIGH + 1)]),
        ("i64", [*RANGES, (-70, 3), (2**63 - 100, 2**63 - 1)]),
    ],
)
def test_iterations(type: str, ranges: list[tuple[int, int]], step: int) -> None:
    ctx = PassContext(machine=gpu_machine(lanes=4, warps=1, unrolled_work=8))
    module = laid_out(parse_module(TEXT.format(type=type, step=step)), lanes=4, warps=1)
    code = Emulated(module, EmulatedHardware(4), 1, ctx)
    number = np.dtype({"i32": np.int32, "u32": np.uint32, "i64": np.int64}[type])
    for start, stop in ranges:
        out = np.zeros(2, number)
        code.launch((1, 1, 1), [out, start, stop])
        expected = range(start, stop, step)
        with np.errstate(over="ignore"):
            total = sum(np.array(list(expected), number), number.type(0))
        assert out.tolist() == [len(expected), total]
