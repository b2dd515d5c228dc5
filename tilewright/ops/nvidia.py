"""Ops specific to NVIDIA GPUs: matrix instructions, which require layouts of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, require, variadic
from tilewright.ir.index_map import IndexMap, identity
from tilewright.ir.traits import IN_FLIGHT, LOCAL, READS, WRITES
from tilewright.ir.types import Shared, Tile, Type, dtype_of, is_int, is_pointer, shape_of
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.dot import Dot
from tilewright.ops.dot_scaled import DotScaled
from tilewright.ops.gpu import Fetch
from tilewright.ops.memory import pointee_of
from tilewright.ops.numeric import Array
from tilewright.ops.roles import arrive, require_barrier

ADDED_COLUMNS = 32  # of a box of `nvidia.add_block`: 128 bytes, a row of its swizzle
MAX_MAP_RANK = 5  # dimensions of a tensor map (PTX ISA, "Tensors")

Sum = tuple[tuple[int, tuple[int, ...]], ...]
"""A sum of products: of each its coefficient, and the numbers of the arguments that are factors."""


def value_of(terms: Sum, args: Sequence[int]) -> int:
    """A sum of products for these arguments: ``value_of(((2, (0, 1)), (5, ())), [3, 4]) == 29``."""
    return sum(coefficient * prod(args[i] for i in factors) for coefficient, factors in terms)


class FetchAcross(Fetch, name="nvidia.fetch_across", traits=READS):
    """Loads a right operand of `nvidia.wgmma` that is not contiguous along K.

    It is to be shared with adjacent elements along K, so each thread gets words of those.

        %1 = nvidia.fetch_across %0, own=False : shared<32x64xfp32> -> 32x64xfp32
    """


class Mma(Dot, name="nvidia.mma"):
    """acc + lhs @ rhs by `mma.sync`, with all operands in registers.

    Of a `chained` product, a warp computes whole rows if there are enough.

        %3 = nvidia.mma %0, %1, %2, precision="ieee", max_imprecise=0
          : (16x16xfp16, 16x8xfp16, 16x8xfp32) -> 16x8xfp32
    """

    chained: bool = attr(False)


class ScaledMma(DotScaled, name="nvidia.scaled_mma"):
    """acc + (lhs * lhs_scale) @ (rhs * rhs_scale) by `mma.sync`, with all operands in registers.

    %5 = nvidia.scaled_mma %0, %1, %2, %3, %4, lhs_format="e4m3", rhs_format="e2m3",
      lhs_k_pack=True, rhs_k_pack=True, fast_math=False
      : (16x32xfp8e4nv, 16x1xu8, 32x8xu8, 8x1xu8, 16x8xfp32) -> 16x8xfp32
    """

    def verify(self) -> None:
        super().verify()
        require(
            self.lhs_scale is not None and self.rhs_scale is not None,
            self,
            "scale",
            "both operands have scales",
        )


class Wgmma(Dot, name="nvidia.wgmma", traits=WRITES | LOCAL | IN_FLIGHT):
    """Starts acc + lhs @ rhs by `wgmma.mma_async`; `nvidia.wgmma_wait` completes it.

    `rhs` is a buffer in shared memory, `lhs` a buffer or a tile. Until it is complete, the result
    may only be used as the accumulator of another product, and the buffers must not change.

    An instruction computes rows independently of each other, so that it is free which row of a
    tile it takes as which: bit i of the number of a row within an instruction is bit `row_bits[i]`
    of that in the tile; without `row_bits`, bit i. They only affect layouts.

        %3 = nvidia.wgmma %0, %1, %2, precision="ieee", max_imprecise=0, row_bits=()
          : (shared<64x16xfp16>, shared<16x8xfp16>, 64x8xfp32) -> 64x8xfp32
    """

    row_bits: tuple[int, ...] = attr(())

    def verify(self) -> None:
        super().verify()
        require(
            isinstance(self.rhs.type, Shared) and isinstance(self.acc.type, Tile),
            self,
            "operand-types",
            "the right operand must be in shared memory and the accumulator in registers",
        )
        m, n = shape_of(self.acc.type)[-2:]
        require(
            m % 64 == 0 and n % 8 == 0,
            self,
            "shape",
            "the shape {m} x {n} is not a multiple of 64 x 8",
            m=m,
            n=n,
        )
        require(
            not self.row_bits
            or (sorted(self.row_bits) == list(range(6)) and isinstance(self.lhs.type, Tile)),
            self,
            "row-bits",
            "{bits} is not a permutation of the 6 bits of a row of a tile in registers",
            bits=self.row_bits,
        )


class WgmmaWait(Op, name="nvidia.wgmma_wait", traits=WRITES | LOCAL):
    """Waits until this warp's products are complete, except the last `pending` ones.

    The results are the `values`; those whose product is complete may be used.

        %1 = nvidia.wgmma_wait [%0], pending=0 : 64x8xfp32 -> 64x8xfp32
    """

    values: list[Value] = variadic()
    pending: int = attr(0)

    def result_types(self) -> tuple[Type, ...]:
        return tuple(v.type for v in self.values)

    def verify(self) -> None:
        require(self.pending >= 0, self, "pending", "{n} products", n=self.pending)

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        same = identity(shape_of(self.values[result].type))
        return tuple(same if i == result else None for i in range(len(self.values)))

    def evaluate(self, *values: Array) -> tuple[Array, ...]:
        return values


class LoadBlock(Op, name="nvidia.load_block", traits=READS | WRITES | LOCAL):
    """Starts to copy a block of a tensor into a buffer; its bytes arrive at a barrier.

    The tensor is at `base` plus `offset` elements. Dimension d has `extents[d]` elements,
    `strides[d]` elements apart; that of dimension 0 is 1. All three are sums of products of `args`,
    which are arguments of the kernel, so that the launch can describe the tensor (a *tensor map*).
    Axis a of the buffer runs along dimension `axes[a]`. `coords` are where the block begins in
    each dimension; elements outside of the tensor, also below 0, are 0.

    With `within`, no coordinate that is named there may be negative: the copy faults if one is.

        nvidia.load_block %0, [%1, %2], [%3, %4], %5, %6, %7, offset=(),
          extents=(((1, (0,),),), ((64, (),),),), strides=(((1, (),),), ((1, (1,),),),),
          axes=(1, 0,), within=()
          : (ptr<fp16>, i32, i32, i32, i32, shared<8x64xfp16>, shared<2xi64>, i32) -> ()
    """

    base: Value = operand()
    args: list[Value] = variadic()
    coords: list[Value] = variadic()
    buffer: Value = operand()
    barriers: Value = operand()
    index: Value = operand()
    offset: Sum = attr()
    extents: tuple[Sum, ...] = attr()
    strides: tuple[Sum, ...] = attr()
    axes: tuple[int, ...] = attr()
    within: tuple[int, ...] = attr()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require_barrier(self, self.barriers, self.index)
        buffer, base = self.buffer.type, self.base.type
        require(
            isinstance(buffer, Shared)
            and is_pointer(base)
            and not shape_of(base)
            and pointee_of(base) == dtype_of(buffer),
            self,
            "operand-types",
            "can't copy from {p} into {b}",
            p=base,
            b=buffer,
        )
        _require_rank(self)
        require(
            all(is_int(v.type) and not shape_of(v.type) for v in (*self.args, *self.coords)),
            self,
            "operand-types",
            "arguments and coordinates are integers",
        )
        dims = {*self.axes, *self.within}
        require(
            len(self.axes) == len(shape_of(buffer)) == len(set(self.axes))
            and dims <= set(range(len(self.coords))),
            self,
            "axes",
            "{axes} does not name a dimension for each axis of {b}",
            axes=self.axes,
            b=buffer,
        )

    no_evaluate = "it reads memory; see execute"
    no_index_maps = "it has no result"

    def execute(self, state: Any, base: Array, *rest: Array) -> tuple[()]:
        count, rank = len(self.args), len(self.coords)
        args = [int(v) for v in rest[:count]]
        coords = [int(v) for v in rest[count : count + rank]]
        buffer, barriers, index = rest[count + rank :]
        if any(coords[d] < 0 for d in self.within):
            raise IndexError(f"the block begins at {coords}, before the tensor")
        ptr, inside = _elements(self, base, args, coords, buffer.shape)
        buffer[...] = state.memory.load(self, ptr, inside, None)
        arrive(barriers[int(index) : int(index) + 1].reshape(()), arrived=buffer.nbytes)
        return ()


def _require_rank(op: LoadBlock | AddBlock) -> None:
    """Raise `IRError` unless a block has a coordinate for each dimension of its tensor."""
    rank = len(op.coords)
    require(
        0 < rank <= MAX_MAP_RANK and rank == len(op.extents) == len(op.strides),
        op,
        "rank",
        "{n} coordinates of a tensor of {m} dimensions; there are 1 to {most}",
        n=rank,
        m=len(op.extents),
        most=MAX_MAP_RANK,
    )


def _elements(
    op: LoadBlock | AddBlock,
    base: Array,
    args: Sequence[int],
    coords: Sequence[int],
    shape: Sequence[int],
) -> tuple[Array, Array]:
    """The addresses of a block's elements, and which of them are in the tensor."""
    grid = np.indices(shape).astype(np.int64)
    place = np.full(shape, value_of(op.offset, args), np.int64)
    inside = np.ones(shape, bool)
    for d, coord in enumerate(coords):
        along = coord + (grid[op.axes.index(d)] if d in op.axes else 0)
        inside &= (along >= 0) & (along < value_of(op.extents[d], args))
        place = place + along * value_of(op.strides[d], args)
    size = pointee_of(op.base.type).nbytes_in_memory
    return base + place.astype(np.uint64) * np.uint64(size), inside


