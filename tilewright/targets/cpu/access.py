"""Loads and stores of memory and of buffers, at a point of a loop nest.

Input: the pointer, mask and data of an access as `Lanes`. Output: the best instruction for its
`Form`: a vector access, a masked one, wider vectors and a shuffle, several shorter vectors, one
scalar access for all lanes, or a gather or scatter. Reads never access bytes beyond the first and
the last active lane: a strided read loads exactly the span between them. Booleans are bytes in
memory and i1 in registers.

Contiguous runs that are only stated by a hint, or that are interrupted in a few places
(`analysis/steps.py`), are checked at run time: if the distance of their ends is not that of a run,
each element is accessed separately. Nearly all false hints state that remainders, or indices with
an upper bound, are contiguous; the ends detect these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import NamedTuple, overload

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.lowering.emit import (
    I1,
    I8,
    I64,
    Block,
    Builder,
    LType,
    V,
    const,
    like,
    vector,
    zero,
)
from tilewright.lowering.guard import guarded
from tilewright.lowering.types import memory_type, register_type
from tilewright.ops import memory
from tilewright.targets.cpu import lanes
from tilewright.targets.cpu.access_report import Form
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.lanes import ZERO, Lanes
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.plan import LEAST_RUN, STRIDED_LIMIT

SHORTEST_RUN = 4  # shorter runs of contiguous lanes are gathered or scattered


class Run(NamedTuple):
    """The runs of contiguous elements that the lanes consist of.

    length: how many elements each of them has.
    proven: whether they are contiguous; otherwise they may be, as a hint or an index has it.
    ends: the addresses of the first and the last lane of each, if they are not proven.
    """

    length: int
    proven: bool = True
    ends: Sequence[tuple[V, V]] = ()


NO_RUN = Run(1)


def _to_register(level: Level, value: V, element: ir.Scalar) -> V:
    """Convert a value from its representation in memory: a boolean's byte becomes an i1."""
    if register_type(element) is I1:
        return level.b.icmp("ne", value, const(value.type, 0))
    return value


def to_memory(level: Level, value: V) -> V:
    """Convert a value to its representation in memory."""
    return level.b.zext(value, I8) if value.type.element is I1 else value


def _position(level: Level, buffer: Buffer, coords: Coords) -> Lanes:
    position = ZERO
    for axis in buffer.axes:
        n = buffer.type.shape[axis]
        if n != 1:
            scaled = lanes.mul(level.b, position, lanes.index(n), level.width)
            position = lanes.add(level.b, scaled, coords[axis], level.width)
    return position


def _address(level: Level, buffer: Buffer, coords: Coords) -> Lanes:
    position = _position(level, buffer, coords)
    size = buffer.element.bits // 8
    if position.stride is None:
        return Lanes(level.b.gep(buffer.element, buffer.ptr, position.base), None, position.depth)
    at = level.b.gep(buffer.element, buffer.ptr, position.base)
    return Lanes(at, position.stride * size, position.depth)


def read_buffer(level: Level, buffer: Buffer, coords: Coords) -> Lanes:
    """The element of a materialised tile at a point."""
    address = _address(level, buffer, coords)
    found = _read(level, address, buffer.element, None, None)
    return Lanes(_to_register(level, found.base, buffer.type.element), found.stride, found.depth)


def write_buffer(level: Level, buffer: Buffer, coords: Coords, value: Lanes) -> None:
    """Write the element of a materialised tile at a point."""
    address = _address(level, buffer, coords)
    data = value.base if address.uniform else level.vector(value)
    if not data.type.is_ptr:
        data = to_memory(level, data)
    _write(level, address, data, None)


