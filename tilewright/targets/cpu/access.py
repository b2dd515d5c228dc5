"""Loads and stores of memory and of buffers, at a point of a loop nest.

Input: the pointer, mask and data of an access as `Lanes`. Output: the best instruction for its
`Form`: a vector access, a masked one, wider vectors and a shuffle, several shorter vectors, one
scalar access for all lanes, or a gather or scatter. Reads never touch bytes beyond the first and
the last active lane: a strided read loads the span between them and no more. Booleans are bytes in
memory and i1 in registers.
"""

from __future__ import annotations

from math import gcd
from typing import overload

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.lowering.emit import (
    I1,
    I8,
    I64,
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
from tilewright.targets.cpu.plan import STRIDED_LIMIT

SHORTEST_RUN = 4  # shorter runs of contiguous lanes are gathered or scattered


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
) -> Lanes:
    """Emit `mem.load` at a point, given its operands there."""
    pointee = memory.pointee_of(op.ptr.type)
    element = memory_type(pointee)
    if register_type(pointee) is I1 and other is not None:
        base = other.base if other.uniform else level.vector(other)
        other = Lanes(to_memory(level, base), other.stride, other.depth)
    run = contiguous_lanes(level, op.ptr, coords) if ptr.stride is None else 1
    if level.kernel.lines is not None:
        form = _form_of_read(level, ptr, element.bits // 8, mask, run)
        level.kernel.accesses.note(op, form, level.width, coords)
    found = _read(level, ptr, element, mask, other, op.volatile, run)
    return Lanes(_to_register(level, found.base, pointee), found.stride, found.depth)


def contiguous_lanes(level: Level, ptr: Value, coords: Coords) -> int:
    """The length of the runs of contiguous elements that the lanes consist of, which are a power of
    two in number; 1 if there are none, or short ones."""
    axis = level.lane_axis(coords)
    if axis is None:
        return 1
    run = gcd(level.kernel.facts[ptr].contiguity[axis], level.width)
    if run < SHORTEST_RUN or not lanes.is_run(coords[axis], run):
        return 1
    count = level.width // run
    return run if count & (count - 1) == 0 else 1


def _form_of_read(level: Level, ptr: Lanes, size: int, mask: Lanes | None, run: int = 1) -> Form:
    """The form of a read of elements of `size` bytes, of which `run` at a time are contiguous."""
    if level.width == 1 or (ptr.uniform and (mask is None or mask.uniform)):
        return Form.ONE
    if ptr.stride == size:
        return Form.WHOLE if mask is None else Form.MASKED
    if ptr.stride and mask is None and ptr.stride % size == 0:
        return Form.STRIDED if abs(ptr.stride // size) <= STRIDED_LIMIT else Form.EACH
    return Form.RUNS if run > 1 else Form.EACH


def _read(
    level: Level,
    ptr: Lanes,
    element: LType,
    mask: Lanes | None,
    other: Lanes | None,
    volatile: bool = False,
    run: int = 1,
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
    if form is Form.RUNS:
        return Lanes(_read_runs(level, pointers, element, run, mask_vector, passthru), None, depth)
    full = const(like(I1, type), 1)
    return Lanes(b.gather(type, pointers, mask_vector or full, passthru), None, depth)


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
    level: Level, pointers: V, element: LType, run: int, mask: V | None, passthru: V | None
) -> V:
    """One load for each `run` lanes, whose elements are contiguous."""
    b = level.b
    type = vector(element, run)
    parts: list[V] = []
    for start in range(0, level.width, run):
        at = b.extract(pointers, start)
        if mask is None:
            parts.append(b.load(type, at))
            continue
        assert passthru is not None
        within, otherwise = (_part(b, v, start, run) for v in (mask, passthru))
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
    level: Level, op: memory.Store, coords: Coords, ptr: Lanes, value: Lanes, mask: Lanes | None
) -> None:
    """Emit `mem.store` at a point, given its operands there."""
    if mask is not None and mask.base.number is not None and mask.base.type is I1:
        if not mask.base.number:
            return
        mask = None
    alone = level.width == 1 or (ptr.uniform and value.uniform)
    data = value.base if alone and value.uniform else level.vector(value)
    if not data.type.is_ptr and not data.type.element.is_ptr:
        data = to_memory(level, data)
    run = contiguous_lanes(level, op.ptr, coords) if ptr.stride is None else 1
    if level.kernel.lines is not None:
        form = _form_of_write(level, ptr, data, mask, run)
        level.kernel.accesses.note(op, form, level.width, coords)
    _write(level, ptr, data, mask, nontemporal=op.ptr in level.streamed, run=run)


def _form_of_write(level: Level, ptr: Lanes, data: V, mask: Lanes | None, run: int = 1) -> Form:
    """The form of a write of data, which is one element or a vector, of which `run` lanes at a time
    are contiguous in memory."""
    if mask is not None and mask.uniform:
        mask = None
    if level.width == 1 or (ptr.uniform and not data.type.lanes and mask is None):
        return Form.ONE
    size = data.type.bits // 8
    if ptr.stride == size:
        return Form.WHOLE if mask is None else Form.MASKED
    if ptr.stride == -size and mask is None:
        return Form.STRIDED
    return Form.RUNS if run > 1 else Form.EACH


def _write(
    level: Level,
    ptr: Lanes,
    data: V,
    mask: Lanes | None,
    *,
    nontemporal: bool = False,
    run: int = 1,
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
    if form is Form.RUNS:
        _write_runs(level, ptr, data, mask, run)
        return
    set_mask = level.vector(mask) if mask is not None else const(like(I1, data.type), 1)
    b.scatter(data, level.pointers(ptr), set_mask)


def _write_runs(level: Level, ptr: Lanes, data: V, mask: Lanes | None, run: int) -> None:
    """One store for each `run` lanes, whose elements are contiguous."""
    b = level.b
    pointers = level.pointers(ptr)
    mask_vector = level.vector(mask) if mask is not None else None
    for start in range(0, level.width, run):
        at, part = b.extract(pointers, start), _part(b, data, start, run)
        if mask_vector is None:
            b.store(part, at)
        else:
            b.masked_store(part, at, _part(b, mask_vector, start, run))
