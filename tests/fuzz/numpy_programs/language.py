"""`tl` for a kernel that Python itself runs: the functions of the language on `values.Tile`.

Control flow is Python's own, so a kernel's text means here what its author reads in it. Only what
random programs of this package call is defined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fuzz.numpy_programs.values import (
    DTYPES,
    Array,
    DType,
    Pointer,
    Tile,
    bfloat16,
    common,
    convert,
    float32,
    int1,
    int32,
    promoted,
    strong,
    typed,
    uint32,
)

program: ContextVar[tuple[int, ...]] = ContextVar("program")
grid: ContextVar[tuple[int, ...]] = ContextVar("grid")


def counted(*bounds: Any, **_: Any) -> Iterator[Tile]:
    """`range`, whose loop variable is an int32 value."""
    for i in range(*map(int, bounds)):
        yield Tile(np.asarray(i, np.int32), int32)


def static_range(*bounds: Any) -> Iterator[int]:
    yield from range(*map(int, bounds))


def program_id(axis: int) -> Tile:
    return Tile(np.asarray(program.get()[axis], np.int32), int32)


def num_programs(axis: int) -> Tile:
    return Tile(np.asarray(grid.get()[axis], np.int32), int32)


# -- creation, shapes -----------------------------------------------------------------------------


def arange(start: int, end: int) -> Tile:
    return Tile(np.arange(start, end, dtype=np.int32), int32)


def full(shape: Sequence[int], value: Any, dtype: DType) -> Tile:
    return Tile(np.full(tuple(shape), typed(value, dtype).data, dtype.numpy), dtype)


def zeros(shape: Sequence[int], dtype: DType) -> Tile:
    return full(shape, 0, dtype)


def reshape(x: Tile, shape: Sequence[int]) -> Tile:
    return replace(x, data=x.data.reshape(tuple(shape)))


def broadcast_to(x: Any, shape: Sequence[int]) -> Tile:
    return Tile(np.broadcast_to(x.data, tuple(shape)), x.dtype)


def trans(x: Tile) -> Tile:
    return x.T


def flip(x: Tile, dim: int | None = None) -> Tile:
    return replace(x, data=np.flip(x.data, -1 if dim is None else dim))


def join(a: Tile, b: Tile) -> Tile:
    x, y = promoted(a, b)
    return replace(x, data=np.stack(np.broadcast_arrays(x.data, y.data), -1))


def split(x: Tile) -> tuple[Tile, Tile]:
    return x[..., 0], x[..., 1]


def interleave(a: Tile, b: Tile) -> Tile:
    joined = join(a, b)
    return reshape(joined, (*a.shape[:-1], 2 * a.shape[-1]))


def gather(x: Tile, index: Tile, axis: int) -> Tile:
    return replace(x, data=np.take_along_axis(x.data, index.data.astype(np.int64), axis))


# -- selection, elementwise -----------------------------------------------------------------------


def where(condition: Tile, a: Any, b: Any) -> Tile:
    x, y = promoted(a, b)
    return replace(x, data=np.where(condition.data, x.data, y.data))


class PropagateNan:
    NONE, ALL = range(2)


def _closer(x: Array, y: Array, less: bool, all_nans: bool = False) -> Array:
    """The lesser or the greater; -0.0 is less than 0.0, and a number wins over a NaN."""
    if x.dtype.kind in "iub":
        return np.minimum(x, y) if less else np.maximum(x, y)
    a, b = x.astype(np.float64), y.astype(np.float64)
    first = np.where(a == b, np.signbit(a) == less, (a < b) == less)
    if all_nans:
        return np.where(np.isnan(a) | (~np.isnan(b) & first), x, y)
    return np.where(np.isnan(b) | (~np.isnan(a) & first), x, y)


def _extremum(a: Any, b: Any, less: bool, propagate_nan: int) -> Tile:
    x, y = (convert(v, float32) if v.dtype is bfloat16 else v for v in (strong(a), strong(b)))
    x, y = promoted(x, y)
    return replace(x, data=_closer(x.data, y.data, less, propagate_nan == PropagateNan.ALL))


def minimum(a: Any, b: Any, propagate_nan: int = PropagateNan.NONE) -> Tile:
    return _extremum(a, b, True, propagate_nan)


def maximum(a: Any, b: Any, propagate_nan: int = PropagateNan.NONE) -> Tile:
    return _extremum(a, b, False, propagate_nan)


def clamp(x: Tile, low: Any, high: Any) -> Tile:
    return minimum(maximum(x, low), high)


def absolute(x: Tile) -> Tile:
    return replace(x, data=np.abs(x.data))


def umulhi(a: Tile, b: Tile) -> Tile:
    x, y = promoted(a, b)
    wide = [v.data.astype(f"u{x.dtype.bits // 8}").astype(object) for v in (x, y)]
    high = np.asarray((wide[0] * wide[1]) >> x.dtype.bits, object)
    return replace(x, data=high.astype(f"u{x.dtype.bits // 8}").astype(x.dtype.numpy))


def _of_floats(function: Callable[[Array], Array]) -> Callable[[Tile], Tile]:
    return lambda x: replace(x, data=np.asarray(function(x.data), x.dtype.numpy))


def div_rn(a: Tile, b: Tile) -> Tile:
    x, y = promoted(a, b)
    return replace(x, data=np.asarray(x.data / y.data))


def fdiv(a: Tile, b: Tile) -> Tile:
    return div_rn(a, b)


# -- reductions, scans, sorts ---------------------------------------------------------------------


def _summed_type(dtype: DType) -> DType:
    if dtype.is_float or dtype.bits >= 32:
        return dtype
    return int32 if dtype.signed else uint32


def sum(x: Tile, axis: int | None = None) -> Tile:
    dtype = _summed_type(x.dtype)
    return Tile(np.asarray(np.sum(convert(x, dtype).data, axis, dtype.numpy)), dtype)


def xor_sum(x: Tile, axis: int | None = None) -> Tile:
    return replace(x, data=np.asarray(np.bitwise_xor.reduce(x.data, axis)))


def cumsum(x: Tile, axis: int = 0, reverse: bool = False) -> Tile:
    return _scanned(np.cumsum, x, axis, reverse)


def cumprod(x: Tile, axis: int = 0, reverse: bool = False) -> Tile:
    return _scanned(np.cumprod, x, axis, reverse)


def _scanned(function: Callable[..., Array], x: Tile, axis: int, reverse: bool) -> Tile:
    dtype = _summed_type(x.dtype)
    data = convert(x, dtype).data
    data = np.flip(data, axis) if reverse else data
    found = function(data, axis, dtype.numpy)
    return Tile(np.flip(found, axis) if reverse else found, dtype)


def _widened(x: Tile) -> Tile:
    if x.dtype.bits >= 32:
        return x
    return convert(x, float32 if x.dtype.is_float else int32)


def _folded(x: Tile, axis: int | None, less: bool) -> Tile:
    x = _widened(x)
    data = x.data.reshape(-1) if axis is None else np.moveaxis(x.data, axis, 0)
    found = data[0]
    for part in data[1:]:
        found = _closer(found, part, less)
    return replace(x, data=np.asarray(found, x.dtype.numpy))


def min(x: Tile, axis: int | None = None) -> Tile:
    return _folded(x, axis, True)


def max(x: Tile, axis: int | None = None) -> Tile:
    return _folded(x, axis, False)


def argmin(x: Tile, axis: int) -> Tile:
    return Tile(np.asarray(np.argmin(x.data, axis), np.int32), int32)


def argmax(x: Tile, axis: int) -> Tile:
    return Tile(np.asarray(np.argmax(x.data, axis), np.int32), int32)


def sort(x: Tile, descending: bool = False) -> Tile:
    found = np.sort(x.data, -1)
    return replace(x, data=found[..., ::-1] if descending else found)


def topk(x: Tile, k: int) -> Tile:
    return sort(x, descending=True)[..., :k]


def histogram(x: Tile, bins: int) -> Tile:
    inside = x.data[(x.data >= 0) & (x.data < bins)]
    return Tile(np.bincount(inside, minlength=bins).astype(np.int32), int32)


Combine = Callable[..., Any]


def _elements(x: tuple[Tile, ...], axis: int, i: int) -> tuple[Tile, ...]:
    return tuple(replace(t, data=np.take(t.data, i, axis)) for t in x)


def _combined(combine: Combine, left: tuple[Tile, ...], right: tuple[Tile, ...]) -> Any:
    found = combine(*left, *right)
    return found if isinstance(found, tuple) else (found,)


def associative_scan(x: Any, axis: int, combine_fn: Combine, reverse: bool = False) -> Any:
    tiles = x if isinstance(x, tuple) else (x,)
    count = tiles[0].shape[axis]
    order = range(count - 1, -1, -1) if reverse else range(count)
    steps: list[tuple[Tile, ...]] = []
    for i in order:
        part = _elements(tiles, axis, i)
        steps.append(_combined(combine_fn, steps[-1], part) if steps else part)
    if reverse:
        steps.reverse()
    found = tuple(
        replace(t, data=np.stack([s[k].data for s in steps], axis)) for k, t in enumerate(tiles)
    )
    return found if isinstance(x, tuple) else found[0]


def reduce(x: Any, axis: int, combine_fn: Combine) -> Any:
    tiles = x if isinstance(x, tuple) else (x,)
    found = _elements(tiles, axis, 0)
    for i in range(1, tiles[0].shape[axis]):
        found = _combined(combine_fn, found, _elements(tiles, axis, i))
    return found if isinstance(x, tuple) else found[0]


def dot(a: Tile, b: Tile, acc: Tile | None = None, **_: Any) -> Tile:
    """Of operands whose products and sums are exact."""
    dtype = a.dtype if a.dtype.bits == 64 else float32 if a.dtype.is_float else int32
    wide = np.float64 if dtype.is_float else np.int64
    found = a.data.astype(wide) @ b.data.astype(wide)
    if acc is not None:
        found = found + acc.data
    return Tile(found.astype(dtype.numpy), dtype)


# -- memory ---------------------------------------------------------------------------------------


def load(pointer: Any, mask: Any = None, other: Any = None, **given: Any) -> Tile:
    if isinstance(pointer, Block):
        return pointer.load()
    if mask is None:
        return Tile(_read(pointer.memory, pointer.offsets), pointer.dtype)
    on, at = np.broadcast_arrays(strong(mask).data, pointer.offsets)
    inside = _read(pointer.memory, np.where(on, at, 0))
    filled = np.broadcast_to(typed(other, pointer.dtype).data, on.shape)
    return Tile(np.where(on, inside, filled), pointer.dtype)


def _read(memory: Array, at: Array) -> Array:
    assert np.all((at >= 0) & (at < len(memory)))
    return memory[at]


def store(pointer: Any, value: Any, mask: Any = None, **given: Any) -> None:
    if isinstance(pointer, Block):
        pointer.store(value)
        return
    data = typed(value, pointer.dtype).data
    on = True if mask is None else strong(mask).data
    at, data, on = (np.broadcast_to(x, pointer.offsets.shape) for x in (pointer.offsets, data, on))
    assert np.all((at[on] >= 0) & (at[on] < len(pointer.memory)))
    pointer.memory[at[on]] = data[on]


@dataclass(frozen=True)
class Block:
    """A block of a matrix in memory; what is outside reads as 0 and is not stored."""

    base: Pointer
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    def _places(self) -> tuple[Array, Array]:
        at, inside = np.asarray(self.base.offsets), np.asarray(True)
        for axis, size in enumerate(self.shape):
            index = np.arange(size) + self.offsets[axis]
            index = index.reshape([-1 if k == axis else 1 for k in range(len(self.shape))])
            at = at + index * self.strides[axis]
            inside = inside & (index >= 0) & (index < self.extents[axis])
        return at, np.broadcast_to(inside, at.shape)

    def load(self, offsets: Sequence[Any] | None = None) -> Tile:
        at, inside = self._moved(offsets)._places()
        data = _read(self.base.memory, np.where(inside, at, 0))
        return Tile(np.where(inside, data, np.zeros_like(data)), self.base.dtype)

    def store(self, *given: Any) -> None:
        *offsets, value = given
        at, inside = self._moved(offsets[0] if offsets else None)._places()
        self.base.memory[at[inside]] = convert(value, self.base.dtype).data[inside]

    def _moved(self, offsets: Sequence[Any] | None) -> Block:
        return self if offsets is None else replace(self, offsets=_integers(offsets))


def _integers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def make_block_ptr(
    base: Pointer, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any
) -> Block:
    return Block(
        base, _integers(shape), _integers(strides), _integers(offsets), _integers(block_shape)
    )


def advance(block: Block, offsets: Sequence[Any]) -> Block:
    moved = tuple(a + b for a, b in zip(block.offsets, _integers(offsets), strict=True))
    return replace(block, offsets=moved)


def make_tensor_descriptor(base: Pointer, shape: Any, strides: Any, block_shape: Any) -> Block:
    zeros = (0,) * len(block_shape)
    return Block(base, _integers(shape), _integers(strides), zeros, _integers(block_shape))


def _atomic(function: Any) -> Callable[..., None]:
    """An atomic whose result is not used."""

    def change(pointer: Pointer, value: Any, mask: Any = True) -> None:
        data = typed(value, pointer.dtype).data
        on = strong(mask).data
        at, data, on = np.broadcast_arrays(pointer.offsets, data, on)
        function.at(pointer.memory, at[on], data[on])

    return change


def _namespace() -> SimpleNamespace:
    named: Sequence[Callable[..., Any] | type] = (
        static_range, program_id, num_programs, arange, full, zeros, reshape, broadcast_to, trans,
        flip, join, split, interleave, gather, where, minimum, maximum, clamp, umulhi, div_rn,
        fdiv, sum, xor_sum, cumsum, cumprod, min, max, argmin, argmax, sort, topk, histogram,
        associative_scan, reduce, dot, load, store, make_block_ptr, advance,
        make_tensor_descriptor, PropagateNan,
    )  # fmt: skip
    return SimpleNamespace(
        **DTYPES,
        **{f.__name__: f for f in named},
        range=counted,
        constexpr=object,
        abs=absolute,
        floor=_of_floats(np.floor),
        ceil=_of_floats(np.ceil),
        sqrt_rn=_of_floats(np.sqrt),
        atomic_add=_atomic(np.add),
        atomic_max=_atomic(np.maximum),
        atomic_min=_atomic(np.minimum),
        atomic_and=_atomic(np.bitwise_and),
        atomic_or=_atomic(np.bitwise_or),
        atomic_xor=_atomic(np.bitwise_xor),
        debug_barrier=lambda: None,
    )


tl = _namespace()
__all__ = ["common", "counted", "grid", "int1", "program", "tl"]
