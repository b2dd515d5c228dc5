"""Buffers for the partial sums of workers, and their total; see `autodiff/coarsen.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import tilewright.language as tl
from tilewright.runtime.grid import Grid
from tilewright.runtime.jit import cdiv, jit

if TYPE_CHECKING:
    from tilewright.compiler.artifact import CompiledKernel

BLOCK, ROWS, WARPS = 16, 128, 4  # the tile of a program that adds up rows, and its warps
SPAN = 16  # elements of which a row's distance from the next is a multiple, so that it is aligned
MOST_WORKERS = 528  # four for each multiprocessor of an H200
FEWER_WORKERS = 132  # one for each
MANY_ELEMENTS = 1 << 20  # of all rows of an array, for which there are more than these
FEWEST_WORKERS = 16
MOST_ELEMENTS = 1 << 20  # of an array with a row for each worker, which adds to it in memory
MOST_BYTES = 1 << 28  # of one buffer


Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape, and strides in elements."""


class Floats(NamedTuple):
    """A buffer of floats.

    Attributes:
        length: the number of elements.
        dtype: their type, of the library of the arrays.
        zeros: whether they are 0; otherwise they are arbitrary.
    """

    length: int
    dtype: Any
    zeros: bool

    def allocated(self, like: Any) -> Any:
        """A new buffer, where an array is."""
        if isinstance(like, np.ndarray):
            return (np.zeros if self.zeros else np.empty)(self.length, self.dtype)
        make = like.new_zeros if self.zeros else like.new_empty
        return make((self.length,), dtype=self.dtype)

    @property
    def bytes(self) -> int:
        """The size of the buffer."""
        return self.length * self.dtype.itemsize


class Sums(NamedTuple):
    """The partial sums of one array, a row for each worker, or program.

    Attributes:
        floats: the buffer of all rows.
        workers: the number of rows.
        elements: of a row.
        span: from one row to the next.
        layout: that of the array.
    """

    floats: Floats
    workers: int
    elements: int
    span: int
    layout: Layout

    @property
    def is_dense(self) -> bool:
        """Whether the array has no gaps, which must be preserved."""
        return prod(self.layout[0]) == self.elements

    def rows(self, buffer: Any) -> Any:
        """The rows as arrays like the gradient."""
        shape, strides = self.layout
        if isinstance(buffer, np.ndarray):
            in_bytes = [s * buffer.itemsize for s in (self.span, *strides)]
            return np.lib.stride_tricks.as_strided(buffer, (self.workers, *shape), in_bytes)
        return buffer.as_strided((self.workers, *shape), (self.span, *strides))


def can_hold(array: Any) -> bool:
    """Whether there can be buffers for an array: a tensor of torch or an array of NumPy, without
    negative strides."""
    if hasattr(array, "new_zeros"):
        return True
    return isinstance(array, np.ndarray) and min(array.strides, default=0) >= 0