class AddBlock(AtomicRMW, name="nvidia.add_block", traits=READS | WRITES):
    """Starts to add a tile to a block of a tensor, element by element, in any order.

    The tile is `value`, and `ptr` with `mask` the same block as tiles; for the other operands see
    `nvidia.load_block`. Each warp stores its elements to its own part of the buffer, which must not
    be used for anything else until an `nvidia.wait_blocks`. The result is not to be used.

        %8 = nvidia.add_block %0, %1, _, %2, [%3], [%4, %5], %6, kind="add", sem="relaxed",
          scope="gpu", offset=(), extents=(((32, (),),), ((1, (0,),),),),
          strides=(((1, (),),), ((32, (),),),), axes=(1, 0,), within=()
          : (8x32xptr<fp32>, 8x32xfp32, ptr<fp32>, i32, i32, i32, shared<8x32xfp32>) -> 8x32xfp32
    """

    base: Value = operand()
    args: list[Value] = variadic()
    coords: list[Value] = variadic()
    buffer: Value = operand()
    offset: Sum = attr()
    extents: tuple[Sum, ...] = attr()
    strides: tuple[Sum, ...] = attr()
    axes: tuple[int, ...] = attr()
    within: tuple[int, ...] = attr()

    def verify(self) -> None:
        super().verify()
        _require_rank(self)
        tile = Shared(shape_of(self.value.type), dtype_of(self.value.type))
        require(
            self.buffer.type == tile and self.kind == "add" and not self.result.users,
            self,
            "operand-types",
            "adds {v} through {b}",
            v=self.value.type,
            b=self.buffer.type,
        )

    def execute(self, state: Any, *given: Array) -> Array:
        ptr, value, *rest = given
        mask = rest.pop(0) if self.mask is not None else None
        base, *numbers = rest[:-1]
        args, coords = numbers[: len(self.args)], numbers[len(self.args) :]
        places, inside = _elements(
            self, base, [int(v) for v in args], [int(v) for v in coords], value.shape
        )
        kept = np.ones(value.shape, bool) if mask is None else mask
        if not (np.array_equal(kept, inside) and np.array_equal(places[kept], ptr[kept])):
            raise IndexError("the block is not what the pointers and the mask describe")
        return state.memory.atomic(self, ptr, value, mask)


