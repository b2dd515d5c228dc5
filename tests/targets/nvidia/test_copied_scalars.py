"""Which loads the copying warp may do before the rest of the kernel."""

from __future__ import annotations

import pytest

from tilewright.ir.parser import parse_module
from tilewright.ops.memory import Load
from tilewright.targets.nvidia.copied_scalars import leaves_alone

TEXT = """
func @two_loads(%x: ptr<i32> {{alias=0}}, %y: ptr<i32> {{alias=1}}) {{
  %a = mem.load %y, _, _, cache="", evict="", volatile={volatile} : ptr<i32> -> i32
  %b = mem.load %x, _, _, cache="", evict="", volatile=False : ptr<i32> -> i32
  control.return [] : () -> ()
}}
"""


@pytest.mark.parametrize("volatile", [False, True])
def test_load_stays_behind_a_flag(volatile: bool) -> None:
    """A volatile load may wait for what another program has written."""
    fn = parse_module(TEXT.format(volatile=volatile)).entry
    flag, load = [op for op in fn.walk() if isinstance(op, Load)]
    assert leaves_alone(fn, load, flag) == (not volatile)
