"""If-conversion: short branches of loops that load become masked loads and selections.

    for i in range(n):                          for i in range(n):
        if start(i) < stop(i):        →             exists = start(i) < stop(i)
            x = load(p + i)                         x = load(p + i, mask=exists)
            s = s + x                               s = select(exists, s + x, s)

Assemblers move no load across a branch, so that each iteration waits for its loads. Without
branches, loads of several iterations are in flight: unrolled, or ahead (`prefetch_loads`). Kernels
that combine the parts of a decoding step of attention have this form, as the number of parts with
keys is known at run time. Masked loads access no memory, and ops without effects are total, so a
branch that is not taken costs only its instructions.

It applies to branches of innermost loops with elementwise ops, views and loads, of few
instructions, whose condition needs no load of the loop: otherwise each iteration would wait for
that load in any case. Input and output: laid-out IR. Linear in the size of the function.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import I1
from tilewright.layout.linear import REGISTER
from tilewright.ops.arith import And, Constant, Hint, Select, Xor
from tilewright.ops.control import For, If
from tilewright.ops.math import MathFunction
from tilewright.ops.memory import AddPtr, Load
from tilewright.ops.view import View
from tilewright.passes.software_pipelining import FUNCTION_WORK, backward_slice, moved
from tilewright.rewrites.patterns import splat_like

NAME = "convert_branches"

MOST_WORK = 64
"""The most instructions of a thread, estimated, in both branches: fewer than are issued while a
load of the next iteration, which the branch would hold up, is in flight."""


@compiler_pass(NAME)
def convert_branches(fn: Function, ctx: PassContext) -> bool:
    """Replace short branches that load by masked loads and selections; see the module docstring."""
    converted = 0
    for loop in [op for op in fn.walk() if isinstance(op, For)]:
        if any(isinstance(op, For) for op in loop.body.walk()):
            continue
        for branch in [op for op in loop.body if isinstance(op, If)]:
            if _is_convertible(loop, branch):
                ctx.did(NAME, "runs without a branch, by masked loads", branch.loc)
                _convert(branch)
                converted += 1
    ctx.count("converted", converted)
    return converted > 0


def _is_convertible(loop: For, branch: If) -> bool:
    ops = list(_ops(branch))
    return (
        any(isinstance(op, Load) for op in ops)
        and all(_may_always_run(op) for op in ops)
        and sum(map(_work, ops)) <= MOST_WORK
        and backward_slice(loop, [branch.condition]) is not None
    )


def _ops(branch: If) -> Iterator[Op]:
    """The ops of both regions, without their ends."""
    return (op for region in branch.regions for op in region if not op.terminator)


def _may_always_run(op: Op) -> bool:
    """Whether an op has no effect, or none with a mask, and no cost but its instructions. What a
    hint states holds only where the branch is taken."""
    if isinstance(op, Load):
        return not op.volatile
    if isinstance(op, Hint):
        return False
    cheap = op.elementwise or isinstance(op, View) or not op.operands
    return cheap and op.pure and not op.regions


def _work(op: Op) -> int:
    """An estimate of the instructions of a thread."""
    if isinstance(op, View | AddPtr):
        return 0
    each = FUNCTION_WORK if isinstance(op, MathFunction) else 1
    return sum(each * (v.layout.in_size(REGISTER) if v.layout else 1) for v in op.results)


def _convert(branch: If) -> None:
    b = Builder()
    with b.before(branch):
        not_taken = b.value(Xor(branch.condition, b.value(Constant(True, I1))))
        for region, runs in ((branch.then, branch.condition), (branch.otherwise, not_taken)):
            for op in [op for op in region if not op.terminator]:
                op.remove()
                b.insert(op)
                if isinstance(op, Load):
                    _mask(b, op, runs)
        ends = [region.terminator.operands for region in branch.regions]
        for result, on_true, on_false in zip(branch.results, *ends, strict=True):
            where = splat_like(b, branch.condition, result)
            selected = b.value(Select(where, on_true, on_false))
            selected.layout = result.layout
            result.replace_with(selected)
    branch.erase()


def _mask(b: Builder, load: Load, runs: Value) -> None:
    """Let a load read nothing unless the region that it was in runs."""
    with b.before(load):
        mask = splat_like(b, runs, load.ptr)
        if load.mask is not None:
            mask = b.value(And(load.mask, mask))
            mask.layout = load.ptr.layout
        result = b.value(moved(load, {}, mask))
    result.layout = load.result.layout
    load.result.replace_with(result)
    load.erase()
