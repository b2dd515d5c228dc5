"""Blocks of arrays in memory: the pointers to their elements, and the mask of those in bounds.

Shared by block pointers and tensor descriptors. A block may start before the array and extend past
its end. The begin of a block is a scalar, and tiles depend only on the shape, so that they are
invariant in a loop over blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import nan
from typing import Any, NamedTuple

from tilewright.ir.core import Value
from tilewright.ir.types import FP8E4B15, I32, I64, U32, Scalar, element_of, shape_of
from tilewright.language.semantic import arith, convert
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.convert import constant
from tilewright.language.semantic.shape import expand_dims
from tilewright.language.values import constexpr, tensor
from tilewright.ops.arith import Add, Max, Min
from tilewright.ops.shape import Arange

PADDINGS = ("", "zero", "nan")
INDEX_LIMIT = 2**31


def plain(value: Any) -> Any:
    """The Python value of a constexpr."""
    return value.value if isinstance(value, constexpr) else value


def listed(values: Any) -> list[Any]:
    """The items of a list, a tuple or a constexpr of one; a single value is a list of one item."""
    values = plain(values)
    return list(values) if isinstance(values, Iterable) else [values]


def scalar_integer(s: Semantic, value: Any, what: str) -> tensor:
    """A number or a scalar tensor as a scalar tensor.

    Raises:
        TypeError: it is not a scalar integer.
    """
    found = convert.to_tensor(s, value)
    if shape_of(found.type) or not element_of(found.type).is_int():
        raise TypeError(f"{what} must be a scalar integer, got {found.type}")
    return found


def integers(s: Semantic, values: Any, element: Scalar, what: str) -> list[tensor]:
    """Integers, given as numbers or scalar tensors, as scalar tensors of one type."""
    return [
        convert.cast(s, scalar_integer(s, v, f"{what}[{i}]"), element)
        for i, v in enumerate(listed(values))
    ]


class Axis(NamedTuple):
    """The indices of a block along an axis of the array: ``begin + steps``.

    Attributes:
        begin: a scalar integer of at most 32 bits; None for 0.
        steps: a 1-D tile of int16 or int32; None for the single index 0.
    """

    begin: tensor | None
    steps: tensor | None

    @property
    def length(self) -> int:
        return shape_of(self.steps.type)[0] if self.steps is not None else 1


def run(s: Semantic, begin: tensor, length: int) -> Axis:
    """Consecutive indices that start at `begin`."""
    return Axis(begin, s.emit(Arange(0, length)) if length > 1 else None)


def total(s: Semantic, a: tensor | None, b: tensor | None) -> tensor | None:
    """The sum of two values of one element type, after broadcasting; None is 0."""
    if a is None or b is None:
        return b if a is None else a
    a, b = convert.broadcast(s, a, b)
    return s.emit(Add(a.handle, b.handle))


def _along(s: Semantic, line: tensor, axis: int, rank: int) -> tensor:
    """A 1-D tile with axes of length 1 inserted, such that it is axis `axis` of rank `rank`."""
    return expand_dims(s, line, tuple(d for d in range(rank) if d != axis))


def pointers(s: Semantic, base: tensor, strides: Sequence[tensor], axes: Sequence[Axis]) -> tensor:
    """The tile of pointers to the elements of a block.

    Args:
        base: a scalar pointer.
        strides: int64 scalars, in elements.
        axes: the indices of the block.
    """
    start: tensor | None = None
    steps: tensor | None = None
    for i, (stride, axis) in enumerate(zip(strides, axes, strict=True)):
        if axis.begin is not None:
            start = total(s, start, arith.mul(s, convert.cast(s, axis.begin, I64), stride))
        if axis.steps is not None:
            scaled = arith.mul(s, convert.cast(s, axis.steps, I64), stride)
            steps = total(s, steps, _along(s, scaled, i, len(axes)))
    shape = tuple(axis.length for axis in axes)
    at = base if start is None else arith.add(s, base, start)
    found = convert.splat(s, at, shape)
    return found if steps is None else arith.add(s, found, convert.extend_to(s, steps, shape))


def _end(s: Semantic, extent: tensor) -> tensor:
    """An extent as u32, clamped to [0, 2^31]."""
    element = extent.dtype
    extent = s.emit(Max(extent.handle, constant(s, 0, element).handle, False))
    if element is I64:
        extent = s.emit(Min(extent.handle, constant(s, INDEX_LIMIT, I64).handle, False))
    return convert.cast(s, extent, U32)


def inside(
    s: Semantic, extents: Sequence[tensor], axes: Sequence[Axis], checked: Iterable[int]
) -> tensor | None:
    """The int1 mask of the elements that are in bounds along the checked axes.

    None if no axis is checked. A single unsigned comparison checks both bounds of an axis: as an
    unsigned integer, a negative index exceeds all extents.

    Args:
        extents: int32 or int64 scalars.
        axes: the indices of the block.
        checked: the axes to check.
    """
    shape = tuple(axis.length for axis in axes)
    found: tensor | None = None
    for i in checked:
        begin, steps = (None if v is None else _unsigned(s, v) for v in axes[i])
        index = total(s, begin, steps)
        assert index is not None
        holds = arith.lt(s, index, _end(s, extents[i]))
        if steps is not None:
            holds = _along(s, holds, i, len(axes))
        found = holds if found is None else arith.logical_and(s, found, holds)
    return None if found is None else convert.extend_to(s, found, shape)


def _unsigned(s: Semantic, value: tensor) -> tensor:
    """The value modulo 2^32, as u32: negative numbers become large ones."""
    return convert.cast(s, convert.cast(s, value, I32), U32)


def padding_option(option: Any, element: Scalar, of_what: str) -> str:
    """Validate a padding option, one of `PADDINGS`.

    Raises:
        ValueError: it is unknown, or NaN for an element type without NaN.
    """
    found = plain(option) or ""
    if found not in PADDINGS:
        raise ValueError(f"Padding option `{found}` is not supported; it is `zero` or `nan`")
    if found == "nan" and not element.is_floating():
        raise ValueError(f"Padding option `nan` is not supported for {of_what}")
    if found == "nan" and element == FP8E4B15:
        raise ValueError(f"Padding option `nan` is not supported for {element}, which has no NaN")
    return found


def padding_value(
    s: Semantic, padding: str, element: Scalar, shape: tuple[int, ...]
) -> Value | None:
    """The `other` operand of a load for out-of-bounds elements; None for zeros, the default."""
    return constant(s, nan, element, shape).handle if padding == "nan" else None
