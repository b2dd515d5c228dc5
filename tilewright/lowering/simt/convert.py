"""Layout conversions, as planned by `layout/convert.py`.

By increasing cost: no code, a renaming of registers, shuffles within a warp, round trips through
memory of each warp, or one through shared memory with a barrier. Elements move as integers of their
size in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.layout import convert
from tilewright.layout.families import shared_hopper
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.layout.shuffles import Shuffles
from tilewright.lowering.emit import I8, I32, V, const, int_type, poison, vector
from tilewright.lowering.simt.buffer_vectors import VECTOR_BYTES, vector_length
from tilewright.lowering.simt.kernel import Kernel, Registers, emits
from tilewright.lowering.simt.shared_memory import PRIVATE, scratch
from tilewright.lowering.simt.shared_stores import shared_stores
from tilewright.lowering.simt.tile_access import (
    element_type,
    layout_of,
    load_by_matrices,
    load_rows,
    matrices_of,
    store_registers,
)
from tilewright.lowering.simt.words import row
from tilewright.lowering.types import memory_type, register_type
from tilewright.ops.gpu import ConvertLayout
from tilewright.ops.memory import Store

WORD_BITS = 32
MATRIX_ROWS = (128, 64, 32)  # bytes of a row of scratch, within which chunks of 16 are swizzled
ROWS = 8  # of a matrix


def plan_of(op: ConvertLayout) -> convert.Plan:
    source, result = op.src.layout, op.result.layout
    assert source is not None
    assert result is not None
    return convert.plan(source, result, memory_type(op.src.type).bits)


def needs_memory(op: ConvertLayout) -> bool:
    """Whether elements pass through shared memory, and threads wait for each other."""
    return isinstance(plan_of(op), convert.Shared | convert.Parts)


@scratch(ConvertLayout)
def conversion_scratch(op: ConvertLayout) -> int:
    source = op.src.layout
    assert source is not None
    match plan_of(op):
        case convert.Shared() as plan:
            return plan.bytes
        case convert.Parts() as plan:
            return plan.bytes * source.in_size(WARP)
        case _:
            return 0


@PRIVATE.of(ConvertLayout)
def stays_in_warps(op: ConvertLayout) -> bool:
    """Whether each warp has its own scratch."""
    return isinstance(plan_of(op), convert.Parts)


@emits(ConvertLayout)
def emit_convert(kernel: Kernel, op: ConvertLayout) -> None:
    values = kernel.env[op.src]
    match plan_of(op):
        case convert.Identity():
            found = values
        case convert.Registers() as plan:
            found = [values[source] for source in plan.sources]
        case Shuffles() as plan:
            moved = _shuffled(kernel, plan, to_bits(kernel, values))
            found = from_bits(kernel, op.src.type, moved)
        case convert.Shared() as plan:
            base = kernel.shared.address(kernel.b, op)
            exchange = _Exchange(kernel, op.src, layout_of(op.src), layout_of(op.result), plan)
            bits = exchange.run(values, base, kernel.barrier)
            found = from_bits(kernel, op.src.type, bits)
        case convert.Parts() as plan:
            parts = partial(_part_by_part, kernel, op, plan)
            if _is_stored_at_once(kernel, op):
                kernel.streams[op.result] = parts
                return
            whole = {register: value for part in parts() for register, value in part.items()}
            found = [whole[register] for register in range(len(whole))]
    kernel.bind(op, found)


def to_bits(kernel: Kernel, values: Sequence[V]) -> Registers:
    """Values as integers of their size in memory: pointers 64 bits, booleans 8."""
    b = kernel.b
    if values[0].type.is_ptr:
        return [b.ptrtoint(v) for v in values]
    if values[0].type.bits == 1:
        return [b.zext(v, int_type(8)) for v in values]
    return [b.bitcast(v, int_type(v.type.bits)) for v in values]


def from_bits(kernel: Kernel, type: ir.Type, bits: Sequence[V]) -> Registers:
    """The inverse of `to_bits`: register values of a type, from integers of its size in memory."""
    b, like = kernel.b, register_type(type)
    if like.is_ptr:
        return [b.inttoptr(v) for v in bits]
    if like.bits == 1:
        return [b.icmp("ne", v, 0) for v in bits]
    return [b.bitcast(v, like) for v in bits]


# -- between the lanes of a warp ------------------------------------------------------------------


def _linear(kernel: Kernel, layout: LinearLayout, out_name: str) -> V:
    """A linear map of lane and warp, computed once, in the entry block."""
    if not layout.out_bits(out_name):
        return const(I32, 0)
    return kernel.index(layout, out_name)


class _Choice(NamedTuple):
    """The alternatives of a select.

    Attributes:
        condition: the bits of lane and warp of which an odd number must be set for `on_true`.
    """

    condition: frozenset[tuple[str, int]]
    on_true: V
    on_false: V


def _permuted(
    kernel: Kernel, values: list[V], by: LinearLayout, choices: dict[V, _Choice]
) -> list[V]:
    """`values[i ^ by(lane, warp)]` for each i: one level of selects for each bit of `by`.

    A select between results of selects by the same condition chooses from their operands: an
    exchange of two registers between lanes takes three selects, not four.

    Args:
        choices: the selects so far; those emitted here are added.
    """
    b = kernel.b
    index = _linear(kernel, by, REGISTER)
    moving = 0
    for column in by.columns:
        moving |= column
    for bit in range(moving.bit_length()):
        mask = 1 << bit
        if not moving & mask:
            continue
        condition = frozenset(
            (dim.name, i)
            for dim in by.ins
            for i, column in enumerate(by.bases(dim.name))
            if column & mask
        )
        swap = b.icmp("ne", b.and_(index, mask), 0)
        found: list[V] = []
        for i, on_false in enumerate(values):
            on_true = values[i ^ mask]
            if (known := choices.get(on_true)) and known.condition == condition:
                on_true = known.on_true
            if (known := choices.get(on_false)) and known.condition == condition:
                on_false = known.on_false
            found.append(b.select(swap, on_true, on_false))
            choices[found[-1]] = _Choice(condition, on_true, on_false)
        values = found
    return values


def _shuffled(kernel: Kernel, plan: Shuffles, values: Sequence[V]) -> Registers:
    b = kernel.b
    words = [_packed(kernel, [values[r] for r in registers]) for registers in plan.words]
    choices: dict[V, _Choice] = {}
    offers = _permuted(kernel, words, plan.send, choices)
    source = _linear(kernel, plan.source, LANE)
    got: list[V] = []
    for word, lane, moves in plan.rounds:
        if moves:
            other = b.xor(source, lane)
            got.append(_shuffle_word(kernel, offers[word], other))
        else:
            got.append(offers[word])
    placed = _permuted(kernel, got, plan.place, choices)
    per_word = len(plan.words[0])
    unpacked = [_unpacked(kernel, word, per_word, values[0]) for word in placed]
    return [unpacked[word][position] for word, position in plan.results]


def _shuffle_word(kernel: Kernel, word: V, lane: V) -> V:
    b = kernel.b
    bits = word.type.bits
    if bits <= WORD_BITS:
        moved = kernel.hw.shuffle(b, b.zext(word, I32), lane)
        return b.trunc(moved, word.type)
    halves = b.bitcast(word, vector(I32, bits // WORD_BITS))
    for i in range(bits // WORD_BITS):
        halves = b.insert(halves, kernel.hw.shuffle(b, b.extract(halves, i), lane), i)
    return b.bitcast(halves, word.type)


def _packed(kernel: Kernel, values: Sequence[V]) -> V:
    """Several narrow integers as one integer, the first in the lowest bits."""
    if len(values) == 1:
        return values[0]
    b = kernel.b
    joined = poison(vector(values[0].type, len(values)))
    for i, value in enumerate(values):
        joined = b.insert(joined, value, i)
    return b.bitcast(joined, int_type(len(values) * values[0].type.bits))


def _unpacked(kernel: Kernel, word: V, count: int, like: V) -> list[V]:
    if count == 1:
        return [word]
    joined = kernel.b.bitcast(word, vector(like.type, count))
    return [kernel.b.extract(joined, i) for i in range(count)]


# -- through shared memory ------------------------------------------------------------------------


def _is_stored_at_once(kernel: Kernel, op: ConvertLayout) -> bool:
    """Whether the only user of the result is a store, and no op accesses memory before it."""
    if len(op.result.users) != 1:
        return False
    (store,) = op.result.users
    if not isinstance(store, Store) or store.value is not op.result:
        return False
    if store.parent is not op.parent:
        return False
    between = op.next
    while between is not store:
        assert between is not None
        if not between.pure or between.regions or between in kernel.shared.spans:
            return False
        between = between.next
    return store not in kernel.shared.barriers


def _part_by_part(
    kernel: Kernel, op: ConvertLayout, plan: convert.Parts
) -> Iterator[Mapping[int, V]]:
    """The registers of the result, through the scratch of each warp."""
    b, values = kernel.b, kernel.env[op.src]
    own = kernel.once(("scratch of warps", plan.bytes), lambda b: b.mul(kernel.warp, plan.bytes))
    base = b.gep(I8, kernel.shared.address(b, op), own)
    exchange = _Exchange(kernel, op.src, plan.source, plan.result, plan.shared)
    for taken, given in zip(plan.taken, plan.given, strict=True):
        # Lanes must have loaded the preceding part.
        kernel.hw.sync_warp(b)
        part = [values[register] for register in taken]
        bits = exchange.run(part, base, partial(kernel.hw.sync_warp, b))
        yield dict(zip(given, from_bits(kernel, op.src.type, bits), strict=True))


class _Exchange:
    """Stores of a tile to scratch, and loads in another layout.

    Args:
        like: a value with the tile's elements.
        source, result: the layouts.
        plan: the conversion.
    """

    def __init__(
        self,
        kernel: Kernel,
        like: Value,
        source: LinearLayout,
        result: LinearLayout,
        plan: convert.Shared,
    ) -> None:
        self.kernel = kernel
        self.type = like.type
        self.element = element_type(like)
        self.source = source
        self.result = result
        self.plan = plan
        self.matrices = self._matrix_buffer()
        self.read = None if self.matrices is not None else self._read_buffer()

    def run(self, values: Sequence[V], base: V, wait: Callable[[], None]) -> Registers:
        """The bits of the result's registers.

        Args:
            values: the registers of the source.
            base: the address of the scratch.
            wait: emits the barrier between stores and loads.
        """
        buffer = self.matrices or self.read
        if buffer is None:
            return self._by_plan(values, base, wait)
        kernel, result = self.kernel, self.result
        store_registers(kernel, values, self.type, self.source, buffer, base)
        wait()
        loads = matrices_of(result, buffer, self.element.bits) if self.read else None
        loaded = (
            load_rows(kernel, result, buffer, base, self.element)
            if loads is None
            else load_by_matrices(kernel, loads, base, self.element)
        )
        copies = result.free_variables(REGISTER)
        return [loaded[r & ~copies] for r in range(result.in_size(REGISTER))]

    def _by_plan(self, values: Sequence[V], base: V, wait: Callable[[], None]) -> Registers:
        kernel, plan, element = self.kernel, self.plan, self.element
        b = kernel.b
        address = partial(_address, kernel, base, element.bits // 8)
        mask = kernel.all_clear(plan.idle_lanes, plan.idle_warps)  # the first holders store
        with shared_stores(kernel, len(plan.store.vectors), mask) as store:
            for registers in plan.store.vectors:
                stored = row(b, [values[r] for r in registers], self.type)
                place = address(plan.store.offsets, registers[0])
                store(stored, place, align=len(registers) * element.bits // 8)
        wait()
        loaded: dict[int, V] = {}
        for registers in plan.load.vectors:
            place = address(plan.load.offsets, registers[0])
            if len(registers) == 1:
                loaded[registers[0]] = b.load(element, place)
                continue
            kind = vector(element, len(registers))
            joined = b.load(kind, place, align=len(registers) * element.bits // 8)
            for i, register in enumerate(registers):
                loaded[register] = b.extract(joined, i)
        return [loaded[r] for r in plan.copies]

    def _matrix_buffer(self) -> LinearLayout | None:
        """The layout of scratch to which matrices are stored, and from which vectors of 16 bytes
        are loaded: the fewest instructions. None if there is none."""
        source, bits = self.source, self.element.bits
        copies = any(source.free_variables(name) for name in (REGISTER, LANE, WARP))
        if not self.kernel.hw.stores_matrices or copies:
            return None
        for buffer in self._swizzled_buffers():
            if matrices_of(source, buffer, bits) and self._is_moved_at_once(self.result, buffer):
                return buffer
        return None

    def _read_buffer(self) -> LinearLayout | None:
        """The layout of scratch to which vectors of 16 bytes are stored, and from which matrices
        are loaded, if these are fewer instructions than those of the plan."""
        plan, bits = self.plan, self.element.bits
        if not self.kernel.hw.loads_matrices or bits > WORD_BITS:
            return None
        length = VECTOR_BYTES * 8 // bits
        stores = self.source.in_size(REGISTER) // length
        planned = len(plan.store.vectors) + len(plan.load.vectors)
        for buffer in self._swizzled_buffers():
            loads = matrices_of(self.result, buffer, bits)
            if loads is None or not self._is_moved_at_once(self.source, buffer):
                continue
            if stores + len(loads.access.registers) < planned:
                return buffer
        return None

    def _is_moved_at_once(self, tile: LinearLayout, buffer: LinearLayout) -> bool:
        """Whether accesses move 16 bytes between the registers of a tile and a buffer."""
        length = VECTOR_BYTES * 8 // self.element.bits
        return vector_length(tile, buffer, length) == length

    def _swizzled_buffers(self) -> Iterator[LinearLayout]:
        """The swizzled layouts of the tile that fit into the scratch."""
        shape, bits = self.source.shape, self.element.bits
        size = bits // 8
        if len(shape) != 2 or bits > WORD_BITS or prod(shape) * size > self.plan.bytes:
            return
        for axis in (1, 0):
            for row_bytes in MATRIX_ROWS:
                if row_bytes <= shape[axis] * size and shape[1 - axis] >= ROWS:
                    yield shared_hopper(shape, bits, row_bytes, axis == 0)


def _address(kernel: Kernel, base: V, size: int, offsets: LinearLayout, register: int) -> V:
    """Address of the element in a register: the offsets of thread and register, combined by xor.

    Bits that depend on the register alone are added instead, which folds into the immediate offset
    of the access.
    """
    b = kernel.b
    out = offsets.outs[0].name
    thread = kernel.index(offsets, out)
    own = offsets.apply_flat(register)
    moving = offsets.moved_by(LANE, WARP)
    element = int_type(size * 8)
    start = b.gep(element, base, b.xor(thread, own & moving))
    return b.gep(element, start, own & ~moving)
