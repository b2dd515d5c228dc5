"""Ops that GPU targets add to the tile IR: layout conversions, shared memory, asynchronous copies,
and programmatic dependent launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, optional, require
from tilewright.ir.index_map import IndexMap, Picked, broadcast, identity, permuted, without_axis
from tilewright.ir.traits import FREE_LAYOUT, LOCAL, PURE, READS, WRITES
from tilewright.ir.types import (
    I1,
    I32,
    Shared,
    Tile,
    Type,
    dtype_of,
    is_int,
    is_pointer,
    numpy_of,
    shape_of,
)
from tilewright.ops.memory import pointee_of, split_optional, verify_mask
from tilewright.ops.numeric import Array
from tilewright.ops.view import View


class ConvertLayout(View, name="gpu.convert_layout", traits=PURE):
    """Converts a tile to another layout, that of the result.

    layout !0 = "register[] lane[1] -> dim0:2"
    layout !1 = "register[1] lane[0] -> dim0:2"
    %0 = tile.arange start=0, end=2 : () -> 2xi32 !0
    %1 = gpu.convert_layout %0 : 2xi32 !0 -> 2xi32 !1
    """

    def result_type(self) -> Type:
        return self.src.type

    def verify(self) -> None:
        require(
            isinstance(self.src.type, Tile),
            self,
            "operand-types",
            "takes a tile, not {t}",
            t=self.src.type,
        )

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (identity(shape_of(self.src.type)),)

    def evaluate(self, src: Array) -> Array:
        return src


# -- buffers in shared memory ---------------------------------------------------------------------


def _require_buffer(op: Op, value: Value) -> None:
    require(
        isinstance(value.type, Shared),
        op,
        "operand-types",
        "takes a buffer in shared memory, not {t}",
        t=value.type,
    )


class Share(Op, name="gpu.share", traits=PURE):
    """Stores a tile to its own read-only buffer in shared memory.

    %1 = gpu.share %0 : 64x64xfp16 -> shared<64x64xfp16>
    """

    src: Value = operand()

    def result_type(self) -> Type:
        require(
            isinstance(self.src.type, Tile) and not is_pointer(self.src.type),
            self,
            "operand-types",
            "takes a tile of numbers, not {t}",
            t=self.src.type,
        )
        return Shared(shape_of(self.src.type), dtype_of(self.src.type))

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (identity(shape_of(self.src.type)),)

    def evaluate(self, src: Array) -> Array:
        return src


class Fetch(Op, name="gpu.fetch", traits=READS | FREE_LAYOUT):
    """Loads a tile from a buffer.

    With `own`, each thread loads only what it has itself copied there, so the copies need a wait,
    but no barrier.

        %1 = gpu.fetch %0, own=False : shared<64x64xfp16> -> 64x64xfp16
    """

    src: Value = operand()
    own: bool = attr(False)

    def result_type(self) -> Type:
        _require_buffer(self, self.src)
        return Tile(shape_of(self.src.type), dtype_of(self.src.type))

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (identity(shape_of(self.src.type)),)

    def evaluate(self, src: Array) -> Array:
        return src.copy()


class Allocate(Op, name="gpu.allocate", traits=WRITES | LOCAL):
    """Allocates an uninitialised buffer in shared memory, live as long as it is used.

    Readers and writers must be ordered by explicit barriers.

        %0 = gpu.allocate type=shared<3x64x64xfp16> : () -> shared<3x64x64xfp16>
    """

    type: Type = attr()

    def result_type(self) -> Type:
        return self.type

    def verify(self) -> None:
        require(
            isinstance(self.type, Shared),
            self,
            "type",
            "allocates a buffer in shared memory, not {t}",
            t=self.type,
        )

    def evaluate(self) -> Array:
        return np.zeros(shape_of(self.type), numpy_of(self.type))


class AllocateRing(Allocate, name="gpu.allocate_ring", traits=WRITES | LOCAL):
    """As `gpu.allocate`; the last `spare` slots exist only in launches that provide them.

    Launches of few programs provide memory for them (`gpu.has_spare`): those whose programs are all
    resident at once even with as much shared memory.

        %0 = gpu.allocate_ring type=shared<7x64x64xfp16>, spare=4 : () -> shared<7x64x64xfp16>
    """

    spare: int = attr()

    def verify(self) -> None:
        super().verify()
        slots = shape_of(self.type)[0]
        require(
            0 < self.spare < slots,
            self,
            "spare",
            "{n} of {slots} slots are spare",
            n=self.spare,
            slots=slots,
        )


class HasSpare(Op, name="gpu.has_spare", traits=PURE):
    """Whether the launch provides memory for the spare slots of all rings.

    %0 = gpu.has_spare : () -> i1
    """

    def result_type(self) -> Type:
        return I1

    def evaluate(self) -> Array:
        return np.array(True)


class _OfBlocks(Op):
    """Base class of ops on the blocks of threads of a launch that may have fewer blocks than
    programs.

    Attributes:
        axes: the axes of the grid along which blocks run several programs: 1, x, or all 3.
    """

    axes: int = attr(3)

    def result_type(self) -> Type:
        return I32

    def verify(self) -> None:
        require(
            self.axes in (1, 3),
            self,
            "axes",
            "blocks loop over programs along 1 or 3 axes, not {a}",
            a=self.axes,
        )


class BlockId(_OfBlocks, name="gpu.block_id", traits=PURE):
    """The number of the block among those of the launch, along x or all axes, x fastest.

    In a function with this op, a launch starts blocks, each of which runs programs of the requested
    grid: `program.count` is the extent of that grid, and `program.id` along these axes must not
    occur. Without a limit there is a block for each program.

        %0 = gpu.block_id axes=3 : () -> i32
    """

    no_evaluate = "it depends on the block; see execute"

    def execute(self, state: Any) -> Array:
        place = state.program_id[: self.axes]
        return np.array(np.ravel_multi_index(place, state.blocks[: self.axes], order="F"), np.int32)


class BlockCount(_OfBlocks, name="gpu.block_count", traits=PURE):
    """The number of blocks of the launch, along x or all axes; at least 1.

    %0 = gpu.block_count axes=3 : () -> i32
    """

    no_evaluate = "it depends on the launch; see execute"

    def execute(self, state: Any) -> Array:
        return np.array(np.prod(state.blocks[: self.axes]), np.int32)


class Slot(Op, name="gpu.slot", traits=PURE):
    """A view of one of the equal parts along the first axis of a buffer.

    %2 = gpu.slot %0, %1 : (shared<3x64x64xfp16>, i32) -> shared<64x64xfp16>
    """

    buffer: Value = operand()
    index: Value = operand()

    def result_type(self) -> Type:
        _require_buffer(self, self.buffer)
        return Shared(shape_of(self.buffer.type)[1:], dtype_of(self.buffer.type))

    def verify(self) -> None:
        require(
            is_int(self.index.type) and not shape_of(self.index.type),
            self,
            "operand-types",
            "the index is an integer, not {t}",
            t=self.index.type,
        )

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        shape = shape_of(self.buffer.type)
        part = without_axis(shape, 0, Picked(1))
        return part, broadcast((), part.target)

    takes_bits = True  # the result is a view: numbers of fp8e4b15 must not be converted

    def evaluate(self, buffer: Array, index: Array) -> Array:
        return buffer[int(index)]


class PermuteBuffer(Op, name="gpu.permute_buffer", traits=PURE):
    """A view of a buffer with permuted axes: axis i of the result is axis `order[i]`.

    %1 = gpu.permute_buffer %0, order=(1, 0,) : shared<64x32xfp16> -> shared<32x64xfp16>
    """

    buffer: Value = operand()
    order: tuple[int, ...] = attr()

    def result_type(self) -> Type:
        _require_buffer(self, self.buffer)
        shape = shape_of(self.buffer.type)
        require(
            sorted(self.order) == list(range(len(shape))),
            self,
            "order",
            "{order} is not a permutation of {rank} axes",
            order=self.order,
            rank=len(shape),
        )
        return Shared(tuple(shape[i] for i in self.order), dtype_of(self.buffer.type))

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (permuted(shape_of(self.buffer.type), self.order),)

    takes_bits = True

    def evaluate(self, buffer: Array) -> Array:
        return np.transpose(buffer, self.order)


BUFFER_VIEWS = (Slot, PermuteBuffer)
"""The ops whose result is a view of their operand's memory."""


