"""Allocation of shared memory, and placement of barriers.

Shared memory holds *buffers*, which are values of the IR, and *scratch*, through which an op
exchanges data between warps. The size of an op's scratch is registered with `scratch`, next to its
emitter, which writes it, waits for all threads, and reads it.

Input: a function with layouts. Output: the bytes of each op (`spans`), and the ops before which all
threads must wait (`barriers`). Invariants: memory that is live at the same time does not overlap;
between two accesses of different ops to the same bytes, at least one of them a write, there is a
barrier on every path, and likewise between the accesses of global memory that `hazards` returns.
Time is close to linear in the number of ops: accesses since the last barrier are few, and so is the
memory live at one time (`_Placed`).
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.op_table import OpTable
from tilewright.ir.types import Shared
from tilewright.lowering.emit import I8, I32, Builder, Module, V, array, const
from tilewright.lowering.simt.hazards import GlobalAccess, hazardous_accesses
from tilewright.ops.control import Barrier, For, While
from tilewright.ops.gpu import BUFFER_VIEWS, Allocate, AllocateRing, CopyAsync, Share, whole_buffer

ALIGN = 1024  # bytes of a buffer; the period of the widest swizzle
SCRATCH_ALIGN = 16
SMALL = 1024  # scratch up to this size (bytes) is not reused by other ops, which saves barriers
LASTING = 16 * 1024  # the most bytes of scratch of a program that are not reused by other ops


Scratch = Callable[[Any], int]
SCRATCH: OpTable[Scratch] = OpTable("sizes of scratch")


PRIVATE: OpTable[Callable[[Any], bool]] = OpTable("scratch of warps")
"""Whether each warp has its own part of an op's scratch, which no other accesses."""


def is_private(op: Op) -> bool:
    """Whether warps do not wait for each other between writes and reads of the op's scratch."""
    found = PRIVATE.get(type(op))
    return found is not None and found(op)


def scratch(cls: type[Op]) -> Callable[[Scratch], Scratch]:
    """Register the function that returns the bytes of scratch an op of this class requires."""
    return SCRATCH.of(cls)


class Span(NamedTuple):
    """A range of bytes; `end` is exclusive."""

    start: int
    end: int

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end


class Access(NamedTuple):
    """Bytes that an op reads or writes. `owner` is the op for which they are allocated."""

    owner: Op
    span: Span
    writes: bool

    def conflicts(self, other: Access | GlobalAccess) -> bool:
        """Whether a barrier is required between the two.

        Accesses to the buffer of one `Allocate` op are synchronised by the pass that created it,
        those of a warp to its own scratch by the emitter.
        """
        if isinstance(other, GlobalAccess):
            return False
        own = self.owner is other.owner and (
            isinstance(self.owner, Allocate) or is_private(self.owner)
        )
        return (self.writes or other.writes) and not own and self.span.overlaps(other.span)


Pending = frozenset[Access | GlobalAccess]
Flights = Mapping[Op, Sequence[Value]]  # of each op in flight, what holds its unfinished result


def buffer_owner(value: Value) -> Op:
    """The op that allocates the memory of which the value is a view."""
    op = whole_buffer(value).op
    assert isinstance(op, Share | Allocate), "only these ops create buffers"
    return op


