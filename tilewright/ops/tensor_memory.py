"""Products with results in tensor memory, a memory for the operands and results of matrix
instructions.

A value of type `tensor<128x64xfp32>` is the content of a part of tensor memory. Products and stores
take it and return its new content, like an accumulator that a loop carries, so only the last value
of such a chain is in memory. One thread issues a product; only the barriers at which
`nvidia.commit_products` arrives wait for it.
"""

from __future__ import annotations

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, require
from tilewright.ir.index_map import IndexMap, identity
from tilewright.ir.traits import IN_FLIGHT, LOCAL, WRITES
from tilewright.ir.types import (
    Shared,
    TensorMemory,
    Tile,
    Type,
    dtype_of,
    numpy_of,
    shape_of,
    text_of,
)
from tilewright.ops.control import For
from tilewright.ops.dot import Dot
from tilewright.ops.dot_scaled import DotScaled
from tilewright.ops.numeric import Array
from tilewright.ops.roles import arrive, require_barrier

ROWS = 128  # of tensor memory, and of a product
FEW_ROWS = 64  # of a smaller product, which occupies half of the rows of its columns
GROUP_COLUMNS = 8  # the fewest of these that four warps load
COLUMNS = 512
COLUMN_BYTES = 4  # of a row
STEP_COLUMNS = 16  # of a product
SCALE_ROWS, WORD_SCALES = 32, 4  # scales of a column of tensor memory: of rows, and of each
SCALE_COLUMNS = ROWS // SCALE_ROWS  # for 128 rows, to which scales are aligned


class AllocateTensor(Op, name="nvidia.allocate_tensor", traits=WRITES | LOCAL):
    """Allocates tensor memory, with undefined contents. A program has one such op.

    %0 = nvidia.allocate_tensor type=tensor<128x64xfp32> : () -> tensor<128x64xfp32>
    """

    type: Type = attr()

    def result_type(self) -> Type:
        return self.type

    def verify(self) -> None:
        require(
            isinstance(self.type, TensorMemory),
            self,
            "operand-types",
            "allocates tensor memory, not {t}",
            t=self.type,
        )

    def evaluate(self) -> Array:
        return np.zeros(shape_of(self.type), numpy_of(self.type))


class TensorPart(Op, name="nvidia.tensor_part", traits=WRITES | LOCAL):
    """A part of allocated tensor memory, from a column on, with undefined contents.

    %1 = nvidia.tensor_part %0, column=128, type=tensor<256x32xfp32>
      : tensor<128x192xfp32> -> tensor<256x32xfp32>
    """

    memory: Value = operand()
    column: int = attr()
    type: Type = attr()

    def result_type(self) -> Type:
        return self.type

    def verify(self) -> None:
        require_tensor(self, self.memory)
        require(
            isinstance(self.type, TensorMemory),
            self,
            "operand-types",
            "is tensor memory, not {t}",
            t=self.type,
        )
        last = self.column + columns_of(self.type)
        require(
            self.column >= 0 and last <= columns_of(self.memory.type),
            self,
            "column",
            "columns {first} to {last} are not all among those of {m}",
            first=self.column,
            last=last - 1,
            m=self.memory.type,
        )

    no_index_maps = "nothing is known of its elements"

    def evaluate(self, memory: Array) -> Array:
        return np.zeros(shape_of(self.type), numpy_of(self.type))


class FreeTensor(Op, name="nvidia.free_tensor", traits=WRITES | LOCAL):
    """Frees tensor memory for other programs. No operation on it may be outstanding.

    nvidia.free_tensor %0 : tensor<128x64xfp32> -> ()
    """

    memory: Value = operand()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require_tensor(self, self.memory)

    no_index_maps = "it has no result"

    def evaluate(self, memory: Array) -> tuple[()]:
        return ()


