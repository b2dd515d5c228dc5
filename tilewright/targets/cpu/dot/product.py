"""The micro-kernel on vectors: blocks of accumulators in registers, over all of K.

A block is `rows` rows by some vectors of columns. For each group of K it executes a load for each
vector of columns, a broadcast load for each row, and a multiplication for each pair. A panel of the
right operand is as wide as a block, and stays in the first-level cache while all blocks of a column
read it.

If a vector of sums is a matrix of `height` rows, the load for these rows is a vector of their
groups instead of a broadcast one.
"""

from __future__ import annotations

from tilewright.base.record import record
from tilewright.lowering.emit import I64, Builder, LType, V, const, vector, zero
from tilewright.targets.cpu.dot.pack import Packed
from tilewright.targets.cpu.dot.schemes import VectorScheme
from tilewright.targets.cpu.machine import Machine

COLUMN_VECTORS = 2  # in a block
SIGN = 0x80


@record
class Blocking:
    """The shape of the blocks of a product.

    Attributes:
        lanes: columns of a vector of sums.
        vectors: vectors of a row of a block.
        rows: rows of a block, a multiple of the height of a vector.
    """

    lanes: int
    vectors: int
    rows: int

    @property
    def columns(self) -> int:
        """Columns of a block: the rows of a panel of the right operand."""
        return self.lanes * self.vectors