class WaitBlocks(Op, name="nvidia.wait_blocks", traits=WRITES | LOCAL):
    """Waits until the additions from a buffer have read it. Their writes may still be under way.

    nvidia.wait_blocks %0 : shared<64x128xfp32> -> ()
    """

    buffer: Value = operand()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require(
            isinstance(self.buffer.type, Shared),
            self,
            "operand-types",
            "waits for reads of a buffer, not of {t}",
            t=self.buffer.type,
        )

    no_index_maps = "it has no result"

    def evaluate(self, buffer: Array) -> tuple[()]:
        return ()


class Turn(Op, name="nvidia.turn", traits=WRITES | LOCAL):
    """A step of the warpgroups' turns at starting products.

    - ``take``: a warpgroup waits until the one before it has passed its turn,
    - ``pass``: ends its turn, without waiting,
    - ``begin``, before all others: the first warpgroup has the first turn.

    Turns decide when products run, and have no part in what is computed.

        nvidia.turn step="take" : () -> ()
    """

    STEPS = ("begin", "take", "pass")

    step: str = attr()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require(self.step in self.STEPS, self, "step", "unknown step {s!r}", s=self.step)

    no_index_maps = "it has no result"

    def evaluate(self) -> tuple[()]:
        return ()


class Delay(Op, name="nvidia.delay", traits=WRITES | LOCAL):
    """Waits for a time that depends on the seed, on the clock and on which warp it is.

    nvidia.delay seed=17 : () -> ()
    """

    seed: int = attr()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require(0 <= self.seed < 1 << 31, self, "seed", "a seed has 31 bits, not {n}", n=self.seed)

    no_index_maps = "it has no result"

    def evaluate(self) -> tuple[()]:
        return ()
