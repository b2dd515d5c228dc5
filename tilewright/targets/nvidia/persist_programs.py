"""Persistent kernels: thread blocks loop over programs, if a warp copies operands ahead.

    program.id                          for program in range(block, programs, blocks):
    for k in …:                             for k in …:
        acc += product          becomes         acc += product
    store(acc)                              store(acc)

The copying warp then copies the first operands of the next program while the others store the
results of this one. The launch determines the number of blocks (`runtime/devices/cuda_function`).
For correctness and profitability, see docs/decisions/0060.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tilewright.analysis.launch_invariants import is_launch_invariant
from tilewright.base.record import replace
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import Original, PassContext, compiler_pass
from tilewright.ir.types import I32, Shared, Tile
from tilewright.ops.arith import Add, Cast, Hint, IntDiv, Max, Min, Mul, Shl, Shr, Sub
from tilewright.ops.asm import InlineAsm
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.control import For, ProgramId, While, Yield
from tilewright.ops.gpu import Fetch, StartDependents
from tilewright.ops.memory import Load, Store
from tilewright.targets.nvidia.copied_loops import (
    CopiedLoop,
    find_loops,
    product_loops,
    releases_at_once,
    shared_bytes,
    with_rings,
)
from tilewright.targets.nvidia.copied_scalars import may_overwrite
from tilewright.targets.nvidia.pack_programs import looks_at_block
from tilewright.targets.nvidia.program_order import BalancedOrder, EvenOrder

NAME = "persist_programs"
EVEN = -1  # instead of an axis on which the length of programs depends
UNDONE = "undone: without a loop over programs there are more registers for the others"


@compiler_pass(NAME)
def persist_programs(fn: Function, ctx: PassContext) -> bool:
    """Convert the body of a function to a loop over programs.

    Needs: what `specialize_warps` needs; only functions whose loops of products it converts are
    changed.
    Leaves: a `control.for` around the body, whose bounds are those of the launch
    (`gpu.block_id`), and arithmetic on its induction variable in place of `program.id`.
    """
    if not ctx.options.get("tensor_copies", True) or ctx.options.get("launch_cooperative_grid"):
        return False
    loops = product_loops(fn, ctx)
    if not loops or any(isinstance(op, For | While) for op in _holders(loops)):
        return False  # or the kernel has such a loop itself
    waiting = next((op for op in fn.walk() if not _is_independent(op)), None)
    if waiting is not None:
        reason = f"blocks do not loop over programs, as one may wait for others by {waiting.name}"
        ctx.missed(NAME, reason, waiting.loc)
        return False
    axis = _axis_of_lengths(list(loops), ctx)
    if axis is None:
        return False
    copied = find_loops(fn, _quiet(ctx))  # `specialize_warps` reports why others are not copied
    if len(copied) < len(loops) or not _is_alone(fn, copied, ctx):
        return False
    if not all(_can_be_early(fn, loop) for loop in copied):
        reason = "blocks do not loop over programs, as copies for the next one may read results"
        ctx.missed(NAME, reason, copied[0].loop.loc)
        return False
    original = fn.clone()
    slots = copied[0].ring.slots
    if all(loop.in_flight for loop in copied):  # others compute while the next slots are filled
        slots = min(slots, *loops.values())
    _loop_over_programs(fn, list(loops), axis)
    if _slots_of(fn, copied, loops, ctx) < slots:
        fn.body = original.body
        reason = (
            "blocks do not loop over programs: the buffer for results takes the shared memory of a "
            "slot"
        )
        ctx.missed(NAME, reason, copied[0].loop.loc)
        return False
    ctx.before[NAME] = Original(original, UNDONE)
    ctx.count("persistent")
    text = (
        "in launches of many programs, each block runs several sequentially, and copies the "
        "operands of the next one while it stores results"
    )
    ctx.did(NAME, text, fn.loc)
    return True


def _quiet(ctx: PassContext) -> PassContext:
    """The context without its reports."""
    return replace(ctx, remarks=[], counts=Counter[str]())


def _holders(loops: Iterable[For]) -> list[Op]:
    """The control flow around loops."""
    return [op for loop in loops for op in loop.ancestors()]


def _axis_of_lengths(loops: Sequence[For], ctx: PassContext) -> int | None:
    """The axis of the grid on whose index the iterations of loops depend, or `EVEN`; None if there
    is no such axis, which is reported."""
    axes = [_axis_of_length(loop) for loop in loops]
    uneven = next((loop for loop, axis in zip(loops, axes, strict=True) if axis is None), None)
    varying = {axis for axis in axes if axis is not None and axis != EVEN}
    if uneven is None and len(varying) <= 1:
        return next(iter(varying), EVEN)
    reason = (
        "blocks do not loop over programs, as not all have as many iterations: those that are "
        "free take the next program"
    )
    ctx.missed(NAME, reason, (uneven or loops[0]).loc)
    return None


def _axis_of_length(loop: For) -> int | None:
    """The axis of the grid on whose index the number of a loop's iterations depends, rising or
    falling with it; `EVEN` if it is the same in all programs, None if it is not known."""
    if loop.parent_op() is not None:
        return None
    axes = _axes_of([loop.start, loop.stop, loop.step])
    return None if axes is None or len(axes) > 1 else next(iter(axes), EVEN)


def _axes_of(scalars: Sequence[Value]) -> set[int] | None:
    """The axes of the grid with whose indices scalars rise or fall; None if they may depend on
    anything else."""
    axes, seen, work = set[int](), set[Value](), list(scalars)
    while work:
        value = work.pop()
        if value in seen or is_launch_invariant(value):
            continue
        seen.add(value)
        op = value.op
        if isinstance(op, ProgramId):
            axes.add(op.axis)
        elif isinstance(op, Add | Cast | Hint | IntDiv | Max | Min | Mul | Shl | Shr | Sub):
            work += op.operands
        else:
            return None
    return axes


def _is_alone(fn: Function, loops: list[CopiedLoop], ctx: PassContext) -> bool:
    """Whether the loops share a ring, and release its slots at once, or a single program is
    resident, whose end no other one hides."""
    if releases_at_once(loops):
        return True
    shared = all(loop.ring is loops[0].ring for loop in loops)
    return shared and 2 * shared_bytes(fn, loops) > ctx.gpu.shared_bytes


def _can_be_early(fn: Function, loop: CopiedLoop) -> bool:
    """Whether copies may read their operands before any store of the kernel."""
    loads = [copied.share.src.op for copied in loop.copies]
    read = [load for load in loads if isinstance(load, Load)]
    return not any(may_overwrite(fn, load, op) for load in read for op in fn.walk())


def _slots_of(
    fn: Function, copied: list[CopiedLoop], stages: Mapping[For, int], ctx: PassContext
) -> int:
    """The slots of the ring if memory for storing results is also needed; 0 if there is not enough
    for a ring."""
    for loop in copied:
        loop.slots = stages[loop.loop]
    found = with_rings(fn, copied, _quiet(ctx))
    return found[0].ring.slots if found else 0


def _is_independent(op: Op) -> bool:
    """Whether a program cannot wait for another one, or observe its order with others, by an op."""
    match op:
        case While():
            return False
        case Load():
            return not op.volatile
        case InlineAsm():
            return not looks_at_block(op) and not (op.reads_memory or op.writes_memory)
        case StartDependents():
            return False
        case Fetch():  # reads the program's own memory
            return True
        case Store():
            return True
        case AtomicRMW():
            return not op.result.users
        case _:
            return op.local or not (op.reads_memory or op.writes_memory)


def _loop_over_programs(fn: Function, loops: list[For], axis: int) -> None:
    """Move the body of a function into a loop over programs, except for computations that all
    programs share.

    Args:
        fn: the function.
        loops: its loops of products.
        axis: on which the number of their iterations depends, or `EVEN`.
    """
    old, end = list(fn.body), fn.body.terminator
    ids = [op for op in fn.walk() if isinstance(op, ProgramId)]
    axes = 1 if axis == EVEN and all(op.axis == 0 for op in ids) else 3
    body = Region([I32])
    shared: set[Value] = set(fn.body.args)
    for op in old:
        if op is not end and not _is_shared(op, shared):
            op.remove()
            body.append(op)
        else:
            shared.update(op.results)
    builder = Builder(fn.body)
    builder.anchor, builder.loc = end, fn.loc
    order = EvenOrder(axes, builder) if axis == EVEN else BalancedOrder(axis, loops, builder)
    with builder.at_end(body):
        builder.insert(Yield([]))
    builder.insert(For(*order.span, [], 1, 0, (), body))
    builder.region, builder.anchor = body, body.first
    _replace_ids(ids, order.places(body.args[0], builder))


def _is_shared(op: Op, shared: set[Value]) -> bool:
    """Whether an op computes a scalar from values that all programs share."""
    scalars = op.results and not any(isinstance(v.type, Tile | Shared) for v in op.results)
    known = all(v in shared for v in op.operands)
    return bool(scalars) and op.pure and not op.regions and known and not isinstance(op, ProgramId)


def _replace_ids(ids: list[ProgramId], places: list[Value]) -> None:
    for op in ids:
        op.result.replace_with(places[op.axis])
        op.erase()