def workers_of(programs: int, arrays: Sequence[Any]) -> int:
    """The number of workers that share the programs, limited by the size of their buffers.

    On an H200, the gradient of a layer norm of 8192 rows in fp16 takes, with 132, 264 and 528
    workers, 53.8, 35.1 and 27.3 us for rows of 1024 elements, and 121.6, 125.8 and 137.3 us for
    rows of 8192, where sums of more rows take longer than is gained.
    """
    most = MOST_WORKERS
    for array in arrays:
        elements = max(1, _span(*_layout(array)))
        most = min(most, max(FEWER_WORKERS, MANY_ELEMENTS // elements))
        most = min(most, max(FEWEST_WORKERS, MOST_BYTES // (4 * elements)))
    return max(1, min(programs, most))


def sums_of(array: Any, workers: int, filled: bool, is_wide: bool) -> Sums:
    """The partial sums of the gradient that is written to an array, which may have another type.

    Args:
        filled: whether each worker writes all elements.
        is_wide: whether they are fp64; otherwise they are fp32.
    """
    layout = _layout(array)
    elements = _span(*layout)
    span = -(-elements // SPAN) * SPAN
    floats = floats_like(array, workers * span, is_wide)._replace(zeros=not filled)
    return Sums(floats, workers, elements, span, layout)


def floats_like(array: Any, count: int, is_wide: bool) -> Floats:
    """A buffer of fp32, or of fp64 if it is wide, in the library of an array."""
    if isinstance(array, np.ndarray):
        return Floats(count, np.dtype(np.float64 if is_wide else np.float32), zeros=False)
    empty = array.new_empty(0)
    return Floats(count, (empty.double() if is_wide else empty.float()).dtype, zeros=False)


def integers_like(array: Any, numbers: Any) -> Any:
    """An array of NumPy of int32 where an array is."""
    if isinstance(array, np.ndarray):
        return numbers
    return array.new_empty(0).int().new_tensor(numbers.tolist())


@jit
def _add_rows(
    rows_ptr: Any, sum_ptr: Any, rows: Any, elements: Any, span: Any,
    ACCUMULATE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Add up the rows of one array, BLOCK columns of them, in a fixed order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    totals = tl.zeros([ROWS, BLOCK], rows_ptr.dtype.element_ty)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        place = row[:, None].to(tl.int64) * span + at[None, :]
        within = (row < rows)[:, None] & inside[None, :]
        totals += tl.load(rows_ptr + place, mask=within, other=0.0)
    total = tl.sum(totals, 0)
    if ACCUMULATE:
        total += tl.load(sum_ptr + at, mask=inside).to(total.dtype)
    tl.store(sum_ptr + at, total.to(sum_ptr.dtype.element_ty), mask=inside)


@jit
def add_rows(
    rows_ptr: Any, sum_ptr: Any, elements: Any, span: Any,
    other_rows_ptr: Any, other_sum_ptr: Any, other_elements: Any, other_span: Any, rows: Any,
    ACCUMULATE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Add up the rows of an array, and of another one where the grid has a second axis."""
    if tl.program_id(1) < 1:
        _add_rows(rows_ptr, sum_ptr, rows, elements, span, ACCUMULATE, BLOCK, ROWS)
    else:
        _add_rows(
            other_rows_ptr, other_sum_ptr, rows, other_elements, other_span, ACCUMULATE, BLOCK, ROWS
        )


class Addition(NamedTuple):
    """A launch that has added up rows.

    Attributes:
        kernel: the compiled kernel.
        grid: the extents of its grid.
        names: the two arrays whose rows it adds up.
        numbers: the other arguments.
    """

    kernel: CompiledKernel
    grid: Grid
    names: tuple[str, str]
    numbers: tuple[int, int, int, int, int]


def add_up(
    sums: Mapping[str, Sums], rows: Mapping[str, Any], arrays: Mapping[str, Any], accumulate: bool
) -> list[Addition]:
    """Write the sum of all rows to their array, or add it to the contents of the array.

    Args:
        sums: by name, the partial sums of an array.
        rows: the buffers of these.
        arrays: the arrays.

    Returns:
        the launches; sums with gaps are added up without them.
    """
    plain: dict[int, list[str]] = {}
    for name, one in sums.items():
        if one.is_dense:
            plain.setdefault(one.workers, []).append(name)
        else:
            _add_up_views(one, rows[name], arrays[name], accumulate)
    pairs = [(n[i], n[min(i + 1, len(n) - 1)]) for n in plain.values() for i in range(0, len(n), 2)]
    done: list[Addition] = []
    for names in pairs:
        first, last = sums[names[0]], sums[names[1]]
        grid = cdiv(max(first.elements, last.elements), BLOCK), 1 + (first is not last), 1
        numbers = first.elements, first.span, last.elements, last.span, first.workers
        kernel = add_rows[grid](
            rows[names[0]], arrays[names[0]], *numbers[:2],
            rows[names[1]], arrays[names[1]], *numbers[2:],
            ACCUMULATE=accumulate, BLOCK=BLOCK, ROWS=ROWS, num_warps=WARPS,
        )  # fmt: skip
        done.append(Addition(kernel, grid, names, numbers))
    return done


def _add_up_views(sums: Sums, buffer: Any, array: Any, accumulate: bool) -> None:
    total = sums.rows(buffer).sum(0)
    if isinstance(array, np.ndarray):
        array[...] = array + total if accumulate else total
    elif accumulate:
        array.add_(total)
    else:
        array.copy_(total)


def _layout(array: Any) -> Layout:
    if isinstance(array, np.ndarray):
        return array.shape, tuple(s // array.itemsize for s in array.strides)
    return tuple(array.shape), tuple(array.stride())


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one of an array."""
    if prod(shape) == 0:
        return 0
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))


def elements_of(array: Any) -> int:
    """The number of elements of an array."""
    return prod(_layout(array)[0])
