"""The values that represent blocks of arrays in memory: block pointers and tensor descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.types import DType, Tile, dtype_of
from tilewright.language.types import block_pointer_type, tensor_descriptor_type
from tilewright.language.values import assembles, composite, constexpr, tensor, tuple


class block_pointer(composite):
    """A pointer to a block of an array, the result of `tl.make_block_ptr`.

    Attributes:
        base: a scalar pointer to the array.
        extents, strides: of the array along each axis, in elements: int64 scalars.
        offsets: the index of the block's first element, int32 scalars.
        dtype: the type of the pointer; its `element_ty` is the tile type of the block.
        shape, numel: those of a scalar, which it is: () and 1.
    """

    __slots__ = ("type",)
    shape = tuple([])
    numel = constexpr(1)

    if TYPE_CHECKING:

        def advance(self, offsets: Any) -> block_pointer: ...

    def __init__(self, type: block_pointer_type, values: Sequence[tensor]) -> None:
        self.type: block_pointer_type = type
        self.values = list(values)

    @property
    def dtype(self) -> block_pointer_type:
        return self.type

    @property
    def base(self) -> tensor:
        return self.values[0]

    def _parts(self, group: int) -> list[tensor]:
        rank = self.type.rank
        return self.values[1 + group * rank : 1 + (group + 1) * rank]

    @property
    def extents(self) -> list[tensor]:
        return self._parts(0)

    @property
    def strides(self) -> list[tensor]:
        return self._parts(1)

    @property
    def offsets(self) -> list[tensor]:
        return self._parts(2)

    def __repr__(self) -> str:
        return str(self.type)


class tensor_descriptor(composite):
    """An array in memory that is accessed by blocks, created by `tl.make_tensor_descriptor` or
    passed to a kernel.

    Attributes:
        base: a scalar pointer to the array.
        shape: its extents, a tuple of int32 scalars.
        strides: in elements, a tuple of int64 scalars, the last one a compile-time 1.
        block_type: the tile type of the blocks.
        block_shape: the extents of the blocks, a tuple of compile-time integers.
        dtype: the element type.
        padding: the value of out-of-bounds elements, "zero" or "nan".
        round_to_tf32: whether loads round fp32 to tf32, to nearest even.

    Its methods are `load`, `store`, `gather`, `scatter` and `atomic_add`, `_min`, `_max`, `_and`,
    `_or`, `_xor`.
    """

    __slots__ = ("block_type", "padding", "round_to_tf32")

    if TYPE_CHECKING:
        # Installed by `tensor_descriptor.py`; declared here for type checkers.
        # fmt: off
        def load(self, offsets: Any) -> tensor: ...
        def store(self, offsets: Any, value: Any) -> None: ...
        def gather(self, x_offsets: Any, y_offset: Any) -> tensor: ...
        def scatter(self, value: Any, x_offsets: Any, y_offset: Any) -> None: ...
        def atomic_add(self, offsets: Any, value: Any) -> None: ...
        def atomic_min(self, offsets: Any, value: Any) -> None: ...
        def atomic_max(self, offsets: Any, value: Any) -> None: ...
        def atomic_and(self, offsets: Any, value: Any) -> None: ...
        def atomic_or(self, offsets: Any, value: Any) -> None: ...
        def atomic_xor(self, offsets: Any, value: Any) -> None: ...
        # fmt: on

    def __init__(
        self,
        base: tensor,
        shape: tuple,
        strides: tuple,
        block_type: Tile,
        padding: str,
        round_to_tf32: bool = False,
    ) -> None:
        self.values = [base, shape, strides]
        self.block_type = block_type
        self.padding = padding
        self.round_to_tf32 = round_to_tf32

    @property
    def type(self) -> tensor_descriptor_type:
        return tensor_descriptor_type(
            self.block_type,
            self.shape.type,
            self.strides.type,
            self.padding,
            self.round_to_tf32,
        )

    @property
    def base(self) -> tensor:
        return self.values[0]

    @property
    def shape(self) -> tuple:
        return self.values[1]

    @property
    def strides(self) -> tuple:
        return self.values[2]

    @property
    def block_shape(self) -> tuple:
        return tuple([constexpr(n) for n in self.block_type.shape])

    @property
    def dtype(self) -> DType:
        return dtype_of(self.block_type)

    def __repr__(self) -> str:
        return str(self.type)


def _descriptor_of(type: tensor_descriptor_type, parts: list[Any]) -> tensor_descriptor:
    base, shape, strides = parts
    return tensor_descriptor(
        base, shape, strides, type.block_type, type.padding, type.round_to_tf32
    )


assembles(block_pointer_type)(block_pointer)
assembles(tensor_descriptor_type)(_descriptor_of)
