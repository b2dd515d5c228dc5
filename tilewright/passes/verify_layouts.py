"""Verifier of laid-out IR: layouts exist, and satisfy the layout rules of each op.

`assign_layouts` establishes these invariants, and later passes must preserve them:

- A tile has a layout of its shape, over registers, lanes and warps; a scalar has none.
- All tiles of an elementwise op, or of a memory access, have the same layout.
- Shape ops, reductions and matrix instructions satisfy `layout_rules.py` and `ANCHORS`.
- A loop-carried value has one layout in its initial value, argument, yielded value and result; so
  do the values that the branches of an `if` yield, and its result.
- A buffer in shared memory that is accessed has an invertible layout of its shape, over offsets.

One traversal, linear in the number of ops; it does not modify the IR.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from tilewright.ir.core import Function, Module, Op, Value, is_tile
from tilewright.ir.define import require
from tilewright.ir.passes import PassContext, Step
from tilewright.ir.types import Shared, shape_of
from tilewright.layout.linear import HARDWARE, LANE, OFFSET, REGISTER, WARP, LinearLayout
from tilewright.layout.shape import transpose
from tilewright.ops.atomic import AnyAtomic
from tilewright.ops.control import Condition, For, If, While
from tilewright.ops.gpu import CopyAsync, Fetch, PermuteBuffer, Share
from tilewright.ops.memory import Load, Store
from tilewright.passes.assign_layouts import assign_layouts
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.layout_choice import ANCHORS
from tilewright.passes.layout_rules import (
    derived_demands,
    derives_from_first_operand,
    operand_layout,
    propagates_layout,
)

CODE = "layout"
THREADS = (REGISTER, LANE, WARP)


class LayoutVerifier:
    """An observer that verifies layouts after each step, once they are assigned.

    It starts with the first `dce` after `assign_layouts`, which leaves dead originals of
    rematerialised values.

    Args:
        ctx: the context of the run, for the number of lanes and warps.
    """

    def __init__(self, ctx: PassContext) -> None:
        self.ctx = ctx
        self.assigned = self.clean = False

    def before(self, step: Step, module: Module) -> None:
        pass

    def after(self, step: Step, module: Module, changed: bool) -> None:
        self.assigned |= step.pass_ is assign_layouts
        self.clean |= self.assigned and step.pass_ is remove_dead_code
        if self.clean and changed:
            for fn in module.functions.values():
                verify_layouts(fn, self.ctx)


def verify_layouts(fn: Function, ctx: PassContext) -> None:
    """Raise `IRError` with the code ``layout`` for the first op that violates an invariant."""
    for op in fn.walk():
        for region in op.regions:
            _check_values(op, region.args, ctx)
        _check_values(op, op.results, ctx)
        _check_op(op, ctx)


# -- values ---------------------------------------------------------------------------------------


def _check_values(op: Op, values: Iterable[Value], ctx: PassContext) -> None:
    for value in values:
        layout = value.layout
        if is_tile(value):
            _check_tile(op, value, ctx)
        elif isinstance(value.type, Shared):
            if layout is not None:
                _check_buffer(op, value)
        else:
            require(layout is None, op, CODE, "a scalar has the layout {layout}", layout=layout)


def _check_tile(op: Op, value: Value, ctx: PassContext) -> None:
    layout = value.layout
    require(layout is not None, op, CODE, "a tile, {type}, has no layout", type=value.type)
    assert layout is not None
    fault = _fault(layout, shape_of(value.type), ctx.gpu.lanes, ctx.gpu.warps)
    if fault is not None:
        require(False, op, CODE, fault, type=value.type, layout=layout)


@lru_cache(4096)
def _fault(layout: LinearLayout, shape: tuple[int, ...], lanes: int, warps: int) -> str | None:
    """Why a tile of this shape cannot have this layout, as a format of its type and layout.

    Cached because the tiles of a kernel have few layouts, and are verified after each pass.
    """
    if layout.shape != shape:
        return "a tile of type {type} has a layout of another shape: {layout}"
    names = {dim.name for dim in layout.ins}
    if not (names.issuperset(THREADS) and names.issubset(HARDWARE)):
        return "a tile is not laid out over registers, lanes and warps: {layout}"
    if (layout.in_size(LANE), layout.in_size(WARP)) != (lanes, warps):
        return f"a layout is not over {lanes} lanes and {warps} warps: {{layout}}"
    if not layout.is_surjective():
        return "no thread holds some elements of a tile: {layout}"
    return None


def _check_buffer(op: Op, value: Value) -> None:
    layout = value.layout
    require(
        layout is not None
        and [dim.name for dim in layout.ins] == [OFFSET]
        and layout.shape == shape_of(value.type)
        and layout.is_invertible(),
        op,
        CODE,
        "a buffer {type} that is accessed needs an invertible layout over offsets, not {layout}",
        type=value.type,
        layout=layout,
    )


# -- ops ------------------------------------------------------------------------------------------


def _check_op(op: Op, ctx: PassContext) -> None:
    """Verify the layouts of an op's operands and results."""
    for value in op.operands:
        if isinstance(value.type, Shared) and _accesses(op):
            _check_buffer(op, value)
    anchor = ANCHORS.get(type(op))
    if anchor is not None:
        demands = anchor(op, ctx)
        _check_all(op, op.operands, demands.operands)
        _check_all(op, op.results, demands.results)
    elif propagates_layout(op):
        _check_propagating(op)
    elif derives_from_first_operand(op):
        _check_derived(op)
    elif isinstance(op, Load | Store | AnyAtomic | CopyAsync):
        tiles = [v for v in (*op.operands, *op.results) if is_tile(v)]
        _check_all(op, tiles, [tiles[0].layout] * len(tiles) if tiles else [])
    elif isinstance(op, PermuteBuffer):
        if op.buffer.layout is not None:
            _check_all(op, op.results, [transpose(op.buffer.layout, op.order)])
    else:
        _check_control(op)


