"""Teams: warps of a program that run code of their own, with memory and barriers of their own."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.lowering.simt.emulator import Emulated, EmulatedHardware
from tilewright.base.target_names import declare_target
from tilewright.ir.core import Function, Module
from tilewright.ir.parser import parse_module
from tilewright.ir.types import I32, Pointer
from tilewright.lowering.emit import I32 as WORD
from tilewright.lowering.simt import control as _control
from tilewright.lowering.simt import reduce as _reduce
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.lowering.simt.shared_memory import SharedMemory
from tilewright.ops import control
from tilewright.targets.nvidia.hardware import NvidiaHardware

REGISTERED = (_control, _reduce)
LANES = 4


def meeting(name: str, barriers: tuple[int, int]) -> Emulated:
    """Two warps and two more, each meeting several times at a barrier of their own; each thread
    then writes its number in its team."""

    @emits(control.Barrier, target=declare_target(name))
    def emit(kernel: Kernel, op: control.Barrier) -> None:
        b, out = kernel.b, kernel.scalar(kernel.fn.args[0])
        own = kernel.thread
        teams = kernel.part(0, 2, 1), kernel.part(2, 2, 2)
        first = b.icmp("ult", own, 2 * LANES)
        for team, inside, times in zip(teams, (first, b.not_(first)), barriers, strict=True):
            with kernel.only_if(inside), kernel.as_team(team):
                for _ in range(times):
                    kernel.barrier()
                b.store(kernel.thread, b.gep(WORD, out, own))
        assert kernel.thread is own

    fn = Function("kernel", [Pointer(I32)])
    fn.body.append(control.Barrier())
    fn.body.append(control.Return([]))
    return Emulated(Module([fn]), EmulatedHardware(LANES, name), 4)


@pytest.mark.parametrize("barriers", [(0, 0), (1, 1), (3, 1), (0, 2)])
def test_each_team_waits_for_itself(barriers: tuple[int, int]) -> None:
    """Each meets as often as it likes; threads count within their team."""
    out = np.full(16, -1, np.int32)
    for seed in range(3):
        meeting(f"teams {barriers} {seed}", barriers).launch((1, 1, 1), [out], seed)
        assert out.tolist() == [*range(8), *range(8)]


def test_a_barrier_of_a_part_is_counted_and_has_a_constant_number() -> None:
    fn = Function("kernel", [])
    fn.body.append(control.Return([]))
    kernel = Kernel(fn, NvidiaHardware(), 8)
    kernel.barrier()
    with kernel.as_team(kernel.part(4, 4, 3)):
        kernel.barrier()
    kernel.b.ret()
    calls = re.findall(r"call void @llvm\.nvvm\.barrier\.cta\.sync\.(.*)", kernel.module.text())
    assert calls == ["aligned.all(i32 0)", "aligned.count(i32 3, i32 128)"]


LAYOUT = "register[1 2] lane[4 8 16 32 64] warp[128 256 512] -> dim0:1024"
BRANCHES = f"""
layout !0 = "{LAYOUT}"
layout !1 = "offset[1 2 4 8 16 32 64 128 256 512] -> dim0:1024"
func @kernel(%c: i1) {{
  %x = arith.constant value=1.0, type=1024xfp32 : () -> 1024xfp32 !0
  %before = gpu.share %x : 1024xfp32 !0 -> shared<1024xfp32> !1
  %read = gpu.fetch %before : shared<1024xfp32> !1 -> 1024xfp32 !0
  control.if %c : i1 -> () {{
    %m = gpu.share %x : 1024xfp32 !0 -> shared<1024xfp32> !1
    %n = gpu.fetch %m : shared<1024xfp32> !1 -> 1024xfp32 !0
    control.yield [] : () -> ()
  }} {{
    %o = gpu.share %x : 1024xfp32 !0 -> shared<1024xfp32> !1
    %p = gpu.fetch %o : shared<1024xfp32> !1 -> 1024xfp32 !0
    control.yield [] : () -> ()
  }}
  control.return [] : () -> ()
}}
"""


def test_roles_use_disjoint_memory_and_start_after_a_common_barrier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The branches of an `if` share memory, as one runs; if both ran at once, they may not."""
    fn = parse_module(BRANCHES).entry
    before, first, second = (op for op in fn.walk() if op.name == "gpu.share")
    (branch,) = (op for op in fn.walk() if op.name == "control.if")
    plan = SharedMemory(fn)
    assert plan.spans[first] == plan.spans[second] == plan.spans[before]
    assert branch not in plan.barriers
    assert first in plan.barriers
    monkeypatch.setattr(control.If, "concurrent", True)
    plan = SharedMemory(fn)
    assert not plan.spans[first].overlaps(plan.spans[second])
    assert branch in plan.barriers
    assert first not in plan.barriers
    assert second not in plan.barriers
