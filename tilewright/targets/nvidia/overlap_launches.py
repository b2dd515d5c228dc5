"""Programmatic dependent launch: a launch that begins early waits for the preceding ones.

For its correctness, see docs/decisions/0050.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Op
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_before
from tilewright.ops.asm import InlineAsm
from tilewright.ops.gpu import StartDependents, WaitLaunches


@compiler_pass("overlap_launches", required=True)
def overlap_launches(fn: Function, ctx: PassContext) -> bool:
    """Insert `gpu.wait_launches` before the first op of the function's body that accesses memory,
    directly or in a nested region, or at the end if there is none.

    Needs: inlined calls; no pass that moves accesses may follow.  Leaves: everything else
    unchanged.

    By default, kernels that control launches themselves are not changed, and not launched early.
    With the option `launch_pdl` they are, and what they access before a wait of their own may be
    memory that no preceding launch writes.

    Every launch that may begin early waits, even without an access: the next one waits for this one
    only, and may depend on the ones before.
    """
    option = ctx.options.get("launch_pdl", None)
    if option is None:
        return _overlap_by_default(fn, ctx)
    return bool(option) and _overlap_as_written(fn)


def _overlap_by_default(fn: Function, ctx: PassContext) -> bool:
    if ctx.options.get("launch_cooperative_grid", False):
        return False
    own = next((op for op in fn.walk() if isinstance(op, WaitLaunches | StartDependents)), None)
    if own is not None:
        reason = (
            "launches do not overlap the previous kernel, as this kernel controls that itself: "
            "launch it with launch_pdl=True"
        )
        ctx.missed("overlap_launches", reason, own.loc)
        return False
    insert_before(WaitLaunches(implied=True), _first_access(fn))
    return True


def _overlap_as_written(fn: Function) -> bool:
    if any(isinstance(op, WaitLaunches) for op in fn.body):
        return False
    waits = any(isinstance(op, WaitLaunches) for op in fn.walk())
    place = fn.body.terminator if waits else _first_access(fn)
    insert_before(WaitLaunches(implied=False), place)
    return True


def _first_access(fn: Function) -> Op:
    """The first op of the body that may access memory; the terminator if there is none."""
    return next(op for op in fn.body if op.terminator or _may_access(op))


def _may_access(op: Op) -> bool:
    """Whether the op, or one nested in it, may access memory, or has another visible effect."""
    return any(
        o.reads_memory or (o.writes_memory and not o.local) or isinstance(o, InlineAsm)
        for o in op.walk()
    )