class SharedMemory:
    """The shared memory of a function.

    Attributes:
        spans: the bytes of each op that creates a buffer or uses scratch.
        barriers: ops before which all threads must wait.
        bytes: the size of a program's shared memory, without spare slots of rings.
        spare_bytes: the size of the spare slots, which lie behind it.
        base: the address of the memory, once it is declared.
    """

    def __init__(self, fn: Function, limit: int = 0) -> None:
        """Allocate the memory of a function.

        Args:
            limit: the memory of a multiprocessor, in bytes. If as many programs fit into it,
                private scratch is not reused, so that no warp waits for others before it.
        """
        flights = _flights(fn)
        self.spans = _allocate(fn, flights)
        if limit and any(map(is_private, self.spans)):
            apart = _allocate(fn, flights, private_lasts=True)
            if _programs(self.spans, limit) == _programs(apart, limit):
                self.spans = apart
        if limit and self.spans and not _programs(self.spans, limit):
            # More barriers are better than a kernel that does not fit.
            self.spans = _allocate(fn, flights, tight=True)
        # Of each value, the ops in flight that it is the result of.
        self._in_flight: dict[Value, list[Op]] = defaultdict(list)
        for op, values in flights.items():
            for value in values:
                self._in_flight[value].append(op)
        used = max((span.end for span in self.spans.values()), default=0)
        self.bytes = -(-used // SCRATCH_ALIGN) * SCRATCH_ALIGN
        self._spare: dict[Op, int] = {}
        end = self.bytes
        for op in self.spans:
            if isinstance(op, AllocateRing):
                self._spare[op] = start = -(-end // ALIGN) * ALIGN
                end = start + op.spare * _slot_bytes(op)
        self.spare_bytes = end - self.bytes
        self.barriers: set[Op] = set()
        self._hazards = hazardous_accesses(fn)
        self.base: V | None = None
        self._walk(fn.body, frozenset())

    def declare(self, module: Module, space: int, sized: bool = False) -> None:
        """Declare the memory as an array.

        Args:
            sized: whether its size is part of the code; else it is a parameter of the launch.
        """
        if self.bytes:
            size, initial, linkage = (
                (self.bytes, "poison", "internal") if sized else (0, "", "external")
            )
            self.base = module.global_variable(
                "shared", array(I8, size), initial, ALIGN, space=space, linkage=linkage
            )

    def address(self, b: Builder, op: Op) -> V:
        """Address of an op's buffer or scratch."""
        assert self.base is not None
        return b.gep(I8, self.base, self.spans[op].start)

    def slot_offset(self, b: Builder, buffer: Value, index: V) -> V:
        """The bytes from the start of a buffer to one of its slots."""
        kind = buffer.type
        assert isinstance(kind, Shared)
        size = kind.nbytes // kind.shape[0]
        offset = b.mul(index, const(I32, size))
        ring = buffer.op
        if not isinstance(ring, AllocateRing):
            return offset
        gap = self._spare[ring] - self.spans[ring].end
        spare = b.icmp("uge", index, kind.shape[0] - ring.spare)
        return b.add(offset, b.select(spare, const(I32, gap), const(I32, 0)))

    # -- barriers -------------------------------------------------------------------------------

    def _accesses(self, op: Op) -> list[Access | GlobalAccess]:
        """The accesses of the op, before any barrier of its own."""
        if isinstance(op, (*BUFFER_VIEWS, Allocate)):
            return []
        result: list[Access | GlobalAccess] = []
        if op in self._hazards:
            result.append(self._hazards[op])
        if isinstance(op, Share) or op in self.spans:
            result.append(Access(op, self.spans[op], True))
        for value in op.operands:
            if isinstance(value.type, Shared):
                owner = buffer_owner(value)
                result.append(Access(owner, self.spans[owner], isinstance(op, CopyAsync)))
            else:
                # An op in flight reads until its result is used, across barriers in between.
                for started in self._in_flight.get(value, ()):
                    result += self._reads(started)
        return result

    def _reads(self, op: Op) -> list[Access]:
        """The accesses of an op in flight to the buffers that are its operands."""
        owners = [buffer_owner(v) for v in op.operands if isinstance(v.type, Shared)]
        return [Access(owner, self.spans[owner], False) for owner in owners]

    def _walk(self, region: Region, pending: Pending) -> Pending:
        """Place the barriers of a region.

        Args:
            pending: the accesses since the last barrier at the entry of the region.

        Returns:
            the accesses since the last barrier at its exit.
        """
        for op in region:
            if isinstance(op, For | While):
                if self._conflicts_within(op, pending):
                    self.barriers.add(op)
                    pending = frozenset()
                # The second walk adds the accesses pending at the back edge. It is a fixed point:
                # barriers are only added, so a third walk would start from no further accesses.
                # Without further accesses it is omitted: two walks of each loop would make
                # 2^n of the innermost of n.
                ends = self._walk_regions(op.regions, pending)
                if not ends <= pending:
                    ends = self._walk_regions(op.regions, pending | ends)
                pending |= ends
            elif isinstance(op, Barrier):
                pending = frozenset()
            elif op.concurrent:
                # Barriers within wait for one team only, so accesses of all warps must be complete
                # before. Regions need no barriers between each other: they share no memory.
                if pending:
                    self.barriers.add(op)
                pending = Pending().union(*(self._walk(r, Pending()) for r in op.regions))
            elif op.regions and op not in self.spans:
                pending = Pending().union(*(self._walk(r, pending) for r in op.regions))
            else:
                pending = self._step(op, pending)
        return pending

    def _conflicts_within(self, loop: Op, pending: Pending) -> bool:
        """Whether a barrier in the loop would be required for accesses before it, such as the
        writes of a buffer that the loop only reads. Once before the loop is enough."""
        for op in loop.walk():
            if op.concurrent or self._waits(op) or isinstance(op, Barrier):
                return False
            if any(a.conflicts(p) for a in self._accesses(op) for p in pending):
                return True
        return False

    def _step(self, op: Op, pending: Pending) -> Pending:
        accesses = self._accesses(op)
        if any(a.conflicts(p) for a in accesses for p in pending):
            self.barriers.add(op)
            pending = frozenset()
        if self._waits(op):
            # Its own barrier separates the writes of its scratch, and all before, from its reads.
            return frozenset([Access(op, self.spans[op], False)])
        return pending.union(accesses)

    def _waits(self, op: Op) -> bool:
        """Whether the op's emitter waits for all warps."""
        return op in self.spans and not isinstance(op, Share | Allocate) and not is_private(op)

    def _walk_regions(self, regions: Iterable[Region], pending: Pending) -> Pending:
        for region in regions:
            pending = self._walk(region, pending)
        return pending


# -- allocation -----------------------------------------------------------------------------------


class _Need(NamedTuple):
    """Memory with its live range: positions in program order, both ends included.

    Memory that `lasts` is live throughout the function.
    """

    op: Op
    bytes: int
    align: int
    first: int
    last: int
    lasts: bool = False
    sides: Mapping[Op, Region] = MappingProxyType({})  # its region of each enclosing concurrent op

    def overlaps(self, other: _Need) -> bool:
        """Whether both may be live at the same time.

        Program order does not order the regions of a concurrent op, so memory used in two of them
        is live at the same time.
        """
        if self.first <= other.last and other.first <= self.last:
            return True
        return any(other.sides.get(op, region) is not region for op, region in self.sides.items())


class _Placed:
    """Allocated memory, indexed by live range.

    Positions are grouped into blocks, and short live ranges are listed under each block that they
    meet. As most are short, an allocation does not have to compare itself with all others.
    """

    BLOCK = 64  # positions
    MOST_BLOCKS = 16

    def __init__(self) -> None:
        self._long: list[tuple[_Need, Span]] = []
        self._short: defaultdict[int, list[tuple[_Need, Span]]] = defaultdict(list)
        self._concurrent: defaultdict[Op, list[tuple[_Need, Span]]] = defaultdict(list)

    def _blocks(self, need: _Need) -> range:
        return range(need.first // self.BLOCK, need.last // self.BLOCK + 1)

    def add(self, need: _Need, span: Span) -> None:
        for op in need.sides:
            self._concurrent[op].append((need, span))
        blocks = self._blocks(need)
        if len(blocks) > self.MOST_BLOCKS:
            self._long.append((need, span))
            return
        for block in blocks:
            self._short[block].append((need, span))

    def during(self, need: _Need) -> list[Span]:
        """The spans that may be live at the same time as `need`, lowest first."""
        found = list(self._long)
        for block in self._blocks(need):
            found += self._short.get(block, ())
        for op in need.sides:
            found += self._concurrent.get(op, ())
        return sorted({span for other, span in found if need.overlaps(other)})


def _programs(spans: Mapping[Op, Span], limit: int) -> int:
    """The programs that fit into memory, without spare slots; 0 if one does not fit with them."""
    end = max(span.end for span in spans.values())
    spare = sum(op.spare * _slot_bytes(op) + ALIGN for op in spans if isinstance(op, AllocateRing))
    return limit // end if end + spare <= limit else 0


def _allocate(
    fn: Function,
    flights: Flights,
    pipelined: Mapping[Op, tuple[Op, int]] | None = None,
    *,
    private_lasts: bool = False,
    tight: bool = False,
) -> dict[Op, Span]:
    """Assign bytes to all buffers and scratch: first fit, in order of decreasing size.

    Small scratch is live throughout the function, so that writing it needs no barrier, as long as
    it takes `LASTING` bytes at most; the rest is reused according to its live range, but not by the
    next op, which would have to wait for all threads. If `tight`, any memory is reused at once.
    """
    needs = sorted(
        _needs(fn, flights, pipelined or {}, private_lasts, tight),
        key=lambda n: (n.lasts, -n.align, -n.bytes),
    )
    spans: dict[Op, Span] = {}
    placed = _Placed()
    for need in needs:
        if not need.lasts:
            spans[need.op] = _lowest(need, placed.during(need))
            placed.add(need, spans[need.op])
    everything = sorted(set(spans.values()))
    for need in needs:
        if need.lasts:
            spans[need.op] = _lowest(need, everything)
            insort(everything, spans[need.op])
    return spans


def allocated_bytes(fn: Function, pipelined: Mapping[Op, tuple[Op, int]] | None = None) -> int:
    """The size of the function's shared memory.

    Args:
        pipelined: the buffers that are to have several slots, each with the loop throughout which
            they are live, and the number of slots.
    """
    return max((span.end for span in _allocate(fn, _flights(fn), pipelined).values()), default=0)


def unshared_bytes(fn: Function) -> int:
    """An upper bound on the size of the function's shared memory: no two ops share bytes."""
    return sum(-(-need.bytes // need.align) * need.align for need in _needs(fn, {}, {}))


def _lowest(need: _Need, taken: Iterable[Span]) -> Span:
    """The lowest free span of sufficient size, given the taken ones sorted by their starts."""
    start = 0
    for span in taken:
        if start + need.bytes <= span.start:
            break
        start = max(start, (span.end + need.align - 1) // need.align * need.align)
    return Span(start, start + need.bytes)


def _sides(op: Op) -> dict[Op, Region]:
    """The region that the op is in, for each concurrent op around it."""
    return {outer: region for outer, region in op.enclosing() if outer.concurrent}


def _needs(
    fn: Function,
    flights: Flights,
    pipelined: Mapping[Op, tuple[Op, int]],
    private_lasts: bool = False,
    tight: bool = False,
) -> list[_Need]:
    moments: dict[Op, tuple[int, int]] = {}  # first and last position of an op and its regions
    count = _number(fn.body, moments, 0, tight)
    result: list[_Need] = []
    lasting = 0
    for op in moments:
        if isinstance(op, Share | Allocate):
            assert isinstance(op.results[0].type, Shared)
            size = op.results[0].type.nbytes
            if isinstance(op, AllocateRing):
                size -= op.spare * _slot_bytes(op)
            first, last = moments[op][0], _last_use(op.results[0], op, moments, flights)
            if op in pipelined:
                loop, slots = pipelined[op]
                size *= slots
                first, last = moments[loop]
            result.append(_Need(op, size, ALIGN, first, last, sides=_sides(op)))
            continue
        need = SCRATCH.get(type(op))
        size = need(op) if need is not None else 0
        if size:
            small = not tight and (size <= SMALL or (private_lasts and is_private(op)))
            lasts = small and lasting + size <= LASTING
            lasting += size if lasts else 0
            first, last = (0, count) if lasts else moments[op]
            result.append(_Need(op, size, SCRATCH_ALIGN, first, last, lasts, _sides(op)))
    return result


def _slot_bytes(ring: AllocateRing) -> int:
    assert isinstance(ring.type, Shared)
    return ring.type.nbytes // ring.type.shape[0]


def _number(region: Region, moments: dict[Op, tuple[int, int]], count: int, tight: bool) -> int:
    """Number the ops. The last position of an op is the first of the next one, at which the copies
    that a loop started are waited for; of a `tight` op without nested ones, its own."""
    for op in region:
        first = count
        count += 1
        moments[op] = first, first
        if not op.elementwise and type(op) not in SCRATCH:
            for nested in op.regions:
                count = _number(nested, moments, count, tight)
        moments[op] = first, first if tight and count == first + 1 else count
    return count


def _flights(fn: Function) -> Flights:
    """For each op in flight, the values that hold its result before it is complete.

    Loops and branches may yield such a value, and another op in flight may go on with it.
    """
    result: dict[Op, list[Value]] = {}
    for op in fn.walk():
        if not op.in_flight:
            continue
        values = dict.fromkeys(op.results)
        pending = list(values)
        while pending:
            more = [v for user in pending.pop().users for v in _passed_on(user, values)]
            pending += [v for v in more if v not in values]
            values.update(dict.fromkeys(more))
        result[op] = list(values)
    return result


def _passed_on(user: Op, values: Iterable[Value]) -> list[Value]:
    """The results of an op that uses some of these values which hold the same unfinished result."""
    if user.in_flight:
        return list(user.results)
    around = user.parent_op()
    if not user.terminator or around is None:
        return []
    held = set(values)
    places = [i for i, value in enumerate(user.operands) if value in held]
    carried = around.body.args[1:] if isinstance(around, For) else []
    return [of[i] for i in places for of in (around.results, carried) if i < len(of)]


def _last_use(
    value: Value,
    owner: Op,
    moments: dict[Op, tuple[int, int]],
    flights: Flights,
) -> int:
    """The end of the live range of a buffer.

    That is the end of the last op that contains a use of the buffer or of a view of it: of control
    flow, as a loop may come back. For an op in flight, the uses of its result count. Of regions
    that run concurrently, the uses in the first count: it waits for all that the others write (see
    `Roles`).
    """
    last = moments[owner][1]
    for user in value.users:
        if isinstance(user, BUFFER_VIEWS):
            last = max(last, _last_use(user.results[0], owner, moments, flights))
        readers = [user, *(u for held in flights.get(user, ()) for u in held.users)]
        holders = [_last_holder(reader, owner) for reader in readers]
        last = max([last, *(moments[holder][1] for holder in holders if holder is not None)])
    return last


def _last_holder(op: Op, owner: Op) -> Op | None:
    """The op to whose end a use lasts; None for one that does not count."""
    holder = op
    for outer, region in op.enclosing():
        if region is owner.parent:
            break
        if outer.concurrent and region is not outer.regions[0]:
            return None
        if not outer.concurrent:
            holder = outer
    return holder
