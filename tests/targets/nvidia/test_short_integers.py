"""16-bit arithmetic that ptxas miscompiles is expanded into other instructions."""

from pathlib import Path

import pytest

import tilewright as tw
from tilewright.targets.nvidia.emit import compile_text

IR = """
func @kernel(%0: ptr<i16>, %1: ptr<i32>) {{
  %2 = tile.arange start=0, end=32 : () -> 32xi32
  %3 = tile.splat %0, shape=(32,) : ptr<i16> -> 32xptr<i16>
  %4 = mem.addptr %3, %2 : (32xptr<i16>, 32xi32) -> 32xptr<i16>
  %5 = mem.load %4, _, _, cache="", evict="", volatile=False : 32xptr<i16> -> 32xi16
  %6 = arith.{op} %5 : 32xi16 -> 32xi16
  %7 = arith.cast %6, to=i32, rounding="rtne" : 32xi16 -> 32xi32
  %8 = tile.splat %1, shape=(32,) : ptr<i32> -> 32xptr<i32>
  %9 = mem.addptr %8, %2 : (32xptr<i32>, 32xi32) -> 32xptr<i32>
  mem.store %9, %7, _, cache="", evict="" : (32xptr<i32>, 32xi32) -> ()
  control.return [] : () -> ()
}}
"""


@pytest.mark.parametrize("op", ["neg", "abs"])
def test_smallest_number_wraps_around(op: str, tmp_path: Path) -> None:
    """Of -32768 both are -32768. ptxas 13.0 extends first, and then it is 32768."""
    path = tmp_path / "kernel.ir"
    path.write_text(IR.format(op=op), "utf-8")
    kernel = tw.compile(path, target="cuda", options={"num_warps": 1})
    assert f"{op}.s16" not in kernel.asm["ptx"]
    sass = [line for line in kernel.asm["sass"].splitlines() if ";" in line]
    assert not any("IABS" in line for line in sass)
    # The extension to 32 bits is the last thing that happens to the value.
    extended = [i for i, line in enumerate(sass) if "PRMT" in line and "0x9910" in line]
    stored = next(i for i, line in enumerate(sass) if "STG" in line)
    between = sass[extended[-1] + 1 : stored]
    assert not any("IADD" in line or "-R" in line for line in between), between


PAIRS = """
define ptx_kernel void @kernel(ptr addrspace(1) %p) {
  %x = load <2 x i16>, ptr addrspace(1) %p
  %sum = add <2 x i16> %x, <i16 17159, i16 17159>
  %half = extractelement <2 x i16> %sum, i32 0
  store i16 %half, ptr addrspace(1) %p
  %to = getelementptr i8, ptr addrspace(1) %p, i64 8
  store <2 x i16> %sum, ptr addrspace(1) %to
  ret void
}
"""


def test_sums_of_pairs_are_computed_by_halves() -> None:
    """If only one half of the sum is used, ptxas 12.8 adds 0 instead of a constant."""
    _, ptx = compile_text(PAIRS, "sm_90", 81)
    assert "16x2" not in ptx
    assert ptx.count("add.s16") == 2
