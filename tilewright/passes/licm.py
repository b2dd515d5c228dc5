"""Loop-invariant code motion.

Input and output: verified SSA. Hoists ops whose operands are loop-invariant out of `for` and
`while`, inner loops first, in program order. Pure ops are total, so they may be speculated. A load
is hoisted only if it is certain to execute and nothing in the loop may write its memory; alias
analysis is more precise after canonicalize_pointers. A nested `while` is never hoisted, because it
might not terminate, and a nested `for` only if it is certain to execute. Linear in the number of
ops times the loop depth, plus loads times writers of each loop.
"""

from __future__ import annotations

from tilewright.analysis.pointers import may_change
from tilewright.ir.core import Function, Op, Region
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.control import For, While
from tilewright.ops.memory import Load
from tilewright.rewrites.control import runs_at_least_once


@compiler_pass("licm")
def hoist_invariants(fn: Function, ctx: PassContext) -> bool:
    """Hoist loop-invariant ops; see the module docstring."""
    hoisted = _hoist_within(fn, fn.body)
    ctx.count("hoisted", hoisted)
    return hoisted > 0


def _hoist_within(fn: Function, region: Region) -> int:
    """Inner loops first, so that hoisted ops can be hoisted further."""
    hoisted = 0
    for op in region:
        for nested in op.regions:
            hoisted += _hoist_within(fn, nested)
        if isinstance(op, For):
            hoisted += _hoist(fn, op, op.body, runs_at_least_once(op))
        elif isinstance(op, While):
            hoisted += _hoist(fn, op, op.before, True)
            hoisted += _hoist(fn, op, op.body, False)
    return hoisted


def _hoist(fn: Function, loop: Op, body: Region, certain: bool) -> int:
    assert loop.parent is not None
    writers = [op for op in loop.walk() if op.is_write()]
    hoisted = 0
    for op in body:
        if _can_hoist(fn, op, loop, writers, certain):
            op.remove()
            loop.parent.insert_before(op, loop)
            hoisted += 1
    return hoisted


def _can_hoist(fn: Function, op: Op, loop: Op, writers: list[Op], certain: bool) -> bool:
    if op.terminator or op.writes() or not _is_invariant(op, loop):
        return False
    inner = list(op.walk()) if op.regions else [op]
    if any(isinstance(o, While) for o in inner):
        return False
    if not certain and any(isinstance(o, For) for o in inner):
        return False
    loads = [o for o in inner if o.reads_memory]
    if loads and not certain:
        return False
    return not any(
        not isinstance(load, Load) or may_change(fn, writer, load.ptr)
        for load in loads
        for writer in writers
    )


def _is_invariant(op: Op, loop: Op) -> bool:
    """Whether the op and its nested ops use only values defined within the op or outside the
    loop."""
    if not op.regions:
        return not any(loop.contains(v) for v in op.operands)
    return all(op.contains(v) or not loop.contains(v) for v in op.all_operands())
