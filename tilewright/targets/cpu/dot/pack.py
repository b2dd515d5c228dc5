"""Packing: evaluates an operand of a product into memory, in the micro-kernel's format.

An operand has *rows*, indexed by i, that are multiplied along K: the rows of the left operand, the
columns of the right one. Packed, it consists of groups (see `schemes`), in one of two orders:

- *by rows*: all groups of row 0, then all of row 1, …
- *by panels*: a panel is `panel` rows; it contains group 0 of each of its rows, then group 1 of
  each of its rows, … so that a vector contains one group of each of several adjacent rows.

The operand that is read as vectors requires panels; the one whose groups are broadcast to all lanes
may have either order. An order is produced according to the axis along which the operand is
contiguous in memory:

    contiguous      to rows                 to panels
    along K         copy                    copy some rows, transpose them in registers
    along i         panels, then transpose  copy `group` rows of K, interleave them in registers

The staging buffers of these copies fit in the first-level cache. Copies are ordinary loop nests, so
an operand may be any expression, and its loads may be masked.
"""

from __future__ import annotations

from math import gcd

from tilewright.base.record import record, replace
from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.lowering.convert import cast
from tilewright.lowering.emit import I1, I8, I64, PTR, VOID, LType, V, const, vector
from tilewright.lowering.types import memory_type
from tilewright.targets.cpu import access, lanes
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.dot.schemes import Scheme
from tilewright.targets.cpu.dot.shuffles import interleave, transpose_block
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.loops import loop, over_axes
from tilewright.targets.cpu.nest import Nest, lane_of
from tilewright.targets.cpu.sinks import Copy, Sink

STAGED_ROWS = 16  # rows of K that are copied before they are interleaved

# Bytes of a row of the squares that are transposed. Twice as many require a third more shuffles of
# 256 bits (one of 512 counts as two, as on a Zen 4), and some 5 ms more in LLVM.
SQUARE_BYTES = 32

At = dict[int, Lanes]
"""Coordinates by axis: the position in the batch."""


@record
class Packed:
    """A packed operand. Strides are in groups.

    Attributes:
        ptr: address of group 0 of row 0.
        group: the LLVM type of a group.
        row: stride between rows of a panel.
        k: stride between groups of a row.
        panel: stride between panels.
    """

    ptr: V
    group: LType
    row: int
    k: int
    panel: int

    def at(self, ptr: V) -> Packed:
        """The part that begins at an address."""
        return replace(self, ptr=ptr)


@record
class Side:
    """One operand of a product, and the format to pack it into.

    Attributes:
        value: the tile, a batch of matrices.
        row_axis, k_axis: the axes of its matrices.
        scheme: the multiplication scheme.
        padded_k: the extent of K after padding with zeros, in elements.
        lanes: groups of a vector.
        panel: rows of a panel.
        flipped: whether to invert sign bits.
    """

    value: Value
    row_axis: int
    k_axis: int
    scheme: Scheme
    padded_k: int
    lanes: int
    panel: int
    flipped: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return ir.shape_of(self.value.type)

    @property
    def rows(self) -> int:
        return self.shape[self.row_axis]

    @property
    def extent_k(self) -> int:
        return self.shape[self.k_axis]

    @property
    def groups(self) -> int:
        """The number of groups of a row."""
        return self.padded_k // self.scheme.group


def round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def converted(level: Level, held: Lanes, source: ir.DType, to: ir.DType) -> Lanes:
    """Convert numbers from one type to another."""
    with level.placed(held):
        x = cast(level.b, held.base if held.uniform else level.vector(held), source, to)
    return Lanes(x, 0 if held.uniform else None, held.depth)