class StoreTensor(Op, name="nvidia.store_tensor", traits=WRITES | LOCAL):
    """Stores a tile to tensor memory, for products that start after it.

    %2 = nvidia.store_tensor %0, %1 : (tensor<128x64xfp32>, 128x64xfp32) -> tensor<128x64xfp32>
    """

    memory: Value = operand()
    value: Value = operand()

    def result_type(self) -> Type:
        return self.memory.type

    def verify(self) -> None:
        require_tensor(self, self.memory)
        require(
            isinstance(self.value.type, Tile)
            and text_of(self.memory.type) == f"tensor<{text_of(self.value.type)}>",
            self,
            "operand-types",
            "can't store {v} to {m}",
            v=self.value.type,
            m=self.memory.type,
        )

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (None, identity(shape_of(self.value.type)))

    def evaluate(self, memory: Array, value: Array) -> Array:
        return value


class LoadTensor(Op, name="nvidia.load_tensor", traits=WRITES | LOCAL):
    """The tile in tensor memory. All products to it must be complete.

    %1 = nvidia.load_tensor %0 : tensor<128x64xfp32> -> 128x64xfp32
    """

    memory: Value = operand()

    def result_type(self) -> Type:
        kind = self.memory.type
        return Tile(kind.shape, kind.element) if isinstance(kind, TensorMemory) else kind

    def verify(self) -> None:
        require_tensor(self, self.memory)

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (identity(shape_of(self.memory.type)),)

    def evaluate(self, memory: Array) -> Array:
        return memory


class TensorMma(Dot, name="nvidia.tensor_mma", traits=WRITES | LOCAL | IN_FLIGHT):
    """Starts acc + lhs @ rhs by `tcgen05.mma`, or, if not `adds`, lhs @ rhs, regardless of `acc`.
    Both operands are in shared memory, and `acc` and the result in the same tensor memory. The left
    operand may also be in tensor memory, in separate columns.

    It is complete after an `nvidia.tensor_wait`, or when a barrier is at which a later
    `nvidia.commit_products` arrives. Until then, the operands must not change, and only other
    products may use the result. They are computed one after the other.

        %3 = nvidia.tensor_mma %0, %1, %2, precision="ieee", max_imprecise=0, adds=True
          : (shared<128x16xfp16>, shared<16x64xfp16>, tensor<128x64xfp32>) -> tensor<128x64xfp32>
    """

    adds: bool = attr(True)

    def verify(self) -> None:
        super().verify()
        require_tensor(self, self.acc)
        lhs = self.lhs.type
        in_tensor_memory = isinstance(lhs, TensorMemory) and fits_tensor_memory(lhs)
        require(
            isinstance(self.rhs.type, Shared) and (isinstance(lhs, Shared) or in_tensor_memory),
            self,
            "operand-types",
            "both operands must be in shared memory, or the left one in tensor memory",
        )
        m, n = shape_of(self.acc.type)
        require(
            fits_rows(m) and n % STEP_COLUMNS == 0,
            self,
            "shape",
            "the shape {m} x {n} is not 64 rows or a multiple of 128, by a multiple of 16",
            m=m,
            n=n,
        )

    def evaluate(self, lhs: Array, rhs: Array, acc: Array) -> Array:
        return super().evaluate(lhs, rhs, acc if self.adds else np.zeros_like(acc))


class TensorScaledMma(
    DotScaled, name="nvidia.tensor_scaled_mma", traits=WRITES | LOCAL | IN_FLIGHT
):
    """Starts acc + (lhs * lhs_scale) @ (rhs * rhs_scale) by `tcgen05.mma` with block scales, as
    `nvidia.tensor_mma` does. Both operands are in shared memory; both scales, `acc` and the result
    in tensor memory. Until it is complete, scales must not change, either.

        %5 = nvidia.tensor_scaled_mma %0, %1, %2, %3, %4, lhs_format="e4m3", rhs_format="e4m3",
          lhs_k_pack=True, rhs_k_pack=True, fast_math=False, adds=True
          : (shared<128x32xfp8e4nv>, tensor<128x1xu8>, shared<32x64xfp8e4nv>, tensor<64x1xu8>,
             tensor<128x64xfp32>) -> tensor<128x64xfp32>
    """

    adds: bool = attr(True)

    def verify(self) -> None:
        super().verify()
        require_tensor(self, self.acc)
        for side in self.sides:
            require(
                isinstance(side.value.type, Shared)
                and side.scale is not None
                and isinstance(side.scale.type, TensorMemory),
                self,
                "operand-types",
                "both operands must be in shared memory, and scales of both in tensor memory",
            )
        m, n = shape_of(self.acc.type)
        require(
            m % ROWS == 0 and n % STEP_COLUMNS == 0,
            self,
            "shape",
            "the shape {m} x {n} is not a multiple of 128 x 16",
            m=m,
            n=n,
        )

    def evaluate(self, *args: Array) -> Array:
        *operands, acc = args
        return super().evaluate(*operands, acc if self.adds else np.zeros_like(acc))