def unconverted(tile: Value) -> Value:
    """The tile before conversions of its layout."""
    while isinstance(tile.op, ConvertLayout):
        tile = tile.op.src
    return tile


def unpermuted(buffer: Value) -> Value:
    """The buffer of which the value is a view with permuted axes."""
    while isinstance(buffer.op, PermuteBuffer):
        buffer = buffer.op.buffer
    return buffer


def whole_buffer(view: Value) -> Value:
    """The buffer of which the value is a view."""
    while isinstance(view.op, BUFFER_VIEWS):
        view = view.op.buffer
    return view


class CopyAsync(Op, name="gpu.copy_async", traits=READS | WRITES | LOCAL):
    """Starts an asynchronous copy from `ptr` to a buffer; masked-off elements become 0.

    It is complete after a `gpu.wait_copies` that covers its group; for other threads than the one
    that copies an element, after a barrier that follows.

        gpu.copy_async %0, %1, %2 : (64x64xptr<fp16>, shared<64x64xfp16>, 64x64xi1) -> ()
    """

    ptr: Value = operand()
    buffer: Value = operand()
    mask: Value | None = optional()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        _require_buffer(self, self.buffer)
        verify_mask(self, self.ptr, self.mask)
        require(
            is_pointer(self.ptr.type)
            and shape_of(self.ptr.type) == shape_of(self.buffer.type)
            and pointee_of(self.ptr.type) == dtype_of(self.buffer.type),
            self,
            "operand-types",
            "can't copy through {p} into {b}",
            p=self.ptr.type,
            b=self.buffer.type,
        )

    no_evaluate = "it accesses memory; see execute"

    def execute(self, state: Any, *args: Any) -> tuple[()]:
        ptr, buffer, mask = split_optional(self, args)
        buffer[...] = state.memory.load(self, ptr, mask, None)
        return ()


