"""The micro-kernel on AMX tiles: blocks of two by two tiles of sums, over all of K.

A tile of the left operand is 16 rows of 64 bytes along K; one of the right operand is 16 groups of
K of 16 columns each, which is the format of panels; one of sums is 16 x 16. A block uses all eight
tile registers: four for sums, and two for each operand.

The product is a function of its own, as LLVM configures the tiles at the entry of a function, which
takes as long as several tile products.
"""

from __future__ import annotations

from itertools import product

from tilewright.lowering.emit import I16, I64, PTR, VOID, Builder, LType, V, const
from tilewright.targets.cpu.dot.pack import Packed
from tilewright.targets.cpu.dot.schemes import TILE_SIDE, TileScheme

TILE_BYTES = 64
"""Bytes of a row of a tile."""

_TILE = LType("x86_amx", "tile", TILE_SIDE * TILE_BYTES * 8, "x86amx")
_SHAPE = [const(I16, TILE_SIDE), const(I16, TILE_BYTES)]
_GROUP_BYTES = TILE_BYTES // TILE_SIDE


def tiles_along(extent: int) -> int:
    """Tiles of a block along an axis, whose extent is a multiple of a tile's side."""
    return 2 if extent % (2 * TILE_SIDE) == 0 else 1


class TileProduct:
    """c += a @ b if `start`, else c = a @ b, for one M x N matrix of sums, row-major.

    Args:
        extents: M, N and the number of groups along K; multiples of a tile's side.
        start: whether c is initialised.
    """

    def __init__(self, scheme: TileScheme, extents: tuple[int, int, int], start: bool) -> None:
        self.scheme = scheme
        self.m, self.n, self.groups = extents
        self.start = start
        self.tiles = tiles_along(self.m), tiles_along(self.n)

    def emit(self, caller: Builder, lhs: Packed, rhs: Packed, c: V) -> None:
        """Emit the function and a call of it; `lhs` is packed by rows and `rhs` by panels."""
        name = f"{caller.function.name}.tiles{caller.function.next_serial()}"
        params = [(PTR, "noalias")] * 3
        function = caller.module.function(name, VOID, params, "noinline nounwind", "internal")
        b = Builder(function)
        a, panels, sums = function.params
        self._blocks(b, lhs.at(a), rhs.at(panels), sums)
        b.ret()
        caller.call(name, VOID, [lhs.ptr, rhs.ptr, c])

    def _blocks(self, b: Builder, lhs: Packed, rhs: Packed, c: V) -> None:
        """Loops over all blocks, rows outermost, so that sums are accessed in memory order.

        With panels of the right operand outermost, 256 x 256 sums took 28 % longer on a Xeon for
        K = 128, and 7 % for K = 256.
        """
        height, width = (TILE_SIDE * t for t in self.tiles)
        with b.loop(0, self.m, height) as row, b.loop(0, self.n // width) as panel:
            right = b.gep(rhs.group, rhs.ptr, b.mul(panel.index, const(I64, rhs.panel)))
            left = b.gep(lhs.group, lhs.ptr, b.mul(row.index, const(I64, lhs.row)))
            first = b.add(
                b.mul(row.index, const(I64, self.n)), b.mul(panel.index, const(I64, width))
            )
            sums = b.gep(self.scheme.total_type, c, first)
            self._block(b, lhs.at(left), rhs.at(right), sums)

    def _block(self, b: Builder, lhs: Packed, rhs: Packed, c: V) -> None:
        """One block of sums at `c`; `lhs` begins at its first row, and `rhs` at its panel."""
        down, across = self.tiles
        type = self.scheme.total_type
        places = [
            b.gep(type, c, const(I64, TILE_SIDE * (i * self.n + j)))
            for i, j in product(range(down), range(across))
        ]
        with b.loop(0, self.groups, TILE_SIDE, carried=[self._first(b, p) for p in places]) as k:
            left = b.gep(lhs.group, lhs.ptr, k.index)
            right = b.gep(rhs.group, rhs.ptr, b.mul(k.index, const(I64, rhs.k)))
            rows = [self._load(b, left, lhs.row, TILE_SIDE * i * lhs.row) for i in range(down)]
            columns = [self._load(b, right, rhs.k, TILE_SIDE * j) for j in range(across)]
            pairs = zip(k.carried, product(rows, columns), strict=True)
            k.yield_([self._multiply(b, sums, x, y) for sums, (x, y) in pairs])
        for place, value in zip(places, k.results, strict=True):
            args = [*_SHAPE, place, self._row_bytes(), value]
            b.intrinsic("llvm.x86.tilestored64.internal", VOID, args)

    def _row_bytes(self) -> V:
        return const(I64, self.n * self.scheme.total_type.bits // 8)

    def _first(self, b: Builder, place: V) -> V:
        """The initial value of a tile of sums."""
        if not self.start:
            return b.intrinsic("llvm.x86.tilezero.internal", _TILE, _SHAPE)
        args = [*_SHAPE, place, self._row_bytes()]
        return b.intrinsic("llvm.x86.tileloadd64.internal", _TILE, args)

    def _load(self, b: Builder, ptr: V, stride: int, offset: int) -> V:
        """Load a tile of an operand at `offset` groups from `ptr`, with `stride` groups a row."""
        at = b.gep(self.scheme.group_type, ptr, const(I64, offset))
        args = [*_SHAPE, at, const(I64, stride * _GROUP_BYTES)]
        return b.intrinsic("llvm.x86.tileloadd64.internal", _TILE, args)

    def _multiply(self, b: Builder, sums: V, lhs: V, rhs: V) -> V:
        rows, row_bytes = _SHAPE
        args = [rows, row_bytes, row_bytes, sums, lhs, rhs]
        return b.intrinsic(self.scheme.instruction, _TILE, args)
