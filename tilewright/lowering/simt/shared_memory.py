"""Who may use which bytes of shared memory, and where a barrier must keep them apart.

Two kinds of things lie there: *buffers*, which are values of the IR, and *scratch*, through which
an op exchanges data between warps. The scratch that an op needs is registered with `scratch` beside
its emitter; it writes it, waits for all threads, and reads it.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.types import Shared
from tilewright.lowering.emit import I8, Builder, Module, V, array
from tilewright.ops.control import Barrier, For, While
from tilewright.ops.gpu import Allocate, CopyAsync, PermuteBuffer, Share, Slot

ALIGN = 1024  # what the widest swizzle of the hardware repeats after
SCRATCH_ALIGN = 16
SMALL = 1024  # scratch up to so many bytes is not shared with other ops, which saves barriers
LASTING = 16 * 1024  # bytes of a program's scratch, in all, that are not shared with other ops

VIEWS = (Slot, PermuteBuffer)  # ops whose result is memory of their operand

Scratch = Callable[[Any], int]
SCRATCH: dict[type[Op], Scratch] = {}


def scratch(cls: type[Op]) -> Callable[[Scratch], Scratch]:
    """Register how many bytes an op of this class exchanges through shared memory."""

    def register(fn: Scratch) -> Scratch:
        SCRATCH[cls] = fn
        return fn

    return register


class Span(NamedTuple):
    """Bytes from `start` up to `end`."""

    start: int
    end: int

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end


class Access(NamedTuple):
    """Bytes that an op reads or writes. `owner` is the op that has the memory."""

    owner: Op
    span: Span
    writes: bool

    def conflicts(self, other: Access) -> bool:
        """Whether a barrier must lie between the two.

        Of an `Allocate` op's buffer the writers and readers keep the order themselves.
        """
        own = self.owner is other.owner and isinstance(self.owner, Allocate)
        return (self.writes or other.writes) and not own and self.span.overlaps(other.span)


Pending = frozenset[Access]


def buffer_owner(value: Value) -> Op:
    """The op that made the buffer of which the value is a view."""
    op = value.op
    while isinstance(op, VIEWS):
        op = op.buffer.op
    assert isinstance(op, Share | Allocate), "a buffer is made by an op of its own"
    return op


class SharedMemory:
    """The plan of a function's shared memory.

    Attributes:
        spans: where each buffer's op, or op with scratch, has its memory.
        barriers: ops before which all threads must wait.
        bytes: how much memory the program needs.
    """

    def __init__(self, fn: Function) -> None:
        self.spans = _allocate(fn)
        self.bytes = max((span.end for span in self.spans.values()), default=0)
        self.barriers: set[Op] = set()
        self._base: V | None = None
        self._walk(fn.body, frozenset())

    def declare(self, module: Module, space: int) -> None:
        """Declare the memory, whose size the launch gives."""
        if self.bytes:
            self._base = module.global_variable(
                "shared", array(I8, 0), "", ALIGN, space=space, linkage="external"
            )

    def address(self, b: Builder, op: Op) -> V:
        """Address of the memory of a buffer's op, or of an op's scratch."""
        assert self._base is not None
        return b.gep(I8, self._base, self.spans[op].start)

    # -- barriers -------------------------------------------------------------------------------

    def _accesses(self, op: Op) -> list[Access]:
        """What the op reads and writes before any barrier of its own."""
        if isinstance(op, (*VIEWS, Allocate)):
            return []
        found: list[Access] = []
        if isinstance(op, Share) or op in self.spans:
            found.append(Access(op, self.spans[op], True))
        for value in op.operands:
            if isinstance(value.type, Shared):
                owner = buffer_owner(value)
                found.append(Access(owner, self.spans[owner], isinstance(op, CopyAsync)))
            elif value.op is not None and value.op.in_flight:
                # It read until now, whatever barriers there were since it started.
                found += self._accesses(value.op)
        return found

    def _walk(self, region: Region, pending: Pending) -> Pending:
        """Find barriers, given the accesses since the last one; those since then at the end."""
        for op in region:
            if isinstance(op, For | While):
                # Once more with what the end of the body leaves for its beginning.
                ends = self._walk_regions(op.regions, pending)
                pending |= self._walk_regions(op.regions, pending | ends)
            elif isinstance(op, Barrier):
                pending = frozenset()
            elif op.concurrent:
                # A barrier within waits for one team alone: what all warps did before must end
                # here. Regions need none between each other, as they share no memory.
                if pending:
                    self.barriers.add(op)
                pending = Pending().union(*(self._walk(r, Pending()) for r in op.regions))
            elif op.regions and op not in self.spans:
                pending = Pending().union(*(self._walk(r, pending) for r in op.regions))
            else:
                pending = self._step(op, pending)
        return pending

    def _step(self, op: Op, pending: Pending) -> Pending:
        accesses = self._accesses(op)
        if any(a.conflicts(p) for a in accesses for p in pending):
            self.barriers.add(op)
            pending = frozenset()
        if op in self.spans and not isinstance(op, Share | Allocate):
            # Its own barrier lies between writing its scratch and reading it.
            return frozenset([Access(op, self.spans[op], False)])
        return pending.union(accesses)

    def _walk_regions(self, regions: Iterable[Region], pending: Pending) -> Pending:
        for region in regions:
            pending = self._walk(region, pending)
        return pending


# -- places ---------------------------------------------------------------------------------------


class _Need(NamedTuple):
    """Memory that is needed from the first to the last of two moments, both included."""

    op: Op
    bytes: int
    align: int
    first: int
    last: int
    lasts: bool = False  # it is in use always
    sides: Mapping[Op, Region] = MappingProxyType({})  # the region it is in of each concurrent op

    def overlaps(self, other: _Need) -> bool:
        """Whether both may be in use at the same time.

        Moments are positions in the text, which say nothing about the order between regions that
        run at the same time.
        """
        if self.first <= other.last and other.first <= self.last:
            return True
        return any(other.sides.get(op, region) is not region for op, region in self.sides.items())


class _Placed:
    """What has its place, found by when it is needed.

    Most memory is needed for a short time, so looking at all of it for each op would take a time
    that grows with the square of their number.
    """

    BLOCK = 64  # moments
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
        """The spans that may be in use at the same time as this need, lowest first."""
        found = list(self._long)
        for block in self._blocks(need):
            found += self._short.get(block, ())
        for op in need.sides:
            found += self._concurrent.get(op, ())
        return sorted({span for other, span in found if need.overlaps(other)})


def _allocate(fn: Function) -> dict[Op, Span]:
    """Memory for all that needs it: at each moment, what is in use lies side by side.

    The largest come first, each at the lowest place that is free for as long as it is needed.
    Small scratch counts as in use always, so that no barrier is needed before it is written; where
    there is much of it, what comes later is shared as the large one is.
    """
    needs = sorted(_needs(fn), key=lambda n: (n.lasts, -n.align, -n.bytes))
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


def _lowest(need: _Need, taken: Iterable[Span]) -> Span:
    """The lowest free place, given those that are not, by their starts."""
    start = 0
    for span in taken:
        if start + need.bytes <= span.start:
            break
        start = max(start, (span.end + need.align - 1) // need.align * need.align)
    return Span(start, start + need.bytes)


def _sides(op: Op) -> dict[Op, Region]:
    """The region that the op is in, for each concurrent op around it."""
    found: dict[Op, Region] = {}
    region = op.parent
    while region is not None and region.parent is not None:
        if region.parent.concurrent:
            found[region.parent] = region
        region = region.parent.parent
    return found


def _needs(fn: Function) -> list[_Need]:
    moments: dict[Op, tuple[int, int]] = {}  # of an op and all that is in it
    count = _number(fn.body, moments, 0)
    found: list[_Need] = []
    lasting = 0
    for op in moments:
        if isinstance(op, Share | Allocate):
            assert isinstance(op.results[0].type, Shared)
            last = _last_use(op.results[0], op, moments)
            found.append(
                _Need(op, op.results[0].type.nbytes, ALIGN, moments[op][0], last, sides=_sides(op))
            )
            continue
        need = SCRATCH.get(type(op))
        size = need(op) if need is not None else 0
        if size:
            lasts = size <= SMALL and lasting + size <= LASTING
            lasting += size if lasts else 0
            first, last = (0, count) if lasts else moments[op]
            found.append(_Need(op, size, SCRATCH_ALIGN, first, last, lasts, _sides(op)))
    return found


def _number(region: Region, moments: dict[Op, tuple[int, int]], count: int) -> int:
    for op in region:
        first = count
        count += 1
        moments[op] = first, first
        if not op.elementwise and type(op) not in SCRATCH:
            for nested in op.regions:
                count = _number(nested, moments, count)
        moments[op] = first, count
    return count


def _last_use(value: Value, owner: Op, moments: dict[Op, tuple[int, int]]) -> int:
    """The end of the last op, in the region of the owner, that uses the buffer or a view of it.

    Of an op in flight, that is the last one that takes its result.
    """
    last = moments[owner][1]
    for user in value.users:
        if isinstance(user, VIEWS) or user.in_flight:
            last = max(last, _last_use(user.results[0], owner, moments))
        holder = user
        while holder.parent is not owner.parent:
            outer = holder.parent_op()
            assert outer is not None
            holder = outer
        last = max(last, moments[holder][1])
    return last