class _Fill(Copy):
    """Evaluates an operand into a buffer, by rows, converting to the scheme's type."""

    def __init__(self, kernel: Kernel, side: Side, buffer: Buffer) -> None:
        super().__init__(kernel, side.value, buffer)
        self.side = side

    def place(self, level: Level, coords: Coords) -> Coords:
        """The coordinates in the buffer of an element of the operand."""
        return coords[self.side.row_axis], coords[self.side.k_axis]

    def evaluate(self, level: Level, coords: Coords) -> None:
        held = evaluate(level, self.kept, coords)
        source, to = ir.dtype_of(self.kept.type), self.side.scheme.packed
        if source == to and not self.side.flipped:
            self.value = held
            return
        found = converted(level, held, source, to)
        if self.side.flipped:
            x = level.b.xor(found.base, const(found.base.type, -128))
            found = Lanes(x, found.stride, found.depth)
        self.value = found

    def commit(self, level: Level, coords: Coords) -> None:
        self.fill(level, coords, self.value)

    def fill(self, level: Level, coords: Coords, value: Lanes) -> None:
        access.write_buffer(level, self.buffer, self.place(level, coords), value)


class _FillPanels(_Fill):
    """Evaluates into panels with groups of one element: a buffer of shape (panels, K, panel)."""

    def place(self, level: Level, coords: Coords) -> Coords:
        panels, _, size = self.buffer.type.shape
        row, k = coords[self.side.row_axis], coords[self.side.k_axis]
        if panels == 1:
            return lanes.ZERO, k, row
        panel, within = lanes.divmod_const(level.b, row, size, level.width)
        return panel, k, within


class _FillStage(_Fill):
    """Evaluates one line along the axis `lane` into line `line` of a buffer."""

    def __init__(self, kernel: Kernel, side: Side, buffer: Buffer, lane: int) -> None:
        super().__init__(kernel, side, buffer)
        self.lane = lane
        self.line = lanes.ZERO

    def place(self, level: Level, coords: Coords) -> Coords:
        return self.line, coords[self.lane]


