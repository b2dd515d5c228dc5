"""The layouts in which the accesses of a function touch memory: coalesced, and as wide as possible.

Accesses of one shape and order of axes have one layout, so that values loaded by several of them
are combined without conversions. `assign_layouts` starts from these layouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from tilewright.analysis.access_order import SECTOR_BYTES
from tilewright.analysis.axis_info import AxisMap
from tilewright.ir.core import Function, Op, Value, is_tile
from tilewright.ir.passes import PassContext
from tilewright.ir.types import Pointer, element_of, shape_of
from tilewright.layout.families import row_major
from tilewright.layout.linear import LinearLayout
from tilewright.ops.atomic import AnyAtomic, AtomicRMW, Reading
from tilewright.ops.gpu import Share
from tilewright.ops.memory import Load, Store
from tilewright.ops.reduce import Scan
from tilewright.ops.shape import Reshape, Split
from tilewright.passes.layout_rules import (
    LINE_BYTES,
    coalesced,
    coalesced_within,
    per_thread,
    warp_run,
)
from tilewright.passes.layout_sides import FIRST, AnyStore, Assigned, Pair, Shape
from tilewright.passes.warp_order import WarpOrders

STAGED_BYTES = 16  # the widest access of a buffer
WORD_BYTES = 4  # of a register

STAGED_PAIRS = "staged_pairs"
"""The feature of a target where a thread loads adjacent rows of operands that are transposed in
shared memory, to store words instead of single elements."""


AnyAccess = Load | Store | AnyAtomic


def pointee_bytes(pointer: Value) -> int:
    """Bytes per pointee."""
    element = element_of(pointer.type)
    assert isinstance(element, Pointer)
    return element.element_ty.nbytes_in_memory


def _is_staged(op: Op) -> bool:
    """Whether a load only moves a tile to shared memory, so that no other tile is combined with it
    in its layout."""
    if not isinstance(op, Load) or not op.result.users:
        return False
    return all(isinstance(user, Share) for user in op.result.users)


def _is_taken_apart(value: Value) -> bool:
    """Whether only slices along the last axis of a tile are used."""
    return bool(value.users) and all(
        isinstance(user, Split) or (isinstance(user, Reshape) and _is_taken_apart(user.result))
        for user in value.users
    )


class _Matrix(NamedTuple):
    """The layout of results of matrix instructions, and the fewest bytes of an element in memory
    among the accesses of that shape."""

    layout: LinearLayout
    size: int


class AccessLayouts:
    """The layouts of the accesses of a function.

    Attributes:
        access_bytes: the most bytes of an access of global memory.
        has_products: whether there are ops that prescribe layouts.
        warp_orders: in which warps are distributed over the axes of tiles.
        vectors: see `_vectors`.
        accessed: see `_accessed`; nothing in functions with products.
    """

    def __init__(
        self, fn: Function, ctx: PassContext, infos: AxisMap, *, has_products: bool
    ) -> None:
        self.fn = fn
        self.ctx = ctx
        self.warps: int = ctx.gpu.warps
        self.lanes: int = ctx.gpu.lanes
        self.access_bytes: int = ctx.gpu.access_bytes
        self.infos = infos
        self.has_products = has_products
        self.warp_orders = WarpOrders(fn, ctx.gpu.threads)
        self.vectors = self._vectors()
        self._matrices: dict[Shape, _Matrix] = {}  # see `follow`
        self.accessed: Mapping[Shape, Pair] = {} if has_products else self._accessed()

    def follow(self, assigned: Mapping[Value, Assigned]) -> None:
        """Assign to each warp the rows of a tile that it holds of results of matrix instructions,
        for shapes that are accessed in memory and for which these have a single layout."""
        layouts: dict[tuple[int, ...], set[LinearLayout]] = {}
        for value, (priority, layout) in assigned.items():
            if priority == FIRST:
                layouts.setdefault(shape_of(value.type), set()).add(layout)
        sizes: dict[tuple[int, ...], int] = {}
        for op in self._accesses():
            shape, size = shape_of(op.ptr.type), pointee_bytes(op.ptr)
            sizes[shape] = min(sizes.get(shape, size), size)
        self._matrices = {
            shape: _Matrix(found.pop(), sizes[shape])
            for shape, found in layouts.items()
            if len(found) == 1 and shape in sizes
        }

    def _access(
        self, op: AnyAccess, *, masked: bool = True, limit: int | None = None
    ) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """The shape, the order of the axes from the fastest-varying one, and the maximum vector
        length, in elements, of an access.

        A mask that varies within a vector makes it several accesses, for which the lanes of a warp
        should be adjacent. This does not count if not `masked`, nor in functions with products:
        there, a thread with fewer elements of a row needs the addresses and masks of more rows,
        beside the results of products.

        Args:
            limit: the most bytes of an access; by default the machine's.
        """
        pointer, mask = op.ptr, getattr(op, "mask", None)
        extents = shape_of(pointer.type)
        order = self.infos.order(pointer)
        size = pointee_bytes(pointer)
        counted = mask if masked and not self.has_products else None
        length = self.infos.access_length(pointer, counted, order[0], size)
        return extents, order, min(length, (limit or self.access_bytes) // size)

    def _vectors(self) -> dict[tuple[tuple[int, ...], tuple[int, ...]], int]:
        """The number of elements along the fastest axis that a thread holds, by shape and order.

        Accesses of the same shape use the same layout, the one with the most elements per thread,
        so that values of different element types need no conversion. A store is limited to one
        vector per thread, though: with two, each store instruction of a warp would write half of
        each sector, and memory would transfer each sector twice. (Of loads, the second one hits
        the L1 cache.) Loads to shared memory only have layouts of their own. A scan needs adjacent
        elements in one thread, whatever the masks.
        """
        scanned = {
            shape_of(v.type) for op in self.fn.walk() if isinstance(op, Scan) for v in op.srcs
        }
        longest: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        whole: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for op in self._accesses():
            if not _is_staged(op):
                masked = shape_of(op.ptr.type) not in scanned
                extents, order, vector = self._access(op, masked=masked)
                key = extents, order
                size = pointee_bytes(op.ptr)
                if not isinstance(op, Load | Reading) and vector * size == self.access_bytes:
                    whole[key] = min(whole.get(key, vector), vector)
                vector = min(vector, per_thread(extents, self.lanes, self.warps))
                longest[key] = max(longest.get(key, 1), vector)
        return {key: min(vector, whole.get(key, vector)) for key, vector in longest.items()}

    def _accesses(self) -> Iterator[AnyAccess]:
        """The accesses of tiles."""
        for op in self.fn.walk():
            if isinstance(op, AnyAccess) and is_tile(op.ptr):
                yield op

    def of_load(self, op: Load | Reading) -> LinearLayout:
        if not _is_staged(op):
            return self.of_access(op)
        extents, order, vector = self._access(op, limit=STAGED_BYTES)
        most = per_thread(extents, self.lanes, self.warps)
        vector = min(vector, most)
        if STAGED_PAIRS in self.ctx.features and self._is_transposed(op, order):
            rows = min(WORD_BYTES // pointee_bytes(op.ptr), most // vector, extents[order[1]])
            if rows > 1:
                return coalesced(extents, order, vector, self.lanes, self.warps, rows)
        return self._coalesced(extents, order, vector)

    def _is_transposed(self, op: Load | Reading, order: Sequence[int]) -> bool:
        """Whether the elements that are adjacent in the buffers of a staged tile are not so in
        global memory."""
        buffers = [user.results[0].layout for user in op.results[0].users]
        return len(order) == 2 and all(
            layout is not None and layout.coordinates(layout.columns[0])[order[0]] == 0
            for layout in buffers
        )

    def of_access(self, op: AnyAccess) -> LinearLayout:
        return self._placed(op)[0]

    def _placed(self, op: AnyAccess) -> tuple[LinearLayout, bool]:
        """The layout of an access, and whether it is the one of `_within_warps`."""
        extents, order, _ = self._access(op)
        vector = self.vectors[extents, order]
        within = self._within_warps(extents, order, vector)
        if within is not None:
            return within, True
        rows = self._rows_of_fields(op, extents, order, vector)
        return self._spread(extents, order, vector, rows), False

    def _rows_of_fields(
        self, op: AnyAccess, extents: Sequence[int], order: Sequence[int], vector: int
    ) -> int:
        """The number of adjacent elements whose fields a thread loads, for a load that is split
        into fields: as many as it holds of the accessed tiles of elements, so that both have one
        layout."""
        if not isinstance(op, Load) or order != (1, 0) or vector != extents[1]:
            return 1
        if not _is_taken_apart(op.result):
            return 1
        most = per_thread(extents, self.lanes, self.warps) // vector
        return max(1, min(self.vectors.get((tuple(extents[:1]), (0,)), 1), most))

    def _accessed(self) -> dict[Shape, Pair]:
        """The layouts of accesses by shape, for shapes that have two; that of the first access is
        the first."""
        found: dict[Shape, dict[LinearLayout, None]] = {}
        for op in self._accesses():
            found.setdefault(shape_of(op.ptr.type), {})[self.of_access(op)] = None
        pairs = ((shape, tuple(layouts)) for shape, layouts in found.items())
        return {shape: (pair[0], pair[1]) for shape, pair in pairs if len(pair) == 2}

    def default(self, value: Value) -> LinearLayout:
        extents = shape_of(value.type)
        order = row_major(len(extents))
        return self._coalesced(extents, order, self.vectors.get((extents, order), 1))

    def _coalesced(
        self, extents: tuple[int, ...], order: tuple[int, ...], vector: int
    ) -> LinearLayout:
        """The layout of accesses of a shape and order of axes."""
        found = self._within_warps(extents, order, vector)
        return found or self._spread(extents, order, vector)

    def _spread(
        self, extents: Sequence[int], order: Sequence[int], vector: int, rows: int = 1
    ) -> LinearLayout:
        """The coalesced layout, with the warps along the axes where reductions and masks cost
        least."""
        layout_for = partial(coalesced, extents, order, vector, self.lanes, self.warps, rows)
        if self.has_products:
            return layout_for()
        return self.warp_orders.best(order, vector, layout_for)

    def _within_warps(
        self, extents: tuple[int, ...], order: tuple[int, ...], vector: int
    ) -> LinearLayout | None:
        """The layout in which each warp has the rows that it has in results of matrix instructions,
        so that these are converted without barriers between warps; None if there is none."""
        matrix = self._matrices.get(extents)
        return matrix and coalesced_within(matrix.layout, order, vector, matrix.size)

    def of_store(self, op: AnyStore, assigned: LinearLayout | None) -> LinearLayout:
        """The layout already assigned to the value if a warp writes whole sectors in it, otherwise
        the coalesced one. Whole lines are required if each warp converts the stored value by
        itself, and no other result waits in registers meanwhile. Results of products that are
        sectors in each of eight lines took 105 instead of 90 µs on an H200, where products within
        chunks store as much as they load; a complex product, with two results, 147 instead of 166.
        Each atomic operation on a sector is one request. Accesses in two layouts are those of whole
        vectors: more instructions would cost more than converting one tile."""
        best, within = self._placed(op)
        if assigned is None or shape_of(op.ptr.type) in self.accessed:
            return best
        _, order, vector = self._access(op)
        size = element_of(op.value.type).nbytes_in_memory
        alone = within and self._is_only_store(op)
        whole = LINE_BYTES if alone or isinstance(op, AtomicRMW) else SECTOR_BYTES
        required = min(whole, size * warp_run(best, order, vector))
        return assigned if size * warp_run(assigned, order, vector) >= required else best

    def _is_only_store(self, op: AnyStore) -> bool:
        """Whether no other store has tiles of the same shape."""
        shape = shape_of(op.ptr.type)
        stores = (other for other in self._accesses() if not isinstance(other, Load | Reading))
        return all(other is op or shape_of(other.ptr.type) != shape for other in stores)
