"""The order of the axes of accesses whose strides are known at launch only."""

import pytest

from tilewright.analysis.axis_info import axis_info
from tilewright.ir.parser import parse_module

HEAD = """
func @f(%p: ptr<fp16> {divisibility=16}, %odd: i32, %even: i32 {divisibility=16}, %n: i32) {
  %a = tile.arange start=0, end=64 : () -> 64xi32
  %rows = tile.expand_dims %a, axis=1 : 64xi32 -> 64x1xi32
  %columns = tile.expand_dims %a, axis=0 : 64xi32 -> 1x64xi32
  %odds = tile.splat %odd, shape=(64, 1) : i32 -> 64x1xi32
  %evens = tile.splat %even, shape=(1, 64) : i32 -> 1x64xi32
  %fours = arith.constant value=4, type=1x64xi32 : () -> 1x64xi32
  %sixty = arith.constant value=60, type=1x64xi32 : () -> 1x64xi32
  %n1 = tile.splat %n, shape=(1, 64) : i32 -> 1x64xi32
  %n0 = tile.splat %n, shape=(64, 1) : i32 -> 64x1xi32
"""

TAIL = """
  %r = tile.broadcast %row, shape=(64, 64) : 64x1xi32 -> 64x64xi32
  %c = tile.broadcast %column, shape=(64, 64) : 1x64xi32 -> 64x64xi32
  %sum = arith.add %r, %c : (64x64xi32, 64x64xi32) -> 64x64xi32
  %ps = tile.splat %p, shape=(64, 64) : ptr<fp16> -> 64x64xptr<fp16>
  %at = mem.addptr %ps, %sum : (64x64xptr<fp16>, 64x64xi32) -> 64x64xptr<fp16>
  control.return [] : () -> ()
}
"""

ODD_ROWS = "  %row = arith.mul %rows, %odds : (64x1xi32, 64x1xi32) -> 64x1xi32\n"

IMAGE_ROWS = """
  %y = arith.idiv %rows, %n0 : (64x1xi32, 64x1xi32) -> 64x1xi32
  %x = arith.rem %rows, %n0 : (64x1xi32, 64x1xi32) -> 64x1xi32
  %line = arith.mul %y, %odds : (64x1xi32, 64x1xi32) -> 64x1xi32
  %row = arith.add %line, %x : (64x1xi32, 64x1xi32) -> 64x1xi32
"""


def _columns(by: str) -> str:
    return f"  %column = arith.mul %columns, {by} : (1x64xi32, 1x64xi32) -> 1x64xi32\n"


@pytest.mark.parametrize(
    ("body", "order"),
    [
        pytest.param(ODD_ROWS + _columns("%evens"), (0, 1), id="a multiple of a sector is last"),
        pytest.param(ODD_ROWS + _columns("%n1"), (1, 0), id="alike ones are in row-major order"),
        pytest.param(ODD_ROWS + _columns("%fours"), (1, 0), id="within a sector"),
        pytest.param(ODD_ROWS + _columns("%sixty"), (0, 1), id="beyond a sector"),
        pytest.param(IMAGE_ROWS + _columns("%n1"), (0, 1), id="mostly adjacent"),
    ],
)
def test_order_of_axes_without_runs(body: str, order: tuple[int, int]) -> None:
    fn = parse_module(HEAD + body + TAIL).entry
    pointers = next(op.result for op in fn.body if op.name == "mem.addptr")
    infos = axis_info(fn)
    assert infos[pointers].contiguity == (1, 1)
    assert infos.order(pointers) == order
