"""Which loads the copying warp may do before the rest of the kernel."""

from __future__ import annotations

import pytest

from tilewright.ir.core import Function
from tilewright.ir.parser import parse_module
from tilewright.ops.memory import Load
from tilewright.targets.nvidia.copied_scalars import Scalars, may_overwrite

TEXT = """
func @loads(%x: ptr<i32> {{alias=0}}, %y: ptr<i32> {{alias=1}}, %n: i32) {{
  {before}
  %b = mem.load %x, _, _, cache="", evict="", volatile=False : ptr<i32> -> i32
  {after}
  control.return [] : () -> ()
}}
"""


def function(before: str = "", after: str = "") -> tuple[Function, Load]:
    """A function that loads from its first argument, between these lines."""
    fn = parse_module(TEXT.format(before=before, after=after)).entry
    return fn, [op for op in fn.walk() if isinstance(op, Load)][-1]


@pytest.mark.parametrize("volatile", [False, True])
def test_load_stays_after_a_flag(volatile: bool) -> None:
    """A volatile load may wait for what another program has written."""
    fn, load = function(
        f'%a = mem.load %y, _, _, cache="", evict="", volatile={volatile} : ptr<i32> -> i32'
    )
    assert load.prev is not None
    assert may_overwrite(fn, load, load.prev) == volatile
    assert (load.result in Scalars(fn).other) == volatile


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release", "acq_rel"])
def test_load_stays_after_what_acquires_a_flag(sem: str, after: bool) -> None:
    """The memory may hold what another program wrote before it released the flag."""
    atomic = (
        f'%a = atomic.rmw %y, %n, _, kind="add", sem="{sem}", scope="gpu" : (ptr<i32>, i32) -> i32'
    )
    fn, load = function(after=atomic) if after else function(before=atomic)
    assert (load.result in Scalars(fn).other) == (sem != "relaxed" and not after)