class CommitCopies(Op, name="gpu.commit_copies", traits=WRITES | LOCAL):
    """Commits the copies started since the last commit as a group.

    gpu.commit_copies : () -> ()
    """

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def evaluate(self) -> tuple[()]:
        return ()


class WaitCopies(Op, name="gpu.wait_copies", traits=WRITES | LOCAL):
    """Waits until this thread's copies are complete, except the last `pending` groups.

    gpu.wait_copies pending=1 : () -> ()
    """

    pending: int = attr(0)

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require(self.pending >= 0, self, "pending", "{n} groups", n=self.pending)

    def evaluate(self) -> tuple[()]:
        return ()


# -- programmatic dependent launch ----------------------------------------------------------------


class WaitLaunches(Op, name="gpu.wait_launches", traits=READS | WRITES):
    """Waits until the preceding launches have completed and their writes are visible.

    It has no effect unless the launch uses programmatic dependent launch. `implied` states that no
    program accesses memory before it, so that the launch may use it by itself.

        gpu.wait_launches implied=True : () -> ()
    """

    implied: bool = attr(False)

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def evaluate(self) -> tuple[()]:
        return ()


class StartDependents(Op, name="gpu.start_dependents", traits=WRITES | LOCAL):
    """Allows the next launch to start once all programs have executed this op or have ended.

    gpu.start_dependents : () -> ()
    """

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def evaluate(self) -> tuple[()]:
        return ()
