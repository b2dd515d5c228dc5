"""Large tiles that are loaded, computed with and stored are taken in parts, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.analysis.pointers import may_overlap, split_pointer
from tilewright.base.lazy import cached_property
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.index_map import Along, Every
from tilewright.ir.machine import GpuMachine
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import I1, I32, element_of, is_float, shape_of, with_shape
from tilewright.ops import arith
from tilewright.ops.control import For, Yield
from tilewright.ops.memory import Load, Store
from tilewright.ops.shape import Arange, Broadcast, Splat
from tilewright.ops.view import View
from tilewright.passes.layout_rules import is_tile, per_thread

NAME = "strip_mine"

MOST_REGISTERS = 96
"""Of a thread, that the tiles in use at once may take before they are taken in parts. A loss with
four exponentials on tiles of 32 elements a thread, 6 of them in use at once, took 128 registers on
an H200, which left 16 warps to a multiprocessor, and 1.86 ms; in two parts 48, and 1.53 ms."""

MOST_OF_ALL = 0.75
"""And of the registers that a thread can have: a loss on two such tiles in each of 1024 threads,
which have 64, spilled 50."""

VECTOR_BYTES = 16  # what each thread accesses of a part, at least

MOST_OUTSIDE = 16  # ops from in front of a loop that may be repeated in each part of an iteration


@compiler_pass(NAME)
def strip_mine(fn: Function, ctx: PassContext) -> bool:
    """Put what large tiles are computed by into loops over parts of them.

    Needs: pointers in canonical form, equal values merged; no layouts yet.
    Leaves: dead ops.

    It takes sequences of loads, ops on elements, and stores of tiles of one shape, of which nothing
    else needs what was loaded: a thread then needs registers for a part of each tile.

    Stores of a part come before loads of the next, so accesses that may meet must have equal
    offsets, which are consecutive numbers. That leaves arguments that share memory some elements
    apart. But a tile's elements are in no order where several warps work on it, and programs of one
    warp stay as they are.
    """
    if ctx.gpu.warps == 1:
        return False
    changed = False
    for region in [fn.body, *(region for op in fn.walk() for region in op.regions)]:
        for ops in _runs(region):
            strips = _Strips(fn, ops)
            parts = strips.parts(ctx.gpu)
            if parts > 1 and strips.find(parts):
                shape = "x".join(map(str, strips.shape))
                ctx.did(NAME, f"tiles of {shape} are taken in {parts} parts", strips.stores[0].loc)
                ctx.count("strips")
                strips.rewrite(parts)
                changed = True
    return changed


def _runs(region: Region) -> Iterator[list[Op]]:
    """Longest sequences of ops that only compute, load tiles and store tiles, with a store."""
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


class _Strips:
    """One sequence of ops, and what becomes of it.

    Attributes:
        shape: of the tiles that are stored.
        axes: of each value that is computed in parts, the axis along which it is divided.
    """

    def __init__(self, fn: Function, ops: list[Op]) -> None:
        self.fn = fn
        self.ops = ops
        self.stores = [op for op in ops if isinstance(op, Store)]
        self.loads = [op for op in ops if isinstance(op, Load)]
        self.shape = shape_of(self.stores[0].ptr.type)
        self.axes: dict[Value, int] = {}
        self._inside = set(ops)
        self._outside: list[Op] = []

    # -- whether it pays ------------------------------------------------------------------------

    def parts(self, gpu: GpuMachine) -> int:
        """In how many parts the tiles should be taken; 1 if as they are."""
        elements = per_thread(self.shape, gpu.lanes, gpu.warps)
        accesses = [op.result if isinstance(op, Load) else op.value for op in self._accesses()]
        size = min(element_of(value.type).nbytes_in_memory for value in accesses)
        words, parts = self._words(), 1
        most = min(MOST_REGISTERS, MOST_OF_ALL * gpu.registers / gpu.threads)
        while words * elements > most * parts:
            if elements // (2 * parts) < VECTOR_BYTES // size:
                break
            parts *= 2
        return parts

    def _accesses(self) -> list[Load | Store]:
        return [*self.loads, *self.stores]

    def _words(self) -> int:
        """Registers of a thread for each of its elements, where most are in use. What does not
        come from memory is computed when it is used, and counts as none."""
        steps = [(op, list(_needs(op))) for op in self.ops if not _is_fused(op)]
        last = {v: op for op, needed in steps for v in needed}
        loaded: set[Value] = set()
        now = most = 0
        for op, needed in steps:
            if isinstance(op, Load) or any(v in loaded for v in needed):
                made = [r for r in op.results if shape_of(r.type) == self.shape and r in last]
                loaded.update(made)
                now += sum(map(_words_of, made))
            now -= sum(_words_of(v) for v in set(needed) & loaded if last[v] is op)
            most = max(most, now)
        return most

    # -- whether it may be ----------------------------------------------------------------------

    def find(self, parts: int) -> bool:
        """Choose an axis, the slowest that will do, and find all that is divided along it."""
        if not self._may_interleave():
            return False
        axes = range(len(self.shape))
        if len(axes) > 1:
            contiguity = self._infos[self.stores[0].ptr].contiguity
            axes = sorted(axes, key=contiguity.__getitem__)
        return any(self.shape[axis] % parts == 0 and self._reach(axis) for axis in axes)

    @cached_property
    def _infos(self) -> AxisMap:
        return axis_info(self.fn)

    def _may_interleave(self) -> bool:
        """Whether stores of a part may come before loads and stores of later ones."""
        accesses = self._accesses()
        if not all(shape_of(op.ptr.type) == self.shape for op in accesses):
            return False
        meeting = [
            (op.ptr, store.ptr)
            for store in self.stores
            for op in accesses
            if op is not store and may_overlap(self.fn, op.ptr, store.ptr)
        ]
        return not meeting or (
            all(self._meet_in_place(*pair) for pair in meeting) and self._has_own_places()
        )

    def _meet_in_place(self, a: Value, b: Value) -> bool:
        """Whether two pointers have equal offsets, from one place or from different arguments."""
        one, other = split_pointer(a), split_pointer(b)
        if one.varying is None or one.varying is not other.varying:
            return False
        if one.base is other.base:
            return one.uniform is other.uniform
        return one.base.owner is self.fn.body and other.base.owner is self.fn.body

    def _has_own_places(self) -> bool:
        """Whether no two elements have the same offset: those of a part would meet later ones."""
        offsets = split_pointer(self.stores[0].ptr).varying
        return offsets is not None and max(self._infos[offsets].contiguity) == prod(self.shape)

    def _reach(self, axis: int) -> bool:
        """Fill `axes` from the stores backwards; false if something cannot be divided."""
        self.axes = {}
        outside: dict[Op, None] = {}
        pending = [(v, axis) for op in self.stores for v in op.operands]
        while pending:
            value, along = pending.pop()
            if value in self.axes:
                if self.axes[value] != along:
                    return False
                continue
            op = value.op
            axes = None if op is None else _operand_axes(op, along)
            if op is None or axes is None:
                return False
            if op not in self._inside:
                outside[op] = None
                if not _is_index(op) or len(outside) > MOST_OUTSIDE:
                    return False
            self.axes[value] = along
            pending += [(v, a) for v, a in zip(op.operands, axes, strict=True) if a is not None]
        self._outside = _operands_first(outside)
        divided = self._divided()
        return all(user in divided for value in self._loaded() for user in value.users)

    def _divided(self) -> set[Op]:
        return {v.op for v in self.axes if v.op is not None}.union(self.stores)

    def _loaded(self) -> set[Value]:
        """What depends on the loads."""
        found = {op.result for op in self.loads}
        for op in self.ops:
            if any(v in found for v in op.operands):
                found.update(op.results)
        return found

    # -- the loop -------------------------------------------------------------------------------

    def rewrite(self, parts: int) -> None:
        """Put a loop behind the sequence, and erase what it replaces."""
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
                part = _Part(b, self.axes, body.args[0], parts)
                for op in [*self._outside, *mine]:
                    part.copy(op)
                b.insert(Yield([]))
            b.insert(For(start, stop, step, [], num_stages=0, unroll=0, hints=(), body=body))
        for op in reversed(mine):
            if not any(result.users for result in op.results):
                op.erase()


class _Part:
    """The part of each value that begins at `begin` and is one of `parts`, along its axis."""

    def __init__(self, b: Builder, axes: dict[Value, int], begin: Value, parts: int) -> None:
        self.b = b
        self.axes = axes
        self.begin = begin
        self.parts = parts
        self.mapping: dict[Value, Value] = {}

    def copy(self, op: Op) -> None:
        """The op on parts, here."""
        copy = op.clone(self.mapping)
        for old, new in zip(op.results, copy.results, strict=True):
            axis = self.axes[old]
            shape = list(shape_of(old.type))
            shape[axis] //= self.parts
            new.type = with_shape(old.type, tuple(shape))
            match copy:
                case Splat() | Broadcast():
                    copy.shape = tuple(shape)
                case arith.Constant():
                    copy.type = new.type
                case Arange():
                    copy.end = copy.start + shape[axis]
                case arith.Hint():
                    # The first element of a part may be the middle of a run.
                    facts = list(copy.divisibility)
                    facts[axis] = gcd(facts[axis], shape[axis]) if facts[axis] else 0
                    copy.divisibility = tuple(facts)
                case _:
                    pass
        self.b.insert(copy)
        if isinstance(copy, Arange):
            begin = self.b.value(Splat(self.begin, shape_of(copy.result.type)))
            self.mapping[op.results[0]] = self.b.value(arith.Add(copy.result, begin))


def _operands_first(ops: dict[Op, None]) -> list[Op]:
    """A few ops in an order in which each comes behind those that it needs."""
    ordered: dict[Op, None] = {}

    def visit(op: Op) -> None:
        for value in op.operands:
            if value.op in ops and value.op not in ordered:
                visit(value.op)
        ordered[op] = None

    for op in ops:
        if op not in ordered:
            visit(op)
    return list(ordered)


def _is_fused(op: Op) -> bool:
    """Whether it is a product that is part of the one instruction of a sum."""
    if not isinstance(op, arith.Mul) or not is_float(op.result.type):
        return False
    users = list(op.result.users)
    return len(users) == 1 and isinstance(users[0], arith.Add | arith.Sub)


def _needs(op: Op) -> Iterator[Value]:
    """What the instruction of an op reads."""
    for value in op.operands:
        if value.op is not None and _is_fused(value.op):
            yield from value.op.operands
        else:
            yield value


def _words_of(value: Value) -> int:
    """Registers of an element."""
    element = element_of(value.type)
    return 0 if element == I1 else -(-element.nbytes_in_memory // 4)


def _is_index(op: Op) -> bool:
    """Whether the op makes one number for all elements, or an index, mask or pointer by little."""
    if isinstance(op, arith.Constant | Arange) or (isinstance(op, View) and op.aligned):
        return True
    costs = isinstance(op, arith.IntDiv | arith.Rem) or any(is_float(r.type) for r in op.results)
    return op.elementwise and not costs


def _operand_axes(op: Op, axis: int) -> list[int | None] | None:
    """The axes along which operands are divided so that the result is along `axis`, each None for
    what is needed whole; None if they can't be."""
    if op.elementwise or isinstance(op, Load):
        return [axis if is_tile(v) else None for v in op.operands]
    if isinstance(op, Arange):
        return []
    found = op.index_maps()[0] if isinstance(op, View) and op.aligned else None
    match found and found.inverse().axes[axis]:
        case Along(own):
            return [own]
        case Every():
            return [None]
        case _:
            return None
