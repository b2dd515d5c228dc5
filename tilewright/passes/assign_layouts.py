"""Decides where each tile lives: which register of which lane of which warp has which element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import Pointer, element_of, shape_of
from tilewright.layout.families import row_major
from tilewright.layout.linear import LinearLayout
from tilewright.ops.arith import Cast
from tilewright.ops.atomic import AnyAtomic, AtomicStore, Reading
from tilewright.ops.control import For, If, While
from tilewright.ops.gpu import ConvertLayout
from tilewright.ops.memory import Load, Store
from tilewright.passes.layout_rules import (
    Demands,
    coalesced,
    combines,
    demands_from,
    follows,
    is_tile,
    operand_layout,
    per_thread,
    result_layout,
    run_of_a_warp,
)
from tilewright.passes.layout_sides import ACCESS, DEFAULT, MATRIX, Home, choose_sides

VECTOR_BYTES = 16  # the widest access of a thread
SECTOR_BYTES = 32  # what memory moves at once
MAX_ROUNDS = 8


# Ops with layouts of their own, such as a target's matrix instructions.
ANCHORS: dict[type[Op], Callable[[Any, PassContext], Demands]] = {}


@compiler_pass("assign_layouts")
def assign_layouts(fn: Function, ctx: PassContext) -> bool:
    """Give each tile a layout, and convert where two meet.

    Needs: pointers in canonical form, so that axis information reaches the accesses.
    Leaves: a layout on each tile; the originals of values that were made again, dead, for dce.

    Layouts come from where it matters: accesses of memory (coalesced) and matrix instructions.
    From there they flow forward, through loops too, until each value that costs anything has its
    *home*. Ops between the two kinds then go to the side to which less has to be moved
    (`layout_sides`). Then each op asks for its operands in its own layout. What is cheap to
    compute, such as indices and masks, is made again in each layout that is asked for; the rest is
    converted.
    """
    _Assignment(fn, ctx).run()
    return True


def _size_of(value: Value) -> int:
    """Bytes of an element."""
    return element_of(value.type).nbytes_in_memory


def _size_behind(pointer: Value) -> int:
    """Bytes of an element that a pointer points to."""
    element = element_of(pointer.type)
    assert isinstance(element, Pointer)
    return element.element_ty.nbytes_in_memory


def _widens(op: Op) -> bool:
    """Whether less is to be moved before the op than after it."""
    return isinstance(op, Cast) and _size_of(op.src) < _size_of(op.result)


class _Assignment:
    def __init__(self, fn: Function, ctx: PassContext) -> None:
        self.fn = fn
        self.ctx = ctx
        self.warps: int = ctx.gpu.warps
        self.lanes: int = ctx.gpu.lanes
        self.infos: AxisMap = axis_info(fn)
        self.homes: dict[Value, Home] = {}
        self.made: dict[tuple[Value, LinearLayout], Value] = {}
        self.vectors = self._vectors()

    def run(self) -> None:
        for _ in range(MAX_ROUNDS):
            before = dict(self.homes)
            self._find_homes(self.fn.body)
            if self.homes == before:
                break
        if changed := choose_sides(self.fn, self):
            self.ctx.count("changed sides", changed)
        self._place_region(self.fn.body)

    # -- accesses -------------------------------------------------------------------------------

    def _access(self, pointer: Value) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Shape, order of its axes from the fastest, and longest vector of an access."""
        info = self.infos[pointer]
        extents = shape_of(pointer.type)
        order = tuple(
            sorted(row_major(len(extents)), key=lambda axis: -info.contiguity[axis])
        )  # stable: the last axis is the fastest where nothing is known
        size = _size_behind(pointer)
        vector = min(info.vector_length(order[0], size), VECTOR_BYTES // size)
        return extents, order, vector

    def _vectors(self) -> dict[tuple[tuple[int, ...], tuple[int, ...]], int]:
        """Elements along the fastest axis that a thread holds, by shape and order.

        Accesses of one shape share a layout, the one with the most elements a thread, so that
        values of different element types meet without a conversion. But what is written is never
        more than one vector: a warp's write would leave half of each sector to the next, and
        memory take each sector twice. (What is read twice comes from the nearest cache.)
        """
        longest: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        whole: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for op in self.fn.walk():
            if isinstance(op, Load | Store | AnyAtomic) and is_tile(op.ptr):
                extents, order, vector = self._access(op.ptr)
                key = extents, order
                size = _size_behind(op.ptr)
                if not isinstance(op, Load | Reading) and vector * size == VECTOR_BYTES:
                    whole[key] = min(whole.get(key, vector), vector)
                vector = min(vector, per_thread(extents, self.lanes, self.warps))
                longest[key] = max(longest.get(key, 1), vector)
        return {key: min(vector, whole.get(key, vector)) for key, vector in longest.items()}

    def _memory_layout(self, pointer: Value) -> LinearLayout:
        extents, order, _ = self._access(pointer)
        return coalesced(extents, order, self.vectors[extents, order], self.lanes, self.warps)

    def any_layout(self, value: Value) -> LinearLayout:
        extents = shape_of(value.type)
        order = row_major(len(extents))
        vector = self.vectors.get((extents, order), 1)
        return coalesced(extents, order, vector, self.lanes, self.warps)

    def store_layout(self, op: Store | AtomicStore) -> LinearLayout:
        """The value's own layout if a warp fills whole sectors in it, else the best one."""
        best = self._memory_layout(op.ptr)
        home = self.homes.get(op.value)
        if home is None:
            return best
        _, order, vector = self._access(op.ptr)
        size = _size_of(op.value)
        wanted = min(SECTOR_BYTES, size * run_of_a_warp(best, order, vector))
        return home.layout if size * run_of_a_warp(home.layout, order, vector) >= wanted else best

    # -- homes ----------------------------------------------------------------------------------

    def _settle(self, value: Value, home: Home | None) -> None:
        """Give a value a home, unless it has one for as strong a reason."""
        known = self.homes.get(value)
        if is_tile(value) and home and (known is None or home.strength > known.strength):
            self.homes[value] = home

    def _find_homes(self, region: Region) -> None:
        for op in region:
            match op:
                case For():
                    self._merge(op.body.args[1:], op.inits)
                    self._find_homes(op.body)
                    self._merge(op.body.args[1:], op.body.terminator.operands)
                    self._merge(op.results, op.body.args[1:])
                case While():
                    self._merge(op.before.args, op.inits)
                    self._find_homes(op.before)
                    self._merge(op.body.args, op.before.terminator.operands[1:])
                    self._find_homes(op.body)
                    self._merge(op.before.args, op.body.terminator.operands)
                    self._merge(op.results, op.body.args)
                case If():
                    for branch in op.regions:
                        self._find_homes(branch)
                        self._merge(op.results, branch.terminator.operands)
                case _:
                    self._find_op_homes(op)

    def _merge(self, values: Sequence[Value], sources: Sequence[Value]) -> None:
        for value, source in zip(values, sources, strict=True):
            self._settle(value, self.homes.get(source))

    def _find_op_homes(self, op: Op) -> None:
        if follows(op):
            homes = [self.homes[v] for v in op.operands if v in self.homes]
            if homes:
                strength, layout = max(homes, key=lambda home: home.strength)
                found = result_layout(op, layout)
                if found is not None:
                    self._settle(op.results[0], Home(strength, found))
            return
        anchor = ANCHORS.get(type(op))
        if anchor is not None:
            for result, layout in zip(op.results, anchor(op, self.ctx).results, strict=True):
                self._settle(result, Home(MATRIX, layout) if layout is not None else None)
            return
        match op:
            case _ if isinstance(op, Load | Reading) and is_tile(op.ptr):
                self._settle(op.result, Home(ACCESS, self._memory_layout(op.ptr)))
            case _ if combines(op):
                source = self._source(op)
                demands = demands_from(op, source.layout)
                for result, layout in zip(op.results, demands.results, strict=True):
                    self._settle(result, Home(source.strength, layout) if layout else None)
            case _:
                pass

    def _source(self, op: Op) -> Home:
        """The strongest home of the operands that are shaped like the first; else any layout."""
        first = op.operands[0]
        homes = [
            self.homes[v]
            for v in op.operands
            if v in self.homes and shape_of(v.type) == shape_of(first.type)
        ]
        if homes:
            return max(homes, key=lambda home: home.strength)
        return Home(DEFAULT, self.any_layout(first))

    # -- placing --------------------------------------------------------------------------------

    def _home(self, value: Value) -> LinearLayout | None:
        if not is_tile(value):
            return None
        home = self.homes.get(value)
        return home.layout if home is not None else self.any_layout(value)

    def _place_region(self, region: Region) -> None:
        for op in list(region):
            self._place(op)

    def _place(self, op: Op) -> None:
        if follows(op):
            if op.results[0] in self.homes:
                home = self.homes[op.results[0]].layout
                self._take(op, [operand_layout(op, home)] * len(op.operands))
                self._give(op, [home])
            elif not is_tile(op.results[0]):
                self._take(op, [self._home(v) for v in op.operands])
            return
        match op:
            case For():
                carried = [self._home(a) for a in op.body.args[1:]]
                self._take(op, [None, None, None, *carried])
                self._enter(op.body, [None, *carried], carried)
                self._give(op, carried)
            case While():
                self._place_while(op)
            case If():
                results = [self._home(r) for r in op.results]
                for branch in op.regions:
                    self._enter(branch, [], results)
                self._give(op, results)
            case _:
                demands = self._demands(op)
                self._take(op, demands.operands)
                self._give(op, demands.results)

    def _place_while(self, op: While) -> None:
        carried = [self._home(a) for a in op.before.args]
        passed = [self._home(a) for a in op.body.args]
        self._take(op, carried)
        self._enter(op.before, carried, [None, *passed])
        self._enter(op.body, passed, carried)
        self._give(op, passed)

    def _enter(
        self,
        region: Region,
        args: Sequence[LinearLayout | None],
        yields: Sequence[LinearLayout | None],
    ) -> None:
        for arg, layout in zip(region.args, args, strict=True):
            arg.layout = layout
        self._place_region_body(region)
        self._take(region.terminator, yields)

    def _place_region_body(self, region: Region) -> None:
        for op in list(region):
            if not op.terminator:
                self._place(op)

    def _demands(self, op: Op) -> Demands:
        """The layouts of an op that has its own."""
        anchor = ANCHORS.get(type(op))
        if anchor is not None:
            return anchor(op, self.ctx)
        count = len(op.operands)
        match op:
            case _ if isinstance(op, Load | Reading) and is_tile(op.ptr):
                layout = self._home(op.result)
                return Demands([layout if is_tile(v) else None for v in op.operands], [layout])
            case Store() | AtomicStore() if is_tile(op.ptr):
                return Demands([self.store_layout(op)] * count, [])
            case _ if combines(op):
                return demands_from(op, self._source(op).layout)
            case _:
                # Each operand as it is: scalars, and what the lowering moves by itself.
                return Demands(
                    [self._home(v) for v in op.operands], [self._home(r) for r in op.results]
                )

    def _take(self, op: Op, layouts: Sequence[LinearLayout | None]) -> None:
        for i, (value, layout) in enumerate(zip(list(op.operands), layouts, strict=True)):
            if layout is not None and is_tile(value):
                op.set_operand(i, self._in_layout(value, layout))

    def _give(self, op: Op, layouts: Sequence[LinearLayout | None]) -> None:
        for result, layout in zip(op.results, layouts, strict=True):
            if is_tile(result):
                result.layout = layout

    def _in_layout(self, value: Value, layout: LinearLayout) -> Value:
        """The value in this layout: as it is, made again, or converted."""
        if value.layout == layout:
            return value
        found = self.made.get((value, layout))
        if found is None:
            op = value.op
            remake = op is not None and follows(op) and (value not in self.homes or _widens(op))
            found = self._remade(op, layout) if op and remake else self._converted(value, layout)
            self.made[value, layout] = found
        return found

    def _remade(self, op: Op, layout: LinearLayout) -> Value:
        copy = op.clone({})
        assert op.parent is not None
        op.parent.insert_after(copy, op)
        if any(is_tile(v) for v in copy.operands):
            self._take(copy, [operand_layout(op, layout)] * len(copy.operands))
        self._give(copy, [layout])
        self.ctx.count("made again")
        return copy.results[0]

    def _converted(self, value: Value, layout: LinearLayout) -> Value:
        conversion = ConvertLayout(value)
        region = value.region
        assert region is not None
        if value.op is not None:
            conversion.loc = value.op.loc
            region.insert_after(conversion, value.op)
        elif region.first is not None:
            conversion.loc = region.first.loc
            region.insert_before(conversion, region.first)
        conversion.result.layout = layout
        self.ctx.count("converted")
        return conversion.result
