"""Warp specialization: an additional warp copies operands of products ahead, by tensor copies.

    for k in range(0, K, BK):                   the copying warp        the computing warps
        a = load(...)                           wait empty[slot]        wait full[slot]
        b = load(...)                 becomes   expect full[slot]       acc += product of the slots
        acc += a @ b                            copy a, b               arrive empty[slot]

The copying warp runs the loops around the copies, and the ops on which their bounds and coordinates
depend. It runs ahead until the ring of slots is full, also into the next iterations of an enclosing
loop while the computing warps store their results. No other warp computes addresses, and the loop
has no barrier of all warps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.core import Function
from tilewright.ir.machine import GpuMachine
from tilewright.ir.passes import Original, PassContext, compiler_pass
from tilewright.ops.control import For
from tilewright.passes.software_pipelining import stages_of
from tilewright.targets.nvidia.copied_loops import (
    NAME,
    CopiedLoop,
    find_held,
    find_loops,
    results_of,
    shared_bytes,
)
from tilewright.targets.nvidia.copied_tiles import stage_matrices, stage_vectors
from tilewright.targets.nvidia.occupancy import OTHER_REGISTERS
from tilewright.targets.nvidia.rotate_products import NAME as ROTATION
from tilewright.targets.nvidia.rotate_products import hoist_shares, rotate_loops
from tilewright.targets.nvidia.warp_roles import Rewrite

MAX_THREADS = 1024
WARP_GROUP = 4  # warps, which hand registers to others together
COPY_REGISTERS = 40  # of a thread; 24 make those spill that compute tiles' coordinates by division
FEWEST_REGISTERS = 24  # the same, if results of products take so many that others would be spilled
MANY_RESULTS = 192  # registers of a thread


UNDONE = (
    "undone: without a copying warp there are more registers for the others, or more programs on a "
    "multiprocessor"
)


@compiler_pass(NAME)
def specialize_warps(fn: Function, ctx: PassContext) -> bool:
    """Move the loads of products' operands to an additional warp, as tensor copies.

    Needs: layouts; `gpu.share`s of loads in the loops.  Leaves: `gpu.roles` around the whole body
    of the function, or the function as it is. A loop is converted as a whole or not at all;
    the other loops are left to `pipeline_loads`.
    """
    if not ctx.options.get("tensor_copies", True):
        return False
    loops = find_loops(fn, ctx)
    if not loops:
        return False
    two_fit = 2 * shared_bytes(fn, loops) <= ctx.gpu.shared_bytes
    copy_warps, registers = _copying_warps(loops, two_fit, ctx.gpu)
    if ctx.gpu.threads + copy_warps * ctx.gpu.lanes > MAX_THREADS:
        return False
    ctx.before[NAME] = Original(fn.clone(), UNDONE)
    # Where two programs fit, one of them computes while the other waits for its products; rotation
    # needs registers and memory that leave room for a single one.
    rotates = bool(registers) and not two_fit and ctx.enabled(ROTATION)
    if rotates:
        hoist_shares([loop.loop for loop in loops])
    loops = _with_other_tiles(fn, loops, ctx)
    held = find_held(fn, loops, ctx)
    _report(loops, held, ctx)
    rewrite = Rewrite(fn, [*loops, *held], ctx.gpu.warps)
    rewrite.run(copy_warps, registers)
    if rotates:
        rotate_loops(rewrite.converted, rewrite.guards, ctx)
    return True


def _report(loops: Sequence[CopiedLoop], held: Sequence[CopiedLoop], ctx: PassContext) -> None:
    """Count the copies, and report them at the loads."""
    ctx.count("rings", len({loop.ring for loop in loops}))
    ctx.count("held operands", sum(len(loop.copies) for loop in held))
    for loop in (*loops, *held):
        for copy in loop.copies:
            spare = f" ({loop.ring.most} in launches of few programs)" if loop.ring.spare else ""
            ctx.did(
                NAME,
                f"a dedicated warp copies this up to {loop.slots} iterations ahead{spare}, by "
                "tensor copies",
                copy.share.src.op.loc if copy.share.src.op else None,
            )


def _with_other_tiles(fn: Function, loops: list[CopiedLoop], ctx: PassContext) -> list[CopiedLoop]:
    """The loops with other tiles copied, too, than operands.

    Vectors must not cost slots for operands. With the tiles that operands are computed from,
    operands must have the slots that the source requests, and a second program must still fit.
    """
    slots = [loop.slots for loop in loops]
    loops = _staged(
        fn, loops, stage_vectors, lambda found: [loop.slots for loop in found] == slots, ctx
    )
    required = [min(loop.slots, stages_of(loop.loop, ctx)) for loop in loops]
    programs = _programs(fn, loops, ctx)

    def suffice(found: Sequence[CopiedLoop]) -> bool:
        enough = all(loop.slots >= least for loop, least in zip(found, required, strict=False))
        return len(found) == len(required) and enough and _programs(fn, found, ctx) >= programs

    return _staged(fn, loops, stage_matrices, suffice, ctx)


def _staged(
    fn: Function,
    loops: list[CopiedLoop],
    stage: Callable[[Function, Sequence[For], PassContext], bool],
    suffice: Callable[[Sequence[CopiedLoop]], bool],
    ctx: PassContext,
) -> list[CopiedLoop]:
    """The loops after staging further tiles in shared memory, which is undone unless they then
    suffice."""
    before = fn.clone()
    if not stage(fn, [loop.loop for loop in loops], ctx):
        return loops
    found = find_loops(fn, ctx)
    if suffice(found):
        return found
    fn.body = before.body
    return find_loops(fn, ctx)


def _programs(fn: Function, loops: Sequence[CopiedLoop], ctx: PassContext) -> int:
    """The programs for which shared memory suffices: more than two count as two."""
    return min(2, ctx.gpu.shared_bytes // shared_bytes(fn, loops))


def _copying_warps(
    loops: Sequence[CopiedLoop], two_fit: bool, gpu: GpuMachine
) -> tuple[int, tuple[int, ...]]:
    """The number of warps of the copying role, and the registers per thread of each role.

    A multiprocessor has four partitions, each with a quarter of the warps and registers. With four
    warps, an additional one leaves each thread the maximum of registers. With eight, the third
    warp of a partition would leave 168. A whole warpgroup can release registers to the others; but
    where two programs fit into shared memory, both need registers, and a single warp takes least.

    Args:
        loops: the loops whose operands are copied.
        two_fit: whether shared memory suffices for two programs.
        gpu: the machine, with the warps that compute.
    """
    results = results_of(loops, gpu)
    few = results <= _registers_of_two(gpu) - OTHER_REGISTERS
    if gpu.warps <= WARP_GROUP or (two_fit and few):
        return 1, ()
    partition = gpu.registers // WARP_GROUP // gpu.lanes
    groups = gpu.warps // WARP_GROUP
    launched = partition // (groups + 1) // 8 * 8
    copying = FEWEST_REGISTERS if results > MANY_RESULTS else COPY_REGISTERS
    rest = launched * (groups + 1) - copying
    return WARP_GROUP, (min(rest // groups // 8 * 8, 240), copying)


def _registers_of_two(gpu: GpuMachine) -> int:
    """The registers of a thread if two programs, each with one additional warp, are resident."""
    warps = -(-2 * (gpu.warps + 1) // WARP_GROUP)  # on a partition
    return gpu.registers // WARP_GROUP // (warps * gpu.lanes) // 8 * 8
