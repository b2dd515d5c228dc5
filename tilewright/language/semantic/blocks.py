"""Blocks of arrays in memory: the pointers to their elements, and which of them are inside.

What block pointers and tensor descriptors have in common. A block may begin before the array and
reach past its end. Where it begins is uniform: the tiles that are built here hold for every block
of a shape, so that a loop over blocks need not compute them again.
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
from tilewright.language.values import constexpr, tensor
from tilewright.ops.arith import Add, Max, Min
from tilewright.ops.shape import Arange, ExpandDims

PADDINGS = ("", "zero", "nan")
INDEX_LIMIT = 2**31


def plain(value: Any) -> Any:
    """The Python value of a constexpr."""
    return value.value if isinstance(value, constexpr) else value


def listed(values: Any) -> list[Any]:
    """The elements of a list, a tuple or a constexpr of one; a lone value is a list of itself."""
    values = plain(values)
    return list(values) if isinstance(values, Iterable) else [values]


def scalar_integer(s: Semantic, value: Any, what: str) -> tensor:
    """A number or a scalar tensor as a scalar tensor.

    Raises:
        TypeError: it is no scalar integer.
    """
    found = convert.to_tensor(s, value)
    if shape_of(found.type) or not element_of(found.type).is_int():
        raise TypeError(f"{what} must be a scalar integer, got {found.type}")
    return found


def integers(s: Semantic, values: Any, element: Scalar, what: str) -> list[tensor]:
    """Integers, numbers or scalar tensors, as scalars of one type."""
    return [
        convert.cast(s, scalar_integer(s, v, f"{what}[{i}]"), element)
        for i, v in enumerate(listed(values))
    ]


class Axis(NamedTuple):
    """Which indices along an axis of an array a block has: ``begin + steps``.

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
    """Consecutive indices from `begin` on."""
    return Axis(begin, s.emit(Arange(0, length)) if length > 1 else None)


def total(s: Semantic, a: tensor | None, b: tensor | None) -> tensor | None:
    """The sum of values of one element type, in their common shape; None is 0."""
    if a is None or b is None:
        return b if a is None else a
    a, b = convert.broadcast(s, a, b)
    return s.emit(Add(a.handle, b.handle))


def _along(s: Semantic, line: tensor, axis: int, rank: int) -> tensor:
    """A 1-D tile as axis `axis` of a tile of rank `rank`, whose other axes have length 1."""
    for d in range(rank):
        if d != axis:
            line = s.emit(ExpandDims(line.handle, d))
    return line


def pointers(s: Semantic, base: tensor, strides: Sequence[tensor], axes: Sequence[Axis]) -> tensor:
    """The pointers to the elements of a block, a tile.

    Args:
        base: a scalar pointer.
        strides: in elements, scalars of i64.
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
    """An extent as u32: what is negative is empty, and no index reaches 2^31."""
    element = extent.dtype
    extent = s.emit(Max(extent.handle, constant(s, 0, element).handle, False))
    if element is I64:
        extent = s.emit(Min(extent.handle, constant(s, INDEX_LIMIT, I64).handle, False))
    return convert.cast(s, extent, U32)


def inside(
    s: Semantic, extents: Sequence[tensor], axes: Sequence[Axis], checked: Iterable[int]
) -> tensor | None:
    """Where the block's indices are within the array along the checked axes, a tile of int1.

    None if no axis is checked. One comparison tells both ends of an axis: as an unsigned number,
    an index below 0 is beyond all extents.

    Args:
        extents: scalars of i32 or i64.
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
    """Modulo 2^32: negative numbers become large ones."""
    return convert.cast(s, convert.cast(s, value, I32), U32)


def padding_option(option: Any, element: Scalar, of_what: str) -> str:
    """One of `PADDINGS`.

    Raises:
        ValueError: it is none, or NaN for integers.
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
    """What a load gives outside the array, as its operand; None for zeros, which loads give."""
    return constant(s, nan, element, shape).handle if padding == "nan" else None
