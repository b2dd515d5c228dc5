"""The values that stand for blocks of arrays in memory."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.language.types import block_pointer_type
from tilewright.language.values import assembles, composite, tensor


class block_pointer(composite):
    """A pointer to a block of an array, made by `tl.make_block_ptr`.

    Attributes:
        base: the array, a scalar pointer.
        extents, strides: of the array along each axis, in elements: scalars of i64.
        offsets: where the block begins, scalars of i32.
        dtype: the type of the pointer: its `element_ty` is that of the block, a tile's.
    """

    __slots__ = ("type",)

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


assembles(block_pointer_type)(block_pointer)