def load(
    level: Level,
    op: memory.Load,
    coords: Coords,
    ptr: Lanes,
    mask: Lanes | None,
    other: Lanes | None,
    run: Run,
) -> Lanes:
    """Emit `mem.load` at a point, given its operands there and its runs with their ends."""
    pointee = memory.pointee_of(op.ptr.type)
    element = memory_type(pointee)
    if register_type(pointee) is I1 and other is not None:
        base = other.base if other.uniform else level.vector(other)
        other = Lanes(to_memory(level, base), other.stride, other.depth)
    if level.kernel.lines is not None:
        form = _form_of_read(level, ptr, element.bits // 8, mask, run)
        level.kernel.accesses.note(op, form, level.width, coords)
    found = _read(level, ptr, element, mask, other, op.volatile, run)
    return Lanes(_to_register(level, found.base, pointee), found.stride, found.depth)


def contiguous_lanes(level: Level, ptr: Value, at: Lanes, coords: Coords) -> Run:
    """The runs of contiguous elements that the lanes consist of, which are a power of two in
    number; those of one element if there are none, short ones, or an address of constant stride.

    Args:
        at: the pointers at `coords`.
    """
    plan, axis = level.kernel.plan, level.lane_axis(coords)
    if axis is None or at.stride is not None:
        return NO_RUN
    proven, hinted = (gcd(f[ptr].contiguity[axis], level.width) for f in (plan.facts, plan.hinted))
    run = Run(proven) if proven >= LEAST_RUN else Run(hinted, hinted == proven)
    if run.length < SHORTEST_RUN and plan.may_be_runs(ptr, axis, level.width):
        run = Run(level.width, proven=False)
    if run.length < SHORTEST_RUN or not lanes.is_run(coords[axis], run.length):
        return NO_RUN
    count = level.width // run.length
    return run if count & (count - 1) == 0 else NO_RUN


def ends_of_runs(level: Level, run: Run, coords: Coords) -> list[tuple[Coords, Coords]]:
    """The points of the first and the last lane of each run, if it has to be checked."""
    axis = level.lane_axis(coords)
    if run.proven or axis is None:
        return []
    first = Lanes(coords[axis].base, 0, coords[axis].depth, coords[axis].known)

    def point(lane: int) -> Coords:
        with level.placed(first):
            place = lanes.add(level.b, first, lanes.index(lane), level.width)
        return (*coords[:axis], place, *coords[axis + 1 :])

    starts = range(0, level.width, run.length)
    return [(point(k), point(k + run.length - 1)) for k in starts]


def _form_of_read(
    level: Level, ptr: Lanes, size: int, mask: Lanes | None, run: Run = NO_RUN
) -> Form:
    """The form of a read of elements of `size` bytes, which lie in runs."""
    if level.width == 1 or (ptr.uniform and (mask is None or mask.uniform)):
        return Form.ONE
    if ptr.stride == size:
        return Form.WHOLE if mask is None else Form.MASKED
    if ptr.stride and mask is None and ptr.stride % size == 0:
        return Form.STRIDED if abs(ptr.stride // size) <= STRIDED_LIMIT else Form.EACH
    return Form.RUNS if run.length > 1 else Form.EACH


def _read(
    level: Level,
    ptr: Lanes,
    element: LType,
    mask: Lanes | None,
    other: Lanes | None,
    volatile: bool = False,
    run: Run = NO_RUN,
) -> Lanes:
    b = level.b
    # The read may depend on the masks assumed true in this body, so it must not be hoisted.
    depth = level.depth
    size = element.bits // 8
    form = _form_of_read(level, ptr, size, mask, run)
    if level.width == 1:
        ptr, mask, other = _first(ptr), _first(mask), _first(other)
    if form is Form.ONE:
        return _read_scalar(level, ptr, element, mask, other, depth, volatile)
    type = vector(element, level.width)
    mask_vector = level.vector(mask) if mask is not None else None
    passthru = level.vector(other) if other is not None else None
    if form is Form.WHOLE:
        return Lanes(b.load(type, ptr.base, volatile=volatile), None, depth)
    if form is Form.MASKED:
        assert mask_vector is not None
        return Lanes(b.masked_load(type, ptr.base, mask_vector, passthru), None, depth)
    if form is Form.STRIDED:
        assert ptr.stride is not None
        return Lanes(_read_strided(level, ptr.base, element, ptr.stride // size), None, depth)
    pointers = level.pointers(ptr)

    def gathered() -> V:
        full = const(like(I1, type), 1)
        return b.gather(type, pointers, mask_vector or full, passthru)

    def in_runs() -> V:
        starts = _starts(b, pointers, run)
        return _read_runs(b, starts, element, run.length, mask_vector, passthru)

    if form is Form.EACH:
        return Lanes(gathered(), None, depth)
    if run.proven:
        return Lanes(in_runs(), None, depth)
    return Lanes(_either(level, _are_runs(b, run, size), in_runs, gathered), None, depth)


def _starts(b: Builder, pointers: V, run: Run) -> list[V]:
    """The address of the first element of each run."""
    if not run.proven:
        return [first for first, _ in run.ends]
    return [b.extract(pointers, k) for k in range(0, pointers.type.lanes, run.length)]


def _are_runs(b: Builder, run: Run, size: int) -> V:
    """Whether the ends are as far apart as those of runs of elements of `size` bytes."""
    holds = const(I1, 1)
    for first, last in run.ends:
        distance = b.sub(b.ptrtoint(last), b.ptrtoint(first))
        holds = b.and_(holds, b.icmp("eq", distance, const(I64, (run.length - 1) * size)))
    return holds


def _either(level: Level, condition: V, then: Callable[[], V], otherwise: Callable[[], V]) -> V:
    """The result of one of two computations, of which only that one is executed."""
    b = level.b
    runs, each, after = (b.block(name) for name in ("runs", "each", "after"))
    b.cond_br(condition, runs, each)
    found: list[tuple[Block, list[V]]] = []
    for block, act in ((runs, then), (each, otherwise)):
        b.at(block)
        value = act()
        found.append((b.current, [value]))
        b.br(after)
    b.at(after)
    level.block = b.current
    return b.merge(*found)[0]


@overload
def _first(x: Lanes) -> Lanes: ...
@overload
def _first(x: None) -> None: ...
def _first(x: Lanes | None) -> Lanes | None:
    """The only lane of a value of one lane."""
    return Lanes(x.base, 0, x.depth) if x is not None else None


def _read_strided(level: Level, base: V, element: LType, step: int) -> V:
    """Every `step`-th element, by one load of the span from the first lane to the last, which are
    both read anyway, so that the load cannot fault."""
    b, width = level.b, level.width
    span = (width - 1) * abs(step) + 1
    start = base if step > 0 else b.gep(element, base, const(I64, -(span - 1)))
    wide = b.load(vector(element, span), start)
    first = 0 if step > 0 else span - 1
    return b.shuffle(wide, None, [first + k * step for k in range(width)])


def _read_runs(
    b: Builder, starts: list[V], element: LType, run: int, mask: V | None, passthru: V | None
) -> V:
    """One load for each run of elements, at the address of its first one."""
    type = vector(element, run)
    parts: list[V] = []
    for k, at in enumerate(starts):
        if mask is None:
            parts.append(b.load(type, at))
            continue
        assert passthru is not None
        within, otherwise = (_part(b, v, k * run, run) for v in (mask, passthru))
        # The lanes' pointers are valid only where the mask is true; a run starts at the first
        # lane's, which is not read if its mask is false.
        parts.append(b.masked_load(type, at, within, otherwise))
    return _joined(b, parts)


def _part(b: Builder, x: V, start: int, count: int) -> V:
    """`count` lanes of a vector, from `start` on."""
    return b.shuffle(x, None, list(range(start, start + count)))


def _joined(b: Builder, parts: list[V]) -> V:
    """The concatenation of vectors of equal length, pairwise; their number is a power of two."""
    while len(parts) > 1:
        indices = list(range(2 * parts[0].type.lanes))
        parts = [
            b.shuffle(low, high, indices) for low, high in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def _read_scalar(
    level: Level,
    ptr: Lanes,
    element: LType,
    mask: Lanes | None,
    other: Lanes | None,
    depth: int,
    volatile: bool,
) -> Lanes:
    b = level.b

    def load() -> V:
        return b.load(element, ptr.base, volatile=volatile)

    if mask is None:
        return Lanes(load(), 0, depth)
    assert other is not None
    read = guarded(b, mask.base, load, other.base if other.uniform else zero(element))
    level.block = b.current
    if other.uniform:
        return Lanes(read, 0, depth)
    chosen = b.select(mask.base, lanes.spread(b, read, level.width), level.vector(other))
    return Lanes(chosen, None, depth)


def store(
    level: Level,
    op: memory.Store,
    coords: Coords,
    ptr: Lanes,
    value: Lanes,
    mask: Lanes | None,
    run: Run = NO_RUN,
) -> None:
    """Emit `mem.store` at a point, given its operands there and its runs with their ends."""
    if mask is not None and mask.base.number is not None and mask.base.type is I1:
        if not mask.base.number:
            return
        mask = None
    alone = level.width == 1 or (ptr.uniform and value.uniform)
    data = value.base if alone and value.uniform else level.vector(value)
    if not data.type.is_ptr and not data.type.element.is_ptr:
        data = to_memory(level, data)
    if level.kernel.lines is not None:
        form = _form_of_write(level, ptr, data, mask, run)
        level.kernel.accesses.note(op, form, level.width, coords)
    _write(level, ptr, data, mask, nontemporal=op.ptr in level.streamed, run=run)


def _form_of_write(
    level: Level, ptr: Lanes, data: V, mask: Lanes | None, run: Run = NO_RUN
) -> Form:
    """The form of a write of data, which is one element or a vector that lies in runs in memory."""
    if mask is not None and mask.uniform:
        mask = None
    if level.width == 1 or (ptr.uniform and not data.type.lanes and mask is None):
        return Form.ONE
    size = data.type.bits // 8
    if ptr.stride == size:
        return Form.WHOLE if mask is None else Form.MASKED
    if ptr.stride == -size and mask is None:
        return Form.STRIDED
    return Form.RUNS if run.length > 1 else Form.EACH


def _write(
    level: Level,
    ptr: Lanes,
    data: V,
    mask: Lanes | None,
    *,
    nontemporal: bool = False,
    run: Run = NO_RUN,
) -> None:
    b = level.b
    if level.width == 1:
        ptr, mask = _first(ptr), _first(mask)
    if mask is not None and mask.uniform:
        # A masked store of all lanes costs more than a branch, which is predictable.
        with b.when(mask.base):
            _write(level, ptr, data, None, nontemporal=nontemporal, run=run)
        level.block = b.current
        return
    form = _form_of_write(level, ptr, data, mask, run)
    if form is Form.ONE:
        b.store(data, ptr.base)
        return
    if not data.type.lanes:
        data = lanes.spread(b, data, level.width)
    if form is Form.WHOLE and nontemporal:
        one = level.kernel.module.metadata("!{i32 1}")
        b.store(data, ptr.base, level.width * data.type.bits // 8, f"!nontemporal {one}")
        return
    if form is Form.WHOLE:
        b.store(data, ptr.base)
        return
    if form is Form.MASKED:
        assert mask is not None
        b.masked_store(data, ptr.base, level.vector(mask))
        return
    if form is Form.STRIDED:
        last = b.gep(data.type.element, ptr.base, const(I64, 1 - level.width))
        b.store(b.shuffle(data, None, list(reversed(range(level.width)))), last)
        return
    pointers = level.pointers(ptr)
    mask_vector = level.vector(mask) if mask is not None else None
    if form is Form.EACH:
        _write_each(b, pointers, data, mask_vector)
    elif run.proven:
        _write_runs(b, _starts(b, pointers, run), data, mask_vector, run.length)
    else:
        holds = _are_runs(b, run, data.type.element.bits // 8)
        with b.when(holds):
            _write_runs(b, _starts(b, pointers, run), data, mask_vector, run.length)
        with b.when(b.not_(holds)):
            _write_each(b, pointers, data, mask_vector)
        level.block = b.current


def _write_each(b: Builder, pointers: V, data: V, mask: V | None) -> None:
    """A scatter."""
    b.scatter(data, pointers, mask or const(like(I1, data.type), 1))


def _write_runs(b: Builder, starts: list[V], data: V, mask: V | None, run: int) -> None:
    """One store for each run of elements, at the address of its first one."""
    for k, at in enumerate(starts):
        part = _part(b, data, k * run, run)
        if mask is None:
            b.store(part, at)
        else:
            b.masked_store(part, at, _part(b, mask, k * run, run))