class Packer:
    """Packs the operand of one product of a batch.

    Args:
        level: where to emit the code.
        at: the position in the batch.
    """

    def __init__(self, kernel: Kernel, level: Level, at: At, side: Side) -> None:
        self.kernel = kernel
        self.b = kernel.b
        self.level = level
        self.at = at
        self.side = side
        self.group = side.scheme.group_type
        self.lane = self._lane()

    def _lane(self) -> int:
        """The axis of the lanes: that of contiguous loads, or else the last."""
        side = self.side
        found = lane_of(self.kernel, side.shape, [Sink(self.kernel, [side.value])])
        return found if found in (side.row_axis, side.k_axis) else len(side.shape) - 1

    # -- the requested order --------------------------------------------------------------------

    def rows_or_panels(self) -> Packed:
        """In the order that is cheaper to produce; panels must be one panel."""
        kept = self._kept_rows()
        if kept is not None:
            return kept
        return self._copied_rows() if self.lane == self.side.k_axis else self.panels()

    def rows(self) -> Packed:
        """By rows. K and the number of rows must be multiples of a vector."""
        kept = self._kept_rows()
        if kept is not None:
            return kept
        if self.lane == self.side.k_axis:
            return self._copied_rows()
        return self._rows_of(self.panels())

    def panels(self) -> Packed:
        """By panels, padded to whole vectors with rows of unspecified content."""
        kept = self._kept_panels()
        if kept is not None:
            return kept
        if self.lane == self.side.k_axis:
            return self._transposed_panels()
        return self._copied_panels() if self.side.scheme.group == 1 else self._interleaved_panels()

    # -- operands that are materialised already -------------------------------------------------

    def _kept(self) -> V | None:
        """The address of the matrix, if it is materialised in the scheme's element type."""
        bound, side = self.kernel.env.get(self.side.value), self.side
        if not isinstance(bound, Buffer) or ir.dtype_of(bound.type) != side.scheme.packed:
            return None
        if side.flipped or side.padded_k != side.extent_k:
            return None
        return matrix_in(self.level, bound, self.at)

    def _kept_rows(self) -> Packed | None:
        ptr, side = self._kept(), self.side
        if ptr is None or side.k_axis < side.row_axis:
            return None
        return Packed(ptr, self.group, side.groups, 1, 0)

    def _kept_panels(self) -> Packed | None:
        """A row-major right operand as panels, if its rows consist of whole vectors."""
        side = self.side
        if side.scheme.group > 1 or side.row_axis < side.k_axis or side.rows % side.lanes:
            return None
        ptr = self._kept()
        return None if ptr is None else Packed(ptr, self.group, 1, side.rows, side.panel)

    # -- copies ---------------------------------------------------------------------------------

    def _copied_rows(self) -> Packed:
        side = self.side
        buffer = self._buffer(side.rows, side.padded_k)
        self._run(_Fill(self.kernel, side, buffer))
        return Packed(buffer.ptr, self.group, side.groups, 1, 0)

    def _copied_panels(self) -> Packed:
        side = self.side
        packed = self._new_panels(side.groups)
        shape = -(-side.rows // side.panel), side.groups, side.panel
        buffer = Buffer(packed.ptr, ir.Tile(shape, side.scheme.packed))
        self._run(_FillPanels(self.kernel, side, buffer))
        return packed

    def _run(self, sink: _Fill) -> None:
        """Emit a loop nest over all elements of the matrix."""
        nest = self._nest(sink)
        outer = [a for a in (self.side.row_axis, self.side.k_axis) if a != self.lane]
        over_axes(self.level, self.side.shape, outer, nest.lanes, self.at)
        self.b.at(self.level.block)

    def _nest(self, sink: _Fill) -> Nest:
        """A loop nest with full-width vectors, as the copy is to the cache, not to memory."""
        bits = max(memory_type(t).bits for t in (self.side.value.type, sink.buffer.type))
        lanes = self.kernel.machine.vector_bytes * 8 // bits
        return Nest(self.kernel, self.side.shape, [sink], lane=self.lane, moving_lanes=lanes)

    # -- copies of some lines, permuted in registers --------------------------------------------

    def _interleaved_panels(self) -> Packed:
        """Stage some rows of K at a time, and interleave each `group` of them."""
        side, b = self.side, self.b
        whole = side.padded_k == side.extent_k
        count = gcd(side.extent_k, STAGED_ROWS) if whole else side.padded_k
        packed = self._new_panels(side.groups)
        width = self._interleaved_width(packed.k)
        group, length = side.scheme.group, round_up(side.rows, width)
        stage = self._buffer(count, length)
        sink = _FillStage(self.kernel, side, stage, self.lane)
        nest = self._nest(sink)
        with loop(self.level, const(I64, 0), const(I64, side.extent_k), count) as lines:
            used = const(I64, min(count, side.extent_k))
            self._stage(lines.level, nest, sink, lines.index, used)
            first = b.udiv(lines.index, const(I64, group))
            with b.loop(0, count // group) as k, b.loop(0, length, width) as row:
                at = b.add(b.mul(k.index, const(I64, group * length)), row.index)
                source = b.gep(stage.element, stage.ptr, at)
                target = self._at(packed, row.index, b.add(first, k.index))
                self._interleave(source, length, width, target)
            lines.level.block = b.current
        b.at(self.level.block)
        return packed

    def _interleaved_width(self, panel: int) -> int:
        """Rows to interleave at a time: a divisor of a panel's, of 16 bytes or more if possible."""
        return gcd(panel, max(self.side.lanes, 128 // memory_type(self.side.scheme.packed).bits))

    def _interleave(self, source: V, length: int, width: int, target: V) -> None:
        b, side = self.b, self.side
        element = memory_type(side.scheme.packed)
        type = vector(element, width)
        lines = [
            b.load(type, b.gep(element, source, const(I64, i * length)))
            for i in range(side.scheme.group)
        ]
        b.store(interleave(b, lines), target)

    def _transposed_panels(self) -> Packed:
        """Stage some rows at a time, and transpose squares of their groups."""
        side, b, size = self.side, self.b, self._square()
        groups = round_up(side.groups, size)
        packed = self._new_panels(groups)
        stage = self._buffer(size, groups * side.scheme.group)
        sink = _FillStage(self.kernel, side, stage, self.lane)
        nest = self._nest(sink)
        with loop(self.level, const(I64, 0), const(I64, side.rows), size) as lines:
            used = const(I64, size)
            if side.rows % size:
                b.at(lines.level.block)
                left = b.sub(const(I64, side.rows), lines.index)
                used = b.intrinsic("llvm.smin", I64, [used, left], overloads=[I64])
            self._stage(lines.level, nest, sink, lines.index, used)
            with b.loop(0, groups, size) as k:
                source = b.gep(self.group, stage.ptr, k.index)
                target = self._at(packed, lines.index, k.index)
                transpose_block(b, self.group, size, source, groups, target, packed.k)
            lines.level.block = b.current
        b.at(self.level.block)
        return packed

    def _stage(self, level: Level, nest: Nest, sink: _FillStage, first: V, count: V) -> None:
        """Copy `count` lines of the operand, from line `first` on, to the staging buffer."""
        side = self.side
        axis = side.row_axis if self.lane == side.k_axis else side.k_axis
        with loop(level, const(I64, 0), count, 1, width=1) as line:
            self.b.at(line.level.block)
            sink.line = Lanes(line.index, 0, line.level.depth)
            here = Lanes(self.b.add(first, line.index), 0, line.level.depth)
            nest.lanes(line.level, {**self.at, axis: here})
        self.b.at(level.block)

    def _rows_of(self, panels: Packed) -> Packed:
        """Panels transposed to rows."""
        side, b, size = self.side, self.b, self._square()
        buffer = self._buffer(side.rows, side.padded_k)
        with b.loop(0, side.rows, size) as row, b.loop(0, side.groups, size) as k:
            source = self._at(panels, row.index, k.index)
            at = b.add(b.mul(row.index, const(I64, side.groups)), k.index)
            target = b.gep(self.group, buffer.ptr, at)
            transpose_block(b, self.group, size, source, panels.k, target, side.groups)
        self.level.block = b.current
        return Packed(buffer.ptr, self.group, side.groups, 1, 0)

    def _square(self) -> int:
        """The side of the squares to transpose, in groups."""
        return min(self.side.lanes, SQUARE_BYTES * 8 // self.group.bits)

    # -- memory ---------------------------------------------------------------------------------

    def _new_panels(self, groups: int) -> Packed:
        """Allocate all panels, with `groups` groups in a row."""
        side = self.side
        panel = min(side.panel, round_up(side.rows, side.lanes))
        count = -(-side.rows // panel)
        ptr = self.kernel.allocate(self.group, count * groups * panel)
        return Packed(ptr, self.group, 1, panel, groups * panel)

    def _at(self, packed: Packed, row: V, k: V) -> V:
        """The address of a group in panels."""
        b, size = self.b, packed.k
        panel = b.mul(b.udiv(row, const(I64, size)), const(I64, packed.panel))
        within = b.add(b.urem(row, const(I64, size)), b.mul(k, const(I64, size)))
        return b.gep(packed.group, packed.ptr, b.add(panel, within))

    def _buffer(self, lines: int, length: int) -> Buffer:
        """Allocate a buffer of the scheme's elements, zeroed if K is padded."""
        side = self.side
        type = ir.Tile((lines, length), side.scheme.packed)
        element = memory_type(type)
        buffer = Buffer(self.kernel.allocate(element, type.numel), type)
        if side.padded_k != side.extent_k:
            self.b.at(self.level.block)
            size = const(I64, type.numel * element.bits // 8)
            args = [buffer.ptr, const(I8, 0), size, const(I1, 0)]
            self.b.intrinsic("llvm.memset", VOID, args, overloads=[PTR, I64])
        return buffer


def matrix_in(level: Level, buffer: Buffer, at: At) -> V:
    """The address of one matrix of a batch in a buffer."""
    *batch, m, n = buffer.type.shape
    b = level.b
    position = const(I64, 0)
    for axis, extent in enumerate(batch):
        position = b.add(b.mul(position, const(I64, extent)), at[axis].base)
    return b.gep(buffer.element, buffer.ptr, b.mul(position, const(I64, m * n)))