def _accesses(op: Op) -> bool:
    """Whether the op reads or writes the elements of its buffers, so that they need layouts."""
    return isinstance(op, Fetch | Share | CopyAsync) or type(op) in ANCHORS


def _check_propagating(op: Op) -> None:
    (result,) = op.results
    if result.layout is not None and any(is_tile(v) for v in op.operands):
        expected = operand_layout(op, result.layout)
        _check_all(op, op.operands, [expected] * len(op.operands))


def _check_derived(op: Op) -> None:
    source = op.operands[0].layout
    assert source is not None, "operands are verified at their definitions"
    demands = derived_demands(op, source)
    _check_all(op, op.operands, demands.operands)
    _check_all(op, op.results, demands.results)


def _check_control(op: Op) -> None:
    match op:
        case For():
            carried = [v.layout for v in op.body.args[1:]]
            for values in (op.inits, op.body.terminator.operands, op.results):
                _check_all(op, values, carried)
        case While():
            carried = [v.layout for v in op.before.args]
            _check_all(op, op.inits, carried)
            _check_all(op, op.body.terminator.operands, carried)
            end = op.before.terminator
            assert isinstance(end, Condition)
            passed = [v.layout for v in op.body.args]
            _check_all(op, end.values, passed)
            _check_all(op, op.results, passed)
        case If():
            for branch in op.regions:
                _check_all(op, branch.terminator.operands, [v.layout for v in op.results])
        case _:
            pass


def _check_all(op: Op, values: Sequence[Value], layouts: Sequence[LinearLayout | None]) -> None:
    """Verify that each tile has the corresponding layout."""
    for value, expected in zip(values, layouts, strict=True):
        if is_tile(value) or isinstance(op, PermuteBuffer):
            require(
                value.layout == expected,
                op,
                CODE,
                "a tile {type} has the layout {found}, expected {expected}",
                type=value.type,
                found=value.layout,
                expected=expected,
            )
