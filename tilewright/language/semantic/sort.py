"""Sorting, top-k, histograms, and elementwise application of scalar functions.

Elements are sorted as integer keys with the same order, so that comparators are minima and maxima,
and the bits of elements are preserved. The key of a float is its bit pattern, with the magnitude
bits inverted if the sign is set: -inf < … < -0.0 < 0.0 < … < inf. NaN follows inf, with any
sign.

Bits of floats have no derivative. In a kernel that is differentiated, floats are therefore selected
by their ranks, which are computed by comparing all pairs of keys, if there are not too many.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tilewright.base.codes import coded
from tilewright.ir.core import Region
from tilewright.ir.types import FP16, I1, I8, I32, DType, derivative_type, int_type, shape_of
from tilewright.language.semantic import arith, convert, reduce, shape
from tilewright.language.semantic.context import Semantic, StaticAssertionError, static_assert
from tilewright.language.semantic.convert import compile_time_int, to_tensor
from tilewright.language.semantic.shape import plain
from tilewright.language.values import tensor, tuple
from tilewright.ops.control import Yield
from tilewright.ops.histogram import Histogram
from tilewright.ops.map import Map
from tilewright.ops.marks import StopGradient
from tilewright.ops.sort import Sort

Back = Callable[[tensor], tensor]

MOST_PAIRS = 1 << 16  # that are compared for the places of elements


def _as_keys(s: Semantic, x: tensor) -> builtins.tuple[tensor, Back]:
    """Integer keys in the order of the elements, and the function that converts keys to
    elements."""
    element = x.dtype
    if not isinstance(element, DType):
        raise TypeError(f"pointers can't be sorted, but the tile is {x}")
    if element.is_bool():
        return convert.cast(s, x, I8), lambda keys: convert.cast(s, keys, element)
    if element.is_int():
        return x, lambda keys: keys
    if element.is_fp8():
        keys, back = _as_keys(s, convert.cast(s, x, FP16))
        return keys, lambda keys: convert.cast(s, back(keys), element)
    integer = int_type(element.primitive_bitwidth, True)
    bits = convert.bitcast(s, x, integer)
    # A NaN without its sign is greater than all numbers.
    bits = arith.where(s, arith.ne(s, x, x), _magnitude(s, bits), bits)
    return _ordered(s, bits), lambda keys: convert.bitcast(s, _ordered(s, keys), element)


def _magnitude(s: Semantic, bits: tensor) -> tensor:
    assert isinstance(bits.dtype, DType)
    return arith.bit_and(s, bits, bits.dtype.get_int_max_value())


def _ordered(s: Semantic, bits: tensor) -> tensor:
    """Convert bit patterns of floats to keys, and vice versa: the map is its own inverse."""
    assert isinstance(bits.dtype, DType)
    sign = arith.shr(s, bits, bits.dtype.primitive_bitwidth - 1)
    return arith.bit_xor(s, bits, _magnitude(s, sign))


def _minor_axis(x: tensor, dim: Any, name: str) -> int:
    """The length of the last axis, the only one that `dim` may name."""
    sizes = shape_of(x.type)
    axis = None if plain(dim) is None else compile_time_int(dim, f"{name}: dim")
    static_assert(len(sizes) > 0, f"{name} takes a tile, not the scalar {x}")
    if axis not in (None, -1, len(sizes) - 1):
        message = "only minor dimension is currently supported"
        raise coded("minor-axis", StaticAssertionError(message))
    return sizes[-1]


def sort(s: Semantic, x: tensor, dim: Any, descending: Any, merge: bool = False) -> tensor:
    """Sort along the last axis; with `merge`, of a bitonic sequence."""
    extent = _minor_axis(x, dim, "bitonic_merge" if merge else "sort")
    if _has_derivative(s, x):
        return _by_places(s, x, extent, bool(plain(descending)))
    keys, back = _as_keys(s, x)
    merge &= extent & (extent - 1) == 0
    return back(s.emit(Sort(keys.handle, bool(plain(descending)), merge)))


def _has_derivative(s: Semantic, x: tensor) -> bool:
    is_float = isinstance(x.dtype, DType) and x.dtype.is_floating()
    lengths = shape_of(x.type)
    return s.options.derivatives and is_float and prod(lengths) * lengths[-1] <= MOST_PAIRS


def _by_places(s: Semantic, x: tensor, count: int, largest_first: bool) -> tensor:
    """The elements of the first `count` places along the last axis. The place of an element is the
    number of those before it; of equal ones, the first is before the others."""
    lengths = shape_of(x.type)
    axis, extent = len(lengths) - 1, lengths[-1]
    keys, _ = _as_keys(s, s.emit(StopGradient(x.handle)))
    own, other = convert.with_axis(s, keys, axis + 1), convert.with_axis(s, keys, axis)
    i, j = (shape.index_along(s, (*lengths, extent), a) for a in (axis, axis + 1))
    better = arith.gt if largest_first else arith.lt
    earlier = arith.logical_and(s, arith.eq(s, other, own), arith.lt(s, j, i))
    before = arith.logical_or(s, better(s, other, own), earlier)
    place = reduce.total(s, convert.cast(s, before, I32), axis + 1, False, None)

    wide = derivative_type(x.dtype)
    assert isinstance(wide, DType)
    is_there = arith.eq(
        s, convert.with_axis(s, place, axis + 1),
        shape.index_along(s, (*lengths, count), axis + 1),
    )  # fmt: skip
    elements = convert.with_axis(s, convert.cast(s, x, wide), axis + 1)
    taken = reduce.total(s, arith.where(s, is_there, elements, 0.0), axis, False, None)
    return convert.cast(s, taken, x.dtype)


def topk(s: Semantic, x: tensor, k: Any, dim: Any, descending: Any) -> tensor:
    """The k largest or smallest elements along the last axis, in order.

    Blocks of k elements are sorted. The elementwise maxima (or minima) of a block and of another
    one in reverse are the best k of both, as a bitonic sequence, which a merge sorts.
    """
    extent = _minor_axis(x, dim, "topk")
    count, largest_first = compile_time_int(k, "topk: k"), bool(plain(descending))
    static_assert(count > 0, "topk: k must be greater than 0")
    static_assert(count & (count - 1) == 0, "topk: k must be a power of two")
    static_assert(count <= extent, "topk: k must not exceed the size of the selected dimension")
    if count == extent:
        return sort(s, x, None, largest_first)
    x = reduce.widened(s, x)
    if _has_derivative(s, x):
        return _by_places(s, x, count, largest_first)
    keys, back = _as_keys(s, x)
    outer, blocks = shape_of(x.type)[:-1], extent // count
    if extent & (extent - 1):
        ordered = s.emit(Sort(keys.handle, largest_first, False))
        first = shape.index_along(s, (*outer, count), len(outer))
        return back(shape.gather(s, ordered, first, len(outer)))
    best = shape.reshape(s, keys, (*outer, blocks, count))
    best = s.emit(Sort(best.handle, largest_first, False))
    while blocks > 1:
        blocks //= 2
        best = _better_half(s, shape.reshape(s, best, (*outer, blocks, 2, count)), largest_first)
        best = s.emit(Sort(best.handle, largest_first, True))
    return back(shape.reshape(s, best, (*outer, count)))


def _better_half(s: Semantic, pairs: tensor, largest_first: bool) -> tensor:
    """The better k elements of each pair of sorted blocks, as a bitonic sequence."""
    axis = len(shape_of(pairs.type)) - 2
    second = arith.ne(s, shape.index_along(s, shape_of(pairs.type), axis), 0)
    turned = arith.where(s, second, shape.flip(s, pairs, axis + 1), pairs)
    better = reduce.pairwise(s, arith.larger if largest_first else arith.smaller)
    return reduce.reduce(s, [turned], axis, better)[0]


def histogram(s: Semantic, x: tensor, num_bins: Any, mask: Any) -> tensor:
    """The number of occurrences of 0, 1, … num_bins - 1 where the mask is true."""
    assert len(shape_of(x.type)) == 1, "histogram only supports 1D input"
    if not x.dtype.is_int():
        raise ValueError(f"histogram only supports integer input, but got {x.dtype}")
    if x.dtype.is_bool():
        x = convert.cast(s, x, I32)
    bins = plain(num_bins)
    shape.check_shape(s, (bins,))
    counted = None
    if plain(mask) is not None:
        flags = to_tensor(s, mask)
        if flags.dtype != I1:
            raise coded(
                "mask-type", ValueError(f"Mask must have boolean scalar type, but it is {flags}")
            )
        counted = convert.broadcast_to(s, flags, shape_of(x.type)).handle
    return s.emit(Histogram(x.handle, counted, bins))


# -- elementwise application of scalar functions ---------------------------------------------------


def map_elementwise(s: Semantic, fn: Any, args: Sequence[Any], pack: Any) -> Any:
    """Apply a jit function of scalars to each element, or to each `pack` elements."""
    count = plain(pack)
    if not isinstance(count, int) or count < 1 or count & (count - 1):
        raise ValueError(f"map_elementwise: pack must be a power of two, got {count}")
    if not args:
        raise ValueError("map_elementwise needs an argument besides the function")
    srcs = convert.broadcast_all(s, [to_tensor(s, a) for a in args])
    sizes = shape_of(srcs[0].type)
    if not sizes:
        return _map_scalars(s, fn, srcs, count)
    if prod(sizes) % count:
        raise ValueError(
            f"map_elementwise: {prod(sizes)} elements are not a multiple of pack, {count}"
        )
    region = Region([x.dtype for x in srcs for _ in range(count)])
    with s.builder.combining(region):
        values = _results(s, fn, [tensor(a) for a in region.args])
        _check_packs(values, count)
        s.builder.insert(Yield([v.handle for v in values]))
    if any(op.writes() for op in region):
        raise ValueError(
            "map_elementwise: the function must not write memory, print or assert: it may run "
            "more than once for an element"
        )
    op = s.builder.insert(Map([x.handle for x in srcs], count, region))
    return _one_or_many([tensor(r) for r in op.results])


def _map_scalars(s: Semantic, fn: Any, args: Sequence[tensor], pack: int) -> Any:
    """Call the function directly on scalars."""
    assert not s.options.strict_triton, "map_elementwise takes a tile: call the function"
    if pack != 1:
        raise ValueError(f"map_elementwise: scalars can't be packed by {pack}")
    return _one_or_many(_results(s, fn, args))


def _one_or_many(values: Sequence[tensor]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def _results(s: Semantic, fn: Any, args: Sequence[tensor]) -> list[tensor]:
    """The results of the function, as scalars."""
    result = s.inline(fn, args)
    values = result.values if isinstance(result, tuple) else [result]
    found = [to_tensor(s, v) for v in values]
    for v in found:
        if shape_of(v.type):
            raise ValueError(f"map_elementwise: the function must return scalars, not {v}")
    return found


def _check_packs(values: Sequence[tensor], pack: int) -> None:
    types = [v.type for v in values]
    if len(values) % pack or types != [t for t in types[::pack] for _ in range(pack)]:
        raise ValueError(
            f"map_elementwise: with pack={pack} the function must return {pack} values of each "
            f"result, those of one result in a row; it returns ({', '.join(map(str, values))})"
        )
