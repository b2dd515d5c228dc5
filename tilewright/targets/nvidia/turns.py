"""Ping-pong scheduling of warpgroups by named barriers of a program."""

from __future__ import annotations

from tilewright.lowering.emit import VOID
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.lowering.simt.roles import COPY_BARRIER
from tilewright.ops.nvidia import Turn
from tilewright.targets.nvidia.choose_mma import GROUP_WARPS
from tilewright.targets.nvidia.name import NAME

FIRST_BARRIER = COPY_BARRIER + 1  # of warpgroup 0; the next ones have the following barriers


@emits(Turn, target=NAME)
def emit_turn(kernel: Kernel, op: Turn) -> None:
    """Each warpgroup has a barrier, at which it waits for the one before it to arrive. The last one
    arrives at that of the first to begin with, and after each of its turns."""
    b = kernel.b
    groups = kernel.warps // GROUP_WARPS
    threads = 2 * GROUP_WARPS * kernel.hw.lanes
    own = b.lshr(kernel.warp, GROUP_WARPS.bit_length() - 1)
    last = b.icmp("eq", own, groups - 1)
    following = b.select(last, FIRST_BARRIER, b.add(own, FIRST_BARRIER + 1))
    if op.step == "take":
        barrier = b.add(own, FIRST_BARRIER)
        b.inline_asm(f"bar.sync $0, {threads};", "r,~{memory}", VOID, [barrier], True, True)
    elif op.step == "pass":
        b.inline_asm(f"bar.arrive $0, {threads};", "r,~{memory}", VOID, [following], True, True)
    else:
        code = f"@$1 bar.arrive $0, {threads};"
        b.inline_asm(code, "r,b,~{memory}", VOID, [following, last], True, True)
