"""Determines whether launches may run several programs of a kernel in one thread block."""

from __future__ import annotations

import re

from tilewright.base.record import replace
from tilewright.ir.core import Function, Op
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.asm import InlineAsm, InlineAsmEffect
from tilewright.ops.dot import Dot
from tilewright.ops.gpu import AllocateRing
from tilewright.ops.nvidia import AddBlock, LoadBlock
from tilewright.ops.roles import InitBarriers, Roles

NAME = "pack_programs"

# In assembly: what differs in a block with several programs.
_OF_A_BLOCK = re.compile(r"%n?tid|%n?ctaid|%n?warpid|\bbar\b|\bbarrier\b|\.shared|\bcluster")


@compiler_pass(NAME)
def pack_programs(fn: Function, ctx: PassContext) -> bool:
    """Let launches pack programs of one warp into blocks of several warps.

    A multiprocessor holds 32 blocks, and starts one in about 90 ns: programs of one warp fill half
    of it at most, and short ones less (docs/benchmarks-gpu-misses.md). The y index of a thread is
    the program's in its block. Barriers are those of a warp, and each program has its own part of
    the block's shared memory, so that the code is correct for any number of programs; the launch
    chooses it (`runtime/devices/cuda_function.py`). Programs with products keep blocks of their
    own: they are long, and the assembler assigns registers by the size of a block.

    Needs: all passes that add warps or barriers in memory.
    Leaves: the same function; `ctx.gpu.packs`.
    """
    if ctx.gpu.warps != 1 or ctx.options.get("launch_cooperative_grid", False):
        return False
    if any(_needs_a_block(op) for op in fn.walk()):
        return False
    ctx.machine = replace(ctx.gpu, packs=True)
    return True


def looks_at_block(op: InlineAsm | InlineAsmEffect) -> bool:
    """Whether assembly depends on the block of threads that runs it, or on others of the launch."""
    return _OF_A_BLOCK.search(op.code) is not None


def _needs_a_block(op: Op) -> bool:
    if isinstance(op, InlineAsm | InlineAsmEffect):
        return looks_at_block(op)
    return isinstance(op, Dot | Roles | InitBarriers | AllocateRing | LoadBlock | AddBlock)