def blocking_of(scheme: VectorScheme, m: int, n: int, machine: Machine) -> Blocking:
    """Blocks whose accumulators take at most three quarters of the vector registers."""
    widest, height = machine.vector_bytes * 8 // scheme.total_type.bits, scheme.height
    # No wider than the matrix, whose columns are padded to whole vectors.
    lanes = scheme.lanes // height or min(widest, 1 << (n - 1).bit_length())
    vectors = min(COLUMN_VECTORS * height, -(-n // lanes))
    registers = -(-lanes * height // widest)  # of a vector of sums
    rows = min(m, machine.vector_registers * 3 // 4 // (vectors * registers) * height)
    while m >= 8 and m % rows:
        rows -= height
    return Blocking(lanes, vectors, rows)


def in_lanes(element: LType, lanes: int) -> LType:
    """A vector, or the element itself for one lane."""
    return vector(element, lanes) if lanes > 1 else element


class Product:
    """c += a @ b if `start`, else c = a @ b, for one M x N matrix of sums, row-major at `c`."""

    def __init__(
        self,
        b: Builder,
        scheme: VectorScheme,
        blocking: Blocking,
        extents: tuple[int, int, int],
        c: V,
        start: bool,
    ) -> None:
        self.b = b
        self.scheme = scheme
        self.blocking = blocking
        self.m, self.n, self.groups = extents
        self.c = c
        self.start = start
        self.height = scheme.height
        self.sums = in_lanes(scheme.total_type, blocking.lanes * scheme.height)

    def emit(self, lhs: Packed, rhs: Packed) -> None:
        """Emit loops over all panels of the right operand; the last may be narrower."""
        step = self.blocking.columns
        whole = self.n // step
        if whole:
            with self.b.loop(0, whole) as panel:
                self._panel(lhs, rhs, panel.index, step)
        if self.n % step:
            self._panel(lhs, rhs, const(I64, whole), self.n % step)

    def _panel(self, lhs: Packed, rhs: Packed, panel: V, columns: int) -> None:
        """All rows times one panel, of which `columns` columns are used."""
        b, step = self.b, self.blocking.rows
        here = rhs.at(b.gep(rhs.group, rhs.ptr, b.mul(panel, const(I64, rhs.panel))))
        first = b.mul(panel, const(I64, self.blocking.columns))
        block = _Block(self, lhs, here, first, columns)
        whole = self.m // step * step
        with b.loop(0, whole, step) as row:
            block.emit(row.index, step)
        if whole < self.m:
            block.emit(const(I64, whole), self.m - whole)


class _Block:
    """The blocks of one panel, at `rhs`, whose first column is `column`."""

    def __init__(self, product: Product, lhs: Packed, rhs: Packed, column: V, columns: int) -> None:
        self.b = product.b
        self.product = product
        self.lhs, self.rhs = lhs, rhs
        self.column = column
        lanes = product.blocking.lanes
        self.lanes = lanes
        self.widths = [min(lanes, columns - x) for x in range(0, columns, lanes)]
        self.bias = self._bias() if product.scheme.sign_flipped else None

    def emit(self, row: V, rows: int) -> None:
        """Compute the block of `rows` rows from `row` on."""
        height = self.product.height
        places = [self._places(self.b.add(row, const(I64, r))) for r in range(0, rows, height)]
        flat = [self._first(p, x) for line in places for x, p in enumerate(line)]
        results = self._over_k(row, rows, flat)
        flat_places = [(p, w) for line in places for p, w in zip(line, self.widths, strict=True)]
        for (place, width), value in zip(flat_places, results, strict=True):
            self._store(value, place, width)

    def _over_k(self, row: V, rows: int, sums: list[V]) -> list[V]:
        """Add all products along K to the accumulators of a block, which are listed by rows."""
        b, lhs, multiply = self.b, self.lhs, self.product.scheme.multiply
        base = b.gep(lhs.group, lhs.ptr, b.mul(row, const(I64, lhs.row)))
        with b.loop(0, self.product.groups, carried=sums) as k:
            columns = self._columns(k.index)
            at = b.gep(lhs.group, base, b.mul(k.index, const(I64, lhs.k)))
            carried = iter(k.carried)
            following: list[V] = []
            for r in range(0, rows, self.product.height):
                groups = self._groups(b.gep(lhs.group, at, const(I64, r * lhs.row)))
                following += [multiply(b, next(carried), groups, c) for c in columns]
            k.yield_(following)
        return k.results

    def _groups(self, at: V) -> V:
        """The groups of the left operand's rows of one vector of sums."""
        b, height = self.b, self.product.height
        if height > 1:
            assert self.lhs.row == 1
            return b.load(vector(self.lhs.group, height), at)
        return b.splat(b.load(self.lhs.group, at), self.lanes if self.lanes > 1 else 0)

    def _columns(self, k: V) -> list[V]:
        """One group of each column of the panel."""
        b, rhs = self.b, self.rhs
        at = b.gep(rhs.group, rhs.ptr, b.mul(k, const(I64, rhs.k)))
        type = in_lanes(rhs.group, self.lanes)
        return [
            b.load(type, b.gep(rhs.group, at, const(I64, x * self.lanes)))
            for x in range(len(self.widths))
        ]

    # -- sums in memory -------------------------------------------------------------------------

    def _places(self, row: V) -> list[V]:
        b, product = self.b, self.product
        first = b.add(b.mul(row, const(I64, product.n)), self.column)
        return [
            b.gep(product.scheme.total_type, product.c, b.add(first, const(I64, x * self.lanes)))
            for x in range(len(self.widths))
        ]

    def _first(self, place: V, x: int) -> V:
        """The initial value of one vector of accumulators."""
        product = self.product
        value = self._load(place, self.widths[x]) if product.start else zero(product.sums)
        return value if self.bias is None else self.b.sub(value, self.bias[x])

    def _load(self, place: V, width: int) -> V:
        """Load a vector of which only the first `width` columns are in bounds."""
        b, sums = self.b, self.product.sums
        if self.product.height > 1:
            assert (self.product.height, width) == (2, self.lanes)
            upper, lower = (b.load(vector(sums.element, width), p) for p in self._lines(place))
            return b.shuffle(upper, lower, list(range(2 * width)))
        if width == self.lanes:
            return b.load(sums, place)
        part = b.load(vector(sums.element, width), place)
        return b.shuffle(part, None, [i if i < width else -1 for i in range(self.lanes)])

    def _store(self, value: V, place: V, width: int) -> None:
        for r, line in enumerate(self._lines(place)):
            part = value
            if width < value.type.lanes:
                part = self.b.shuffle(value, None, list(range(r * width, (r + 1) * width)))
            self.b.store(part, line)

    def _lines(self, place: V) -> list[V]:
        """The addresses of the rows of a vector of sums."""
        product, total = self.product, self.product.scheme.total_type
        below = [const(I64, r * product.n) for r in range(1, product.height)]
        return [place, *(self.b.gep(total, place, offset) for offset in below)]

    def _bias(self) -> list[V]:
        """The contribution of the inverted sign bits of the left operand to each column.

        Inverting the sign bit adds 128 to a signed number, and subtracts it from an unsigned one.
        So the contribution is the product of the columns with the packed form of a row of zeros.
        """
        b, product = self.b, self.product
        zeros = const(vector(self.lhs.group, self.lanes), SIGN * 0x01010101)
        with b.loop(0, product.groups, carried=[zero(product.sums)] * len(self.widths)) as k:
            columns = self._columns(k.index)
            multiply = product.scheme.multiply
            k.yield_([multiply(b, s, zeros, c) for s, c in zip(k.carried, columns, strict=True)])
        return k.results
