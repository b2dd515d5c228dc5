"""Layout assignment: which register of which lane of which warp holds which element of each tile.

Input: tile IR with pointers in canonical form, so that axis information reaches the accesses.
Output: a layout on each tile, and `gpu.convert_layout` where a value is used in another layout.
Values that were rematerialised leave dead originals, for dce. Invariant: the operands and results
of each op satisfy the layout rules of the op (`layout_rules`, `ANCHORS`), as `verify_layouts`
checks.

1. Memory accesses (coalesced) and matrix instructions (`ANCHORS`) determine layouts. These are
   propagated forward, through loops, to the ops that work in any layout. Where several layouts
   reach a value, the one with the higher priority wins (`layout_choice`).
2. Ops between accesses and matrix instructions are moved to the layout that minimises conversions,
   by a min-cut (`layout_sides`).
3. Each op then requires its operands in particular layouts. A value that is cheap to compute, such
   as an index or a mask, is rematerialised in each layout in which it is used; other values are
   converted, once per layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tilewright.analysis.pointers import may_write
from tilewright.ir.core import Function, Op, Region, Value, is_tile
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_after, insert_before
from tilewright.ir.types import element_of
from tilewright.layout.convert import register_sources
from tilewright.layout.linear import REGISTER, LinearLayout
from tilewright.ops.arith import Cast, Div
from tilewright.ops.atomic import Reading
from tilewright.ops.control import For, If, While
from tilewright.ops.gpu import ConvertLayout, unconverted
from tilewright.ops.math import MathFunction
from tilewright.ops.memory import Load
from tilewright.ops.view import View
from tilewright.passes.access_layouts import pointee_bytes
from tilewright.passes.layout_choice import ANCHORS, LayoutChoice
from tilewright.passes.layout_rules import (
    Demands,
    derived_demands,
    derives_from_first_operand,
    operand_layout,
    propagates_layout,
)
from tilewright.passes.layout_sides import (
    REPEATED,
    choose_sides,
    duplicates,
    is_store,
)

LOADED_AGAIN = 4
"""Accesses of a thread up to which a small tile is loaded in each of its layouts. Rows of results
of matrix instructions take 2 or 4; columns take more, so that exchanging them is cheaper."""

VECTORS_AGAIN = 16
"""Elements of a thread up to which what is computed from a vector that is loaded again is computed
again, such as widened weights. With tiles of 16 x 16 and a selection, a kernel took 7 % longer."""


@compiler_pass("assign_layouts", required=True)
def assign_layouts(fn: Function, ctx: PassContext) -> bool:
    """Assign a layout to each tile and insert layout conversions; see the module docstring."""
    choice = LayoutChoice(fn, ctx)
    choice.propagate()
    if changed := choose_sides(fn, choice):
        ctx.count("changed sides", changed)
    _Conversion(choice).run()
    return True


def _size_of(value: Value) -> int:
    """Bytes per element."""
    return element_of(value.type).nbytes_in_memory


def _elements(layout: LinearLayout) -> int:
    """The number of elements of a tile that a thread has."""
    return layout.in_size(REGISTER) >> layout.free_variables(REGISTER).bit_count()


def _widens(op: Op) -> bool:
    """Whether the operand has fewer bytes than the result, so that it is cheaper to convert."""
    return isinstance(op, Cast) and _size_of(op.src) < _size_of(op.result)


class _Conversion:
    """The insertion of conversions, for the selected layouts.

    Attributes:
        choice: the chosen layouts.
        copies: the conversions and rematerialisations of values, by layout.
    """

    def __init__(self, choice: LayoutChoice) -> None:
        self.choice = choice
        self.ctx = choice.ctx
        self.infos = choice.infos
        self.copies: dict[tuple[Value, LinearLayout], Value] = {}
        self.writes = [op for op in choice.fn.walk() if op.is_write()]
        # The op that was copied last, while its operands are not in their layout, and this layout.
        self._copied: tuple[Op, LinearLayout | None] | None = None

    def run(self) -> None:
        self._convert_region(self.choice.fn.body)

    def _convert_region(self, region: Region) -> None:
        for op in list(region):
            self._convert_op(op)

    def _convert_op(self, op: Op) -> None:
        if propagates_layout(op):
            if op.results[0] in self.choice.assigned:
                assigned = self.choice.assigned[op.results[0]].layout
                self._set_operands(op, [operand_layout(op, assigned)] * len(op.operands))
                self._set_results(op, [assigned])
            elif not is_tile(op.results[0]):
                self._set_operands(op, [self.choice.layout_of(v) for v in op.operands])
            return
        match op:
            case For():
                carried = [self.choice.layout_of(a) for a in op.body.args[1:]]
                self._set_operands(op, [None, None, None, *carried])
                self._convert_nested(op.body, [None, *carried], carried)
                self._set_results(op, carried)
            case While():
                self._convert_while(op)
            case If():
                results = [self.choice.layout_of(r) for r in op.results]
                for branch in op.regions:
                    self._convert_nested(branch, [], results)
                self._set_results(op, results)
            case _:
                demands = self._demands(op)
                self._set_operands(op, demands.operands)
                self._set_results(op, demands.results)

    def _convert_while(self, op: While) -> None:
        carried = [self.choice.layout_of(a) for a in op.before.args]
        passed = [self.choice.layout_of(a) for a in op.body.args]
        self._set_operands(op, carried)
        self._convert_nested(op.before, carried, [None, *passed])
        self._convert_nested(op.body, passed, carried)
        self._set_results(op, passed)

    def _convert_nested(
        self,
        region: Region,
        args: Sequence[LinearLayout | None],
        yields: Sequence[LinearLayout | None],
    ) -> None:
        for arg, layout in zip(region.args, args, strict=True):
            arg.layout = layout
        self._convert_body(region)
        self._set_operands(region.terminator, yields)

    def _convert_body(self, region: Region) -> None:
        for op in list(region):
            if not op.terminator:
                self._convert_op(op)

    def _demands(self, op: Op) -> Demands:
        """The layouts of the operands and results of an op that does not work in any layout."""
        anchor = ANCHORS.get(type(op))
        if anchor is not None:
            return anchor(op, self.ctx)
        count = len(op.operands)
        match op:
            case _ if is_store(op) and is_tile(op.ptr):
                layout = self.choice.store_layout(op)
                return Demands([layout] * count, [layout] * len(op.results))
            case _ if isinstance(op, Load | Reading) and is_tile(op.ptr):
                layout = self.choice.layout_of(op.result)
                return Demands([layout if is_tile(v) else None for v in op.operands], [layout])
            case _ if derives_from_first_operand(op):
                return derived_demands(op, self.choice.source(op).layout)
            case _:
                # No requirement: scalars, and ops whose lowering moves elements itself.
                return Demands(
                    [self.choice.layout_of(v) for v in op.operands],
                    [self.choice.layout_of(r) for r in op.results],
                )

    def _set_operands(self, op: Op, layouts: Sequence[LinearLayout | None]) -> None:
        """Set the operands of an op in these layouts; each op that is cloned for it gets its own
        operands.

        Without recursion, as chains of ops are as long as kernels.
        """
        pending = [_requirements(op, layouts)]
        while pending:
            required = next(pending[-1], None)
            if required is None:
                pending.pop()
                continue
            user, i, value, layout = required
            user.set_operand(i, self._in_layout(value, layout))
            if self._copied is not None:
                copy, layout = self._copied
                self._copied = None
                pending.append(_requirements(copy, [layout] * len(copy.operands)))

    def _set_results(self, op: Op, layouts: Sequence[LinearLayout | None]) -> None:
        for result, layout in zip(op.results, layouts, strict=True):
            if is_tile(result):
                result.layout = layout

    def _in_layout(self, value: Value, layout: LinearLayout) -> Value:
        """The value in this layout: itself, a rematerialisation, or a conversion."""
        value = unconverted(value)
        if value.layout == layout:
            return value
        result = self.copies.get((value, layout))
        if result is None:
            op = value.op
            cheap = op is not None and (
                (propagates_layout(op) and self._is_cheap(op, value, layout))
                or self._is_loaded_again(value, layout)
            )
            result = (
                self._rematerialised(op, layout) if op and cheap else self._converted(value, layout)
            )
            self.copies[value, layout] = result
            self.infos.set(result, self.infos[value])
        return result

    def _is_cheap(self, op: Op, value: Value, layout: LinearLayout) -> bool:
        """Whether an op that works in any layout takes less in this one than a conversion of its
        result.

        Repeated elements are computed again in another layout, such as the addresses of rows by a
        table, but not several times: each warp that takes an operand of a matrix instruction would
        unpack all of it.
        """
        assigned = self.choice.assigned.get(value)
        if assigned is None or _widens(op):
            return True
        again = isinstance(op, View) or not self.choice.has_products or not duplicates(layout)
        return assigned.priority == REPEATED and again

    def _is_loaded_again(self, value: Value, layout: LinearLayout, depth: int = 8) -> bool:
        """Whether a small tile, or a value computed from it, is also loaded in another layout
        instead of being converted: a conversion takes two barriers, but the tile is in the cache.

        The second load is next to the first one, so that no write is between them. But no thread
        waits for those of others: what one has stored behind its load must not be what another
        loads. What its address and mask depend on is loaded or computed again likewise.
        """
        op, first = value.op, value.layout
        if first == layout:
            return True
        if op is None or len(op.results) > 1:
            return False
        if first is None or value not in self.choice.assigned:
            return propagates_layout(op)  # it is computed in each layout anyway
        if not depth or not self._is_small(first):
            return False
        if isinstance(op, Load):
            most = LOADED_AGAIN * self._adjacent(op, layout)
        else:
            is_vector = prod(layout.shape) == max(layout.shape)
            most = VECTORS_AGAIN if is_vector else LOADED_AGAIN
        if _elements(layout) > most:
            return False
        required = layout
        if isinstance(op, Load):
            if op.volatile or register_sources(first, layout) is not None or self._is_written(op):
                return False
        elif propagates_layout(op) and not isinstance(op, MathFunction | Div):
            required = operand_layout(op, layout)
        else:
            return False
        return all(self._is_loaded_again(v, required, depth - 1) for v in op.operands if is_tile(v))

    def _adjacent(self, load: Load, layout: LinearLayout) -> int:
        """The number of elements that a thread would load at once in a layout."""
        axis = self.infos[load.ptr].order[0]
        length = self.infos.access_length(load.ptr, load.mask, axis, pointee_bytes(load.ptr))
        return min(length, layout.num_consecutive((axis,)))

    def _is_written(self, load: Load) -> bool:
        """Whether the kernel may write the memory that a load reads."""
        return any(may_write(self.choice.fn, op, load.ptr) for op in self.writes)

    def _is_small(self, layout: LinearLayout) -> bool:
        return prod(layout.shape) <= self.ctx.gpu.threads

    def _rematerialised(self, op: Op, layout: LinearLayout) -> Value:
        copy = op.clone({})
        assert op.parent is not None
        op.parent.insert_after(copy, op)
        if any(is_tile(v) for v in copy.operands):
            required = layout if isinstance(op, Load) else operand_layout(op, layout)
            self._copied = copy, required
        self._set_results(copy, [layout])
        self.ctx.count("rematerialised")
        return copy.results[0]

    def _converted(self, value: Value, layout: LinearLayout) -> Value:
        conversion = ConvertLayout(value)
        region = value.region
        assert region is not None
        if value.op is not None:
            insert_after(conversion, value.op)
        elif region.first is not None:
            insert_before(conversion, region.first)
        conversion.result.layout = layout
        self.ctx.count("converted")
        return conversion.result


def _requirements(
    op: Op, layouts: Sequence[LinearLayout | None]
) -> Iterator[tuple[Op, int, Value, LinearLayout]]:
    """The tiles that an op takes, with their places and the layouts that it takes them in."""
    for i, (value, layout) in enumerate(zip(list(op.operands), layouts, strict=True)):
        if layout is not None and is_tile(value):
            yield op, i, value, layout
