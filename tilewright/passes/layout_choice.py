"""The choice of layouts: from accesses and matrix instructions to the ops that work in any layout.

Where several layouts reach a value, the one with the higher priority wins. A propagation converges
in a few rounds over the function, at most `MAX_ROUNDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.ir.core import Function, Op, Region, Value, is_tile
from tilewright.ir.op_table import OpTable
from tilewright.ir.passes import PassContext, optional_part
from tilewright.ir.types import shape_of
from tilewright.layout.linear import LinearLayout
from tilewright.ops.atomic import Reading
from tilewright.ops.control import For, If, While
from tilewright.ops.memory import Load
from tilewright.passes.access_layouts import AccessLayouts
from tilewright.passes.layout_rules import (
    Demands,
    derived_demands,
    derives_from_first_operand,
    propagates_layout,
    repeated_layout,
    result_layout,
)
from tilewright.passes.layout_sides import (
    ACCESS,
    DEFAULT,
    FIRST,
    REPEATED,
    AnyStore,
    Assigned,
    Pair,
    Shape,
    is_store,
)

WARP_ROWS = optional_part("warp_rows")
MAX_ROUNDS = 8

Anchor = Callable[[Any, PassContext], Demands]
ANCHORS: OpTable[Anchor] = OpTable("prescribed layouts")
"""Ops that prescribe layouts, such as the matrix instructions of a target."""


class LayoutChoice:
    """The layouts of the values of a function.

    Attributes:
        assigned: the layout of each value that is not cheap to rematerialise.
        has_products: whether there are ops that prescribe layouts.
        accesses, accessed: the layouts of accesses, and those of shapes that have two.
        anchored: the ops that prescribe layouts whose results have got them.
    """

    def __init__(self, fn: Function, ctx: PassContext) -> None:
        self.fn = fn
        self.ctx = ctx
        self.infos: AxisMap = axis_info(fn)
        self.assigned: dict[Value, Assigned] = {}
        self.has_products = any(type(op) in ANCHORS for op in fn.walk())
        self.accesses = AccessLayouts(fn, ctx, self.infos, has_products=self.has_products)
        self.accessed: Mapping[Shape, Pair] = self.accesses.accessed
        self.anchored: set[Op] = set()

    def propagate(self) -> None:
        if self.has_products and self.ctx.enabled(WARP_ROWS):
            # These layouts take precedence, so that no others are needed to determine them.
            _Propagation(self, only_matrices=True).run()
            self.accesses.follow(self.assigned)
        _Propagation(self, only_matrices=False).run()

    def assign(self, value: Value, assigned: Assigned | None) -> None:
        """Assign a layout to a value, unless it has one of the same or a higher priority."""
        known = self.assigned.get(value)
        if is_tile(value) and assigned and (known is None or assigned.priority > known.priority):
            self.assigned[value] = assigned

    def layout_of(self, value: Value) -> LinearLayout | None:
        """The layout of a tile; None for other values."""
        if not is_tile(value):
            return None
        assigned = self.assigned.get(value)
        return assigned.layout if assigned is not None else self.default_layout(value)

    def source(self, op: Op) -> Assigned:
        """The layout of the highest priority among the operands with the shape of the first one; a
        default layout if none is assigned."""
        first = op.operands[0]
        assigned = [
            self.assigned[v]
            for v in op.operands
            if v in self.assigned and shape_of(v.type) == shape_of(first.type)
        ]
        if assigned:
            return max(assigned, key=lambda assigned: assigned.priority)
        return Assigned(DEFAULT, self.default_layout(first))

    def default_layout(self, value: Value) -> LinearLayout:
        return self.accesses.default(value)

    def store_layout(self, op: AnyStore) -> LinearLayout:
        assigned = self.assigned.get(op.value)
        return self.accesses.of_store(op, assigned.layout if assigned is not None else None)


class _Propagation:
    """One propagation through a function.

    Attributes:
        only_matrices: whether only layouts that ops prescribe are propagated.
    """

    def __init__(self, choice: LayoutChoice, *, only_matrices: bool) -> None:
        self.choice = choice
        self.only_matrices = only_matrices

    def run(self) -> None:
        for _ in range(MAX_ROUNDS):
            before = dict(self.choice.assigned)
            self._propagate(self.choice.fn.body)
            if self.choice.assigned == before:
                break

    def _propagate(self, region: Region) -> None:
        for op in region:
            match op:
                case For():
                    self._merge(op.body.args[1:], op.inits)
                    self._propagate(op.body)
                    self._merge(op.body.args[1:], op.body.terminator.operands)
                    self._merge(op.results, op.body.args[1:])
                case While():
                    self._merge(op.before.args, op.inits)
                    self._propagate(op.before)
                    self._merge(op.body.args, op.before.terminator.operands[1:])
                    self._propagate(op.body)
                    self._merge(op.before.args, op.body.terminator.operands)
                    self._merge(op.results, op.body.args)
                case If():
                    for branch in op.regions:
                        self._propagate(branch)
                        self._merge(op.results, branch.terminator.operands)
                case _:
                    self._propagate_op(op)

    def _merge(self, values: Sequence[Value], sources: Sequence[Value]) -> None:
        for value, source in zip(values, sources, strict=True):
            self.choice.assign(value, self.choice.assigned.get(source))

    def _propagate_op(self, op: Op) -> None:
        if propagates_layout(op):
            assigned = [self.choice.assigned[v] for v in op.operands if v in self.choice.assigned]
            if assigned:
                priority, layout = max(assigned, key=lambda assigned: assigned.priority)
                found = result_layout(op, layout)
                if found is None and not self.only_matrices:
                    priority, found = REPEATED, repeated_layout(op, layout)
                if found is not None:
                    self.choice.assign(op.results[0], Assigned(priority, found))
            return
        if type(op) in ANCHORS:
            self._assign_prescribed(op)
            return
        match op:
            case _ if is_store(op):
                pass
            case _ if isinstance(op, Load | Reading) and is_tile(op.ptr):
                if not self.only_matrices:
                    self._assign_loaded(op)
            case _ if derives_from_first_operand(op):
                source = self.choice.source(op)
                if self.only_matrices and source.priority != FIRST:
                    return
                demands = derived_demands(op, source.layout)
                for result, layout in zip(op.results, demands.results, strict=True):
                    self.choice.assign(
                        result, Assigned(source.priority, layout) if layout else None
                    )
            case _:
                pass

    def _assign_loaded(self, op: Load | Reading) -> None:
        layout = self.choice.accesses.of_load(op)
        first, _ = self.choice.accessed.get(shape_of(op.ptr.type), (None, None))
        self.choice.assign(op.result, Assigned(FIRST if layout == first else ACCESS, layout))

    def _assign_prescribed(self, op: Op) -> None:
        if op in self.choice.anchored:
            return
        self.choice.anchored.add(op)
        prescribed = ANCHORS[type(op)](op, self.choice.ctx)
        for result, layout in zip(op.results, prescribed.results, strict=True):
            self.choice.assign(result, Assigned(FIRST, layout) if layout is not None else None)