TensorProduct = TensorMma | TensorScaledMma


def buffers_of(product: TensorProduct) -> list[Value]:
    """The operands of a product that must not change until it is complete, without the sum."""
    return [value for value in product.operands if value is not product.acc]


def scales_of(product: TensorScaledMma) -> tuple[Value, Value]:
    """The scales of both operands."""
    assert product.lhs_scale is not None
    assert product.rhs_scale is not None
    return product.lhs_scale, product.rhs_scale


class TensorWait(Op, name="nvidia.tensor_wait", traits=WRITES | LOCAL):
    """Waits until a product, and all that have started before, are complete. In code, a wait for a
    barrier is before it (`finish_tensor_products`).

    %1 = nvidia.tensor_wait %0 : tensor<128x64xfp32> -> tensor<128x64xfp32>
    """

    product: Value = operand()

    def result_type(self) -> Type:
        return self.product.type

    def verify(self) -> None:
        require_tensor(self, self.product)

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (identity(shape_of(self.product.type)),)

    def evaluate(self, product: Array) -> Array:
        return product


class CommitProducts(Op, name="nvidia.commit_products", traits=WRITES | LOCAL):
    """Arrives at a barrier once all products in tensor memory that were started are complete.

    nvidia.commit_products %0, %1 : (shared<2xi64>, i32) -> ()
    """

    barriers: Value = operand()
    index: Value = operand()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require_barrier(self, self.barriers, self.index)

    no_index_maps = "it has no result"

    def evaluate(self, barriers: Array, index: Array) -> tuple[()]:
        arrive(barriers[int(index) : int(index) + 1].reshape(()), 1)
        return ()


def require_tensor(op: Op, value: Value) -> None:
    """Raise `IRError` unless the value is in tensor memory."""
    require(
        isinstance(value.type, TensorMemory) and len(value.type.shape) == 2,
        op,
        "operand-types",
        "takes a matrix in tensor memory, not {t}",
        t=value.type,
    )


def columns_of(type: Type) -> int:
    """The columns of tensor memory that a matrix occupies. Of scales, four of a row are in a word,
    and 32 rows in a column."""
    rows, columns = shape_of(type)
    blocks = -(-rows // ROWS)
    if is_scales(type):
        return blocks * SCALE_COLUMNS * -(-columns // WORD_SCALES)
    return blocks * columns * dtype_of(type).nbytes_in_memory // COLUMN_BYTES


def is_scales(type: Type) -> bool:
    """Whether a matrix consists of scales, bytes, rather than of sums or of an operand."""
    return dtype_of(type).nbytes_in_memory == 1


def fits_tensor_memory(type: Type) -> bool:
    """Whether the left operand of a product may be in tensor memory, with a row in each of its."""
    return shape_of(type)[0] % ROWS == 0 and dtype_of(type).nbytes_in_memory in (2, COLUMN_BYTES)


def fits_rows(rows: int) -> bool:
    """Whether products have this number of rows."""
    return rows == FEW_ROWS or rows % ROWS == 0


def fits_warps(shape: tuple[int, ...], groups: int) -> bool:
    """Whether so many groups of four warps share a result: each has eight columns of few rows."""
    return shape[0] != FEW_ROWS or shape[1] // groups >= GROUP_COLUMNS


def memory_of(content: Value) -> Value:
    """The allocation, or the part of it, whose content a value is."""
    while True:
        match content.op:
            case TensorMma() | TensorScaledMma():
                content = content.op.acc
            case TensorWait():
                content = content.op.product
            case StoreTensor():
                content = content.op.memory
            case For():
                content = content.op.inits[content.index]
            case None if isinstance(loop := content.owner.parent, For):
                content = loop.inits[content.index - 1]
            case _:
                return content
