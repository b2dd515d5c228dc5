"""Strip-mining of elementwise computations on tiles that are too large for fast memory: registers,
or its equivalent on other targets.

Input: tile IR without layouts, with pointers in canonical form and equal values merged. Output:
sequences of loads, elementwise ops and stores of tiles of one shape become loops over parts of the
tiles, so that memory is needed for one part only; the originals are left dead. A sequence qualifies
if the loaded tiles have no other uses. The target determines the number of parts: `strip_mine` does
for GPUs, a function passed to `mine_strips` for others.

The stores of a part precede the loads of the next one. So accesses that may overlap must have equal
offsets, all of them distinct, and either the same base or, on a GPU, two arguments of the kernel
(these are assumed not to overlap partially). The order of the elements of a tile is otherwise
unspecified when several warps execute a program; programs of one warp are not changed.

Linear in the number of ops, for each axis that is tried, plus stores times accesses for aliases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.analysis.pointers import may_overlap, split_pointer
from tilewright.base.lazy import cached_property
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Region, Value, is_tile
from tilewright.ir.machine import GpuMachine
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import I1, I32, element_of, shape_of
from tilewright.ops import arith
from tilewright.ops.control import For, Yield
from tilewright.ops.memory import Load, Store
from tilewright.passes.layout_rules import per_thread
from tilewright.passes.parts import (
    MAX_RECOMPUTED,
    Part,
    divided_axes,
    is_index,
    operands_first,
    pressure,
)

NAME = "strip_mine"

MAX_REGISTERS = 96
"""The maximum number of registers per thread for live tiles before they are strip-mined. A loss
with four exponentials on tiles of 32 elements per thread, 6 of them live at once, used 128
registers on an H200, which limited a multiprocessor to 16 warps, and took 1.86 ms; in two parts it
used 48 registers and took 1.53 ms."""

MAX_SHARE = 0.75
"""The maximum share of the registers available to a thread: a loss on two such tiles in 1024
threads, which have 64 registers each, spilled 50."""

VECTOR_BYTES = 16  # the minimum number of bytes of a part per thread and access


@compiler_pass(NAME)
def strip_mine(fn: Function, ctx: PassContext) -> bool:
    """Strip-mine sequences of ops on large tiles; see the module docstring."""
    if ctx.gpu.warps == 1:
        return False
    return mine_strips(fn, ctx, partial(_parts_on_gpu, ctx.gpu), ordered=False)


Decide = Callable[["Strips"], int]
"""The number of parts, a power of two, for the live tiles to fit; 1 if they already do."""


def mine_strips(fn: Function, ctx: PassContext, decide: Decide, *, ordered: bool) -> bool:
    """Strip-mine the sequences that need several parts.

    Args:
        fn: the kernel.
        ctx: for remarks.
        decide: returns the number of parts.
        ordered: whether a tile is loaded wholly before it is stored, also if two arguments overlap
            partially.
    """
    changed = False
    for region in [fn.body, *(region for op in fn.walk() for region in op.regions)]:
        for ops in _sequences(region):
            strips = Strips(fn, ops, ordered)
            parts = decide(strips)
            if parts > 1 and strips.find(parts):
                shape = "x".join(map(str, strips.shape))
                ctx.did(
                    NAME, f"tiles of {shape} are computed in {parts} parts", strips.stores[0].loc
                )
                ctx.count("strips")
                strips.rewrite(parts)
                changed = True
    return changed


def _sequences(region: Region) -> Iterator[list[Op]]:
    """Maximal sequences of pure ops, loads of tiles and stores of tiles, with at least one
    store."""
    run: list[Op] = []
    for op in list(region):
        if _computes(op) or _accesses(op):
            run.append(op)
            continue
        if any(isinstance(o, Store) for o in run):
            yield run
        run = []


def _computes(op: Op) -> bool:
    return op.pure and not op.regions and not op.terminator


def _accesses(op: Op) -> bool:
    if isinstance(op, Load):
        return is_tile(op.ptr) and not op.volatile
    return isinstance(op, Store) and is_tile(op.ptr)


class Strips:
    """The transformation of one sequence of ops.

    Attributes:
        ordered: see `mine_strips`.
        shape: the shape of the stored tiles.
        axes: for each value that is computed in parts, the axis along which it is divided.
    """

    def __init__(self, fn: Function, ops: list[Op], ordered: bool) -> None:
        self.fn = fn
        self.ops = ops
        self.ordered = ordered
        self.stores = [op for op in ops if isinstance(op, Store)]
        self.loads = [op for op in ops if isinstance(op, Load)]
        self.shape = shape_of(self.stores[0].ptr.type)
        self.axes: dict[Value, int] = {}
        self._inside = set(ops)
        self._outside: list[Op] = []

    # -- profitability --------------------------------------------------------------------------

    def narrowest(self) -> int:
        """The bytes of the narrowest element that is loaded or stored."""
        accesses = [op.result if isinstance(op, Load) else op.value for op in self._accesses()]
        return min(element_of(value.type).nbytes_in_memory for value in accesses)

    def pressure(self, cost: Callable[[Value], int]) -> int:
        """The maximum cost of the tiles that are live at a time, for each of their elements."""
        return pressure(self.ops, self.shape, cost)

    def _accesses(self) -> list[Load | Store]:
        return [*self.loads, *self.stores]

    # -- legality -------------------------------------------------------------------------------

    def find(self, parts: int) -> bool:
        """Choose the slowest-varying axis that is legal, and set `axes`; False if there is none."""
        if not self._may_interleave():
            return False
        axes = range(len(self.shape))
        if len(axes) > 1:
            contiguity = self._infos[self.stores[0].ptr].contiguity
            axes = sorted(axes, key=contiguity.__getitem__)
        return any(self.shape[axis] % parts == 0 and self._divide(axis) for axis in axes)

    @cached_property
    def _infos(self) -> AxisMap:
        return axis_info(self.fn)

    def _may_interleave(self) -> bool:
        """Whether the stores of a part may precede the loads and stores of later parts."""
        accesses = self._accesses()
        if not all(shape_of(op.ptr.type) == self.shape for op in accesses):
            return False
        overlapping = [
            (op.ptr, store.ptr)
            for store in self.stores
            for op in accesses
            if op is not store and may_overlap(self.fn, op.ptr, store.ptr)
        ]
        return not overlapping or (
            all(self._have_equal_offsets(*pair) for pair in overlapping)
            and self._has_distinct_offsets()
        )

    def _have_equal_offsets(self, a: Value, b: Value) -> bool:
        """Whether two pointers have equal offsets, from the same base or, unless tiles are
        `ordered`, from two arguments."""
        one, other = split_pointer(a), split_pointer(b)
        if one.varying is None or one.varying is not other.varying:
            return False
        if one.base is other.base:
            return one.uniform is other.uniform
        arguments = one.base.owner is self.fn.body and other.base.owner is self.fn.body
        return arguments and not self.ordered

    def _has_distinct_offsets(self) -> bool:
        """Whether all elements have distinct offsets, so that parts do not overlap."""
        offsets = split_pointer(self.stores[0].ptr).varying
        return offsets is not None and max(self._infos[offsets].contiguity) == prod(self.shape)

    def _divide(self, axis: int) -> bool:
        """Compute `axes` backwards from the stores; False if an op cannot be divided."""
        outside: dict[Op, None] = {}

        def may_divide(op: Op) -> bool:
            if op in self._inside:
                return True
            outside[op] = None
            return is_index(op) and len(outside) <= MAX_RECOMPUTED

        axes = divided_axes([(v, axis) for op in self.stores for v in op.operands], may_divide)
        if axes is None:
            return False
        self.axes = axes
        self._outside = operands_first(outside)
        divided = self._divided()
        return all(user in divided for value in self._loaded() for user in value.users)

    def _divided(self) -> set[Op]:
        return {v.op for v in self.axes if v.op is not None}.union(self.stores)

    def _loaded(self) -> set[Value]:
        """The values that depend on the loads."""
        result = {op.result for op in self.loads}
        for op in self.ops:
            if any(v in result for v in op.operands):
                result.update(op.results)
        return result

    # -- transformation -------------------------------------------------------------------------

    def rewrite(self, parts: int) -> None:
        """Insert the loop after the sequence, and erase the ops that it replaces."""
        end = self.ops[-1].next
        assert end is not None
        divided = self._divided()
        mine = [op for op in self.ops if op in divided]
        extent = self.shape[self.axes[self.stores[0].ptr]]
        b = Builder()
        with b.before(end):
            b.loc = self.stores[0].loc
            start, stop, step = (
                b.value(arith.Constant(n, I32)) for n in (0, extent, extent // parts)
            )
            body = Region([I32])
            with b.at_end(body):
                part = Part(b, self.axes, body.args[0], parts)
                for op in [*self._outside, *mine]:
                    part.copy(op)
                b.insert(Yield([]))
            b.insert(For(start, stop, step, [], num_stages=0, unroll=0, hints=(), body=body))
        for op in reversed(mine):
            if not any(result.users for result in op.results):
                op.erase()


def _parts_on_gpu(gpu: GpuMachine, strips: Strips) -> int:
    """The number of parts such that the live tiles fit in registers."""
    elements = per_thread(strips.shape, gpu.lanes, gpu.warps)
    least = VECTOR_BYTES // strips.narrowest()
    words, parts = strips.pressure(_words_of), 1
    limit = min(MAX_REGISTERS, MAX_SHARE * gpu.registers / gpu.threads)
    while words * elements > limit * parts and elements // (2 * parts) >= least:
        parts *= 2
    return parts


def _words_of(value: Value) -> int:
    """Registers per element."""
    element = element_of(value.type)
    return 0 if element == I1 else -(-element.nbytes_in_memory // 4)
