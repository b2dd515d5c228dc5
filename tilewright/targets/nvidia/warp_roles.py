"""The code of the roles of a specialized program: the copying warp, and the warps that compute.

Both iterate over rings of slots; each role carries its position in each ring through its loops and
branches.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from tilewright.analysis.polynomial import Atom, Iteration
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.rewriter import insert_after
from tilewright.ir.types import I64, Shared, TensorMemory
from tilewright.ops.arith import Cmp, Select, Xor
from tilewright.ops.control import Barrier, For, If, Yield
from tilewright.ops.gpu import (
    Allocate,
    AllocateRing,
    Fetch,
    HasSpare,
    Slot,
    WaitLaunches,
    unpermuted,
)
from tilewright.ops.roles import Arrive, ExpectBytes, InitBarriers, Roles, WaitBarrier
from tilewright.ops.tensor_memory import CommitProducts, TensorProduct, TensorWait, buffers_of
from tilewright.rewrites.control import (
    carry_more,
    rebuilt_if,
    replace_loop_or_branch,
    set_yields,
)
from tilewright.targets.nvidia.buffer_uses import is_published, readers
from tilewright.targets.nvidia.copied_loops import (
    Copied,
    CopiedLoop,
    Ring,
    bytes_of,
)
from tilewright.targets.nvidia.copied_scalars import Scalars
from tilewright.targets.nvidia.early_returns import enter_branch
from tilewright.targets.nvidia.scalar_code import ScalarCode


class Place(NamedTuple):
    """The position of a warp in a ring: the slot, and the number of completed rounds modulo 2."""

    slot: Value
    turn: Value

    def following(self, code: ScalarCode, slots: Value) -> Place:
        after = code.plus(self.slot, 1)
        over = code.value(Cmp(after, slots, "eq"))
        slot = code.value(Select(over, code.number(0), after))
        turned = code.value(Xor(self.turn, code.number(1)))
        return Place(slot, code.value(Select(over, turned, self.turn)))


Places = dict[Ring, Place]


def _values(places: Places, rings: Sequence[Ring]) -> list[Value]:
    return [value for ring in rings for value in places[ring]]


def _places(rings: Sequence[Ring], values: Sequence[Value]) -> Places:
    return {ring: Place(*values[2 * i : 2 * i + 2]) for i, ring in enumerate(rings)}


class Rewrite:
    """The rewrite of a function.

    Attributes:
        converted: the loops of products afterwards.
        guards: the waits for slots in them, and the releases, with the views of the slots.
    """

    def __init__(self, fn: Function, loops: list[CopiedLoop], warps: int) -> None:
        self.fn = fn
        self.loops = {loop.loop: loop for loop in loops}
        self.rings = list(dict.fromkeys(loop.ring for loop in loops))
        self.warps = warps
        self.scalars = Scalars(fn)
        self.slots: dict[Ring, Value] = {}  # of each ring, in this launch
        self.converted: list[For] = []
        self.guards: dict[Op, list[Value]] = {}
        # Ops that are or contain converted loops, with the rings of these, in which they must
        # yield the positions.
        self.holders: dict[Op, list[Ring]] = {}
        for loop in loops:
            for op in (loop.loop, *loop.loop.ancestors()):
                rings = self.holders.setdefault(op, [])
                if loop.ring not in rings:
                    rings.append(loop.ring)

    def run(self, copy_warps: int, registers: tuple[int, ...]) -> None:
        work = enter_branch(self.fn, self.loops)
        end = work.terminator
        first = next(iter(self.loops))
        body = [op for op in work if not isinstance(op, WaitLaunches) and op is not end]
        # Before a wait for preceding launches, too: barriers and maps are the program's own.
        setup = ScalarCode(work, first, work.first)
        barriers = self._set_up(setup)
        compute, copy = Region(), Region()
        copier = _Copier(self, barriers)
        copier.region(work, copy, copier.start(ScalarCode(copy, first)), set(body))
        copy.append(Yield([]))
        for op in body:
            op.remove()
            compute.append(op)
        compute.append(Yield([]))
        _Computer(self, barriers).run(compute)
        setup.anchor = end
        setup.insert(Roles(copy_warps, registers, compute, copy))

    def _set_up(self, code: ScalarCode) -> Value:
        """Allocate rings and barriers; return the barriers."""
        arrivals: list[int] = []
        for ring in self.rings:
            loop = next(loop for loop in self.loops.values() if loop.ring is ring)
            ring.base = len(arrivals)
            self.slots[ring] = self._slots(ring, code)
            for part in loop.parts:
                released = self.warps + tracked(loop, part)
                arrivals += [1] * ring.most + [released] * ring.most
            for copied in loop.copies:
                kind = copied.share.result.type
                assert isinstance(kind, Shared)
                type = Shared((ring.most, *kind.shape), kind.element)
                made = AllocateRing(type, ring.spare) if ring.spare else Allocate(type)
                ring.buffers.append(code.value(made))
        barriers = code.value(Allocate(Shared((len(arrivals),), I64)))
        code.insert(InitBarriers(barriers, tuple(arrivals)))
        code.insert(Barrier())
        return barriers

    @staticmethod
    def _slots(ring: Ring, code: ScalarCode) -> Value:
        """The number of slots that a launch provides."""
        if not ring.spare:
            return code.number(ring.slots)
        many, few = code.number(ring.most), code.number(ring.slots)
        return code.value(Select(code.value(HasSpare()), many, few))

    @staticmethod
    def full(ring: Ring, part: int) -> int:
        """The number of the barrier that completes when slot 0 of a part is full."""
        return ring.base + 2 * part * ring.most

    @staticmethod
    def empty(ring: Ring, part: int) -> int:
        return ring.base + (2 * part + 1) * ring.most


class _Copier:
    """Emits the code of the copying warp."""

    def __init__(self, rewrite: Rewrite, barriers: Value) -> None:
        self.rewrite = rewrite
        self.barriers = barriers
        self.mapping: dict[Value, Value] = {}
        self.turns: dict[For, Value] = {}  # the number of the current iteration

    def start(self, code: ScalarCode) -> Places:
        zero = code.number(0)
        return {ring: Place(zero, zero) for ring in self.rewrite.rings}

    def region(
        self,
        old: Region,
        new: Region,
        places: Places,
        only: set[Op] | None = None,
        held: CopiedLoop | None = None,
    ) -> Places:
        """Clone the needed ops of a region; return the positions in the rings at its end.

        Args:
            old: the region.
            new: where to.
            places: the positions in the rings at its begin.
            only: the ops to consider, if not all.
            held: the loop whose body it is, if the loops in it use what it copies.
        """
        for op in old:
            if op.terminator or (only is not None and op not in only):
                continue
            if op in self.rewrite.holders and held is not None:
                places = self._copies(held, ScalarCode(new, held.loop), places)
                held = None
            if op in self.rewrite.holders or self._is_needed(op):
                places = (
                    self._for(op, new, places) if isinstance(op, For) else self._if(op, new, places)
                )
            elif self.rewrite.scalars.can_clone(op):
                new.append(op.clone(self.mapping))
        return places

    def _is_needed(self, op: Op) -> bool:
        """Whether it is a loop or branch with results that copies may depend on."""
        other = self.rewrite.scalars.other
        return isinstance(op, For | If) and any(result not in other for result in op.results)

    def _mapped(self, value: Value) -> Value:
        return self.mapping.get(value, value)

    def _for(self, op: For, new: Region, places: Places) -> Places:
        code = ScalarCode(new, op)
        other = self.rewrite.scalars.other
        kept = [i for i, arg in enumerate(op.body.args[1:]) if arg not in other]
        rings = self.rewrite.holders.get(op, [])
        inits = [self._mapped(op.inits[i]) for i in kept]
        inits += [code.number(0), *_values(places, rings)]
        body = Region([op.body.args[0].type, *(v.type for v in inits)])
        self.mapping[op.body.args[0]] = body.args[0]
        for i, arg in zip(kept, body.args[1:], strict=False):
            self.mapping[op.body.args[i + 1]] = arg
        turn, *state = body.args[1 + len(kept) :]
        self.turns[op] = turn
        loop = self.rewrite.loops.get(op)
        held = loop if loop is not None and loop.holds else None
        inner = self.region(op.body, body, {**places, **_places(rings, state)}, held=held)
        code_within = ScalarCode(body, op)
        if loop is not None and held is None:
            inner = self._copies(loop, code_within, inner)
        following = code_within.plus(turn, 1)
        yielded = [self._mapped(op.body.terminator.operands[i]) for i in kept]
        body.append(Yield([*yielded, following, *_values(inner, rings)]))
        start, stop, step = (self._mapped(v) for v in (op.start, op.stop, op.step))
        made = code.insert(For(start, stop, step, inits, 1, 0, (), body))
        for i, result in zip(kept, made.results, strict=False):
            self.mapping[op.results[i]] = result
        return {**places, **_places(rings, made.results[len(kept) + 1 :])}

    def _if(self, op: Op, new: Region, places: Places) -> Places:
        assert isinstance(op, If)
        other, rings = self.rewrite.scalars.other, self.rewrite.holders.get(op, [])
        kept = [i for i, result in enumerate(op.results) if result not in other]
        branches: list[Region] = []
        for old in (op.then, op.otherwise):
            branch = Region()
            inner = self.region(old, branch, places)
            yielded = [self._mapped(old.terminator.operands[i]) for i in kept]
            branch.append(Yield([*yielded, *_values(inner, rings)]))
            branches.append(branch)
        made = ScalarCode(new, op).insert(If(self._mapped(op.condition), *branches))
        for i, result in zip(kept, made.results, strict=False):
            self.mapping[op.results[i]] = result
        return {**places, **_places(rings, made.results[len(kept) :])}

    def _copies(self, loop: CopiedLoop, code: ScalarCode, places: Places) -> Places:
        """The copies of an iteration."""
        ring = loop.ring
        place = places[ring]
        empty_turn = code.value(Xor(place.turn, code.number(1)))
        for number, part in enumerate(loop.parts):
            free = code.plus(place.slot, self.rewrite.empty(ring, number))
            code.insert(WaitBarrier(self.barriers, free, empty_turn))
            full = code.plus(place.slot, self.rewrite.full(ring, number))
            size = sum(bytes_of(loop.copies[i].share) for i in part)
            code.insert(ExpectBytes(self.barriers, full, size))
            for i in part:
                self._copy(loop.copies[i], ring.buffers[i], place.slot, full, code)
        return {**places, ring: place.following(code, self.rewrite.slots[ring])}

    def _copy(
        self, copied: Copied, buffer: Value, slot: Value, full: Value, code: ScalarCode
    ) -> None:
        share, copy = copied
        view = code.value(Slot(buffer, slot))
        view.layout = share.result.layout
        assert share.src.op is not None
        made = code.load_block(copy, view, self.barriers, full, self._atom)
        made.loc = share.src.op.loc

    def _atom(self, atom: Atom) -> Value:
        return self.turns[atom.loop] if isinstance(atom, Iteration) else self._mapped(atom)


class _Computer:
    """Rewrites the code of the computing warps: slots replace the loaded tiles."""

    def __init__(self, rewrite: Rewrite, barriers: Value) -> None:
        self.rewrite = rewrite
        self.barriers = barriers

    def run(self, body: Region) -> None:
        first = next(iter(self.rewrite.loops))
        code = ScalarCode(body, first)
        code.anchor = body.first
        zero = code.number(0)
        self._region(body, {ring: Place(zero, zero) for ring in self.rewrite.rings})

    def _region(self, region: Region, places: Places) -> Places:
        for op in region:
            if op in self.rewrite.holders:
                places = self._for(op, places) if isinstance(op, For) else self._if(op, places)
        return places

    def _for(self, op: For, places: Places) -> Places:
        rings = self.rewrite.holders[op]
        carried, count = _values(places, rings), len(op.inits)
        assert op.parent is not None
        loop = self.rewrite.loops.get(op)
        state = [op.body.add_arg(v.type) for v in carried]
        inner = self._region(op.body, {**places, **_places(rings, state)})
        if loop is not None:
            inner = self._take_slots(loop, inner)
        new = carry_more(op, carried, _values(inner, rings))
        if loop is not None:
            _wait_after(new)
            if not loop.holds:
                self.rewrite.converted.append(new)
        return {**places, **_places(rings, new.results[count:])}

    def _if(self, op: Op, places: Places) -> Places:
        assert isinstance(op, If)
        rings, count = self.rewrite.holders[op], len(op.results)
        for region in op.regions:
            inner = self._region(region, places)
            set_yields(region, [*region.terminator.operands, *_values(inner, rings)])
        new = rebuilt_if(op)
        replace_loop_or_branch(op, new)
        return {**places, **_places(rings, new.results[count:])}

    def _take_slots(self, loop: CopiedLoop, places: Places) -> Places:
        """Read and release slots in an iteration; return the position in the ring after it."""
        ring, body = loop.ring, loop.loop.body
        place = places[ring]
        code = ScalarCode(body, loop.loop)
        guards: list[tuple[Op, Op, list[int]]] = []
        for number, part in enumerate(loop.parts):
            needed = [r for i in part for r in readers(loop.copies[i].share.result)]
            users = {body.find_ancestor(r) for r in needed}
            code.anchor = _first(body, users)
            full = code.plus(place.slot, self.rewrite.full(ring, number))
            empty = code.plus(place.slot, self.rewrite.empty(ring, number))
            awaited = code.insert(WaitBarrier(self.barriers, full, place.turn))
            # Adjacent: passes move both together. Loops in it have been replaced meanwhile.
            code.anchor = (_last(body, users) if loop.holds else loop.ends[number]).next
            loads = any(isinstance(r, Fetch) and not is_published(r) for r in needed)
            arrival = code.insert(Arrive(self.barriers, empty, None, self.rewrite.warps, loads))
            guards.append((awaited, arrival, part))
            if tracked(loop, part):
                code.anchor = arrival
                code.insert(CommitProducts(self.barriers, empty))
        views: list[Value] = []
        for copied, buffer in zip(loop.copies, ring.buffers, strict=True):
            share = copied.share
            code.anchor = share
            view = code.value(Slot(buffer, place.slot))
            view.layout = share.result.layout
            views.append(view)
            share.result.replace_with(view)
            load = share.src.op
            share.erase()
            assert load is not None
            load.erase()
        for wait in [op for op in body if isinstance(op, TensorWait) and _may_follow(op, body)]:
            wait.result.replace_with(wait.product)
            wait.erase()
        for awaited, arrival, part in guards:
            self.rewrite.guards[awaited] = self.rewrite.guards[arrival] = [views[i] for i in part]
        code.anchor = body.terminator
        return {**places, ring: place.following(code, self.rewrite.slots[ring])}


def _may_follow(wait: TensorWait, body: Region) -> bool:
    """Whether a wait may be sunk below the loop: the loop only carries the result, and writes the
    operands and scales only to slots, whose release waits for the product itself."""
    product = wait.product.op
    assert isinstance(product, TensorProduct)
    carried = all(user.terminator for user in wait.result.users)
    return carried and all(
        isinstance(source, Slot) or source is None or source.parent is not body
        for source in (unpermuted(operand).op for operand in buffers_of(product))
    )


def _wait_after(loop: For) -> None:
    """Wait after a loop for the products that it leaves in flight."""
    for result in [r for r in loop.results if isinstance(r.type, TensorMemory)]:
        wait = insert_after(TensorWait(result), loop)
        result.replace_with(wait.result)
        wait.set_operand(0, result)


def tracked(loop: CopiedLoop, part: Sequence[int]) -> bool:
    """Whether products that no warp waits for read these operands: their completion arrives."""
    reading = [op for i in part for op in readers(loop.copies[i].share.result)]
    return any(isinstance(op, TensorProduct) for op in reading)


def _first(region: Region, ops: Set[Op | None]) -> Op:
    """The first of these ops of a region."""
    return next(op for op in region if op in ops)


def _last(region: Region, ops: Set[Op | None]) -> Op:
    """The last of these ops of a region."""
    return [op for op in region if op in ops][-1]
