"""With programmatic dependent launch, waits for preceding launches before the first access."""

from __future__ import annotations

from tilewright.ir.core import Function, Op
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.gpu import WaitLaunches


@compiler_pass("wait_for_launches", required=True)
def wait_for_launches(fn: Function, ctx: PassContext) -> bool:
    """With the option `launch_pdl`, insert `gpu.wait_launches` before the first op of the
    function's body that accesses global memory, directly or in a nested region.

    Needs: inlined calls.  Leaves: everything else unchanged.

    A kernel with an explicit wait is not changed: its earlier accesses may be to memory that no
    preceding launch writes.
    """
    if not ctx.options.get("launch_pdl", False):
        return False
    if any(isinstance(op, WaitLaunches) for op in fn.walk()):
        return False
    first = next((op for op in fn.body if _accesses_global(op)), None)
    if first is None:
        return False
    wait = WaitLaunches()
    wait.loc = first.loc
    fn.body.insert_before(wait, first)
    return True


def _accesses_global(op: Op) -> bool:
    """Whether the op, or one nested in it, may read or write global memory."""
    return any(o.reads_memory or (o.writes_memory and not o.local) for o in op.walk())
