"""Creation of tiles and changes of shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilewright.base.codes import coded
from tilewright.ir.types import DType, Scalar, Tile, shape_of
from tilewright.language.semantic import arith, convert
from tilewright.language.semantic.context import IncompatibleTypeErrorImpl, Semantic, static_assert
from tilewright.language.semantic.convert import compile_time_int, constant, to_tensor
from tilewright.language.types import validate_block_shape
from tilewright.language.values import constexpr, tensor, tuple, type_of, unwrap_shape
from tilewright.ops import shape as ops
from tilewright.ops.control import NumPrograms, ProgramId

Shape = Sequence[Any]
INT32_RANGE = range(-(2**31), 2**31)


def plain(value: Any) -> Any:
    """The Python value of a constexpr."""
    return value.value if isinstance(value, constexpr) else value


def shape_argument(args: Sequence[Any]) -> Any:
    """A shape given as one sequence or as separate arguments."""
    args = list(args)
    if len(args) == 1 and not isinstance(plain(args[0]), int):
        return unwrap_shape(args[0])
    return unwrap_shape(args)


def check_shape(s: Semantic, sizes: Sequence[Any]) -> None:
    """Raise TypeError or ValueError for an invalid shape; see `validate_block_shape`."""
    validate_block_shape(sizes, powers_of_two=s.options.strict_triton)


def program_id(s: Semantic, axis: Any) -> tensor:
    return s.emit(ProgramId(_grid_axis(axis, "program_id axis")))


def num_programs(s: Semantic, axis: Any) -> tensor:
    return s.emit(NumPrograms(_grid_axis(axis, "num_programs axis")))


def _grid_axis(axis: Any, name: str) -> int:
    axis = compile_time_int(axis, name)
    if axis not in (0, 1, 2):
        raise coded("grid-axis", ValueError(f"{name} must be 0, 1, or 2 but got {axis}"))
    return axis


def arange(s: Semantic, start: Any, end: Any) -> tensor:
    """The integers from start to end - 1 as int32."""
    start, end = plain(start), plain(end)
    if not isinstance(start, int) or not isinstance(end, int):
        first = start if not isinstance(start, int) else end
        shown = type_of(first) if isinstance(first, tensor) else type(first).__name__
        raise coded(
            "needs-constant",
            ValueError(
                f"arange's arguments must be of type tl.constexpr: compile-time ints, not {shown}"
            ),
            value=first,
        )
    if start not in INT32_RANGE or end - 1 not in INT32_RANGE:
        raise ValueError("arange must fit in int32")
    if end <= start:
        raise ValueError("arange's end argument must be greater than the start argument")
    count = end - start
    if s.options.strict_triton and count & (count - 1):
        raise coded("power-of-two", ValueError("arange's range must be a power of 2"))
    check_shape(s, (count,))
    return s.emit(ops.Arange(int(start), int(end)))


def full(s: Semantic, shape: Any, value: Any, dtype: Any) -> tensor:
    """A tile with all elements equal to `value`."""
    sizes = unwrap_shape(shape)
    check_shape(s, sizes)
    element = None if plain(dtype) is None else convert.as_dtype(dtype)
    if isinstance(value, tensor):
        return convert.broadcast_to(s, _scalar_of(s, value, element), sizes)
    if element is None:
        raise ValueError("dtype must be specified when value is not a tensor")
    number = plain(value)
    if not isinstance(number, bool | int | float):
        raise TypeError(f"cannot convert {number} of type {type(number)} to tensor")
    if element.is_int() and not element.is_bool() and isinstance(number, float) and number != 0.0:
        raise TypeError(f"a tensor of {element} can't be filled with the float {number}")
    return constant(s, number, element, sizes)


def _scalar_of(s: Semantic, value: tensor, element: Scalar | None) -> tensor:
    if prod(shape_of(value.type)) != 1:
        raise ValueError("only accepts size-1 tensor")
    scalar = reshape(s, value, ()) if isinstance(value.type, Tile) else value
    return scalar if element is None else convert.cast(s, scalar, element)


def zeros_like(s: Semantic, x: Any) -> tensor:
    value = to_tensor(s, x)
    return constant(s, 0, value.dtype, shape_of(value.type))


def reshape(s: Semantic, x: tensor, shape: Any) -> tensor:
    """The same elements, in row-major order, in another shape; () is a scalar."""
    sizes = unwrap_shape(shape)
    check_shape(s, sizes)
    own = shape_of(x.type)
    if prod(sizes) != prod(own):
        error = ValueError("reshape() cannot change total number of elements in tensor")
        raise coded("extent", error, shape=sizes)
    if own == sizes:
        return x
    if not own:
        return convert.splat(s, x, sizes)
    return s.emit(ops.Reshape(x.handle, sizes))


def warn_of_reordering(s: Semantic, name: str, can_reorder: Any = True) -> None:
    """Warn that `can_reorder`, which permits any order of the elements, is deprecated."""
    if plain(can_reorder):
        s.warn(
            f"{name} is deprecated, because it permits any order of the elements; the order is "
            "preserved, as by tl.reshape",
        )


def normalized_axis(axis: Any, rank: int) -> int:
    """An axis in [0, rank) from one in [-rank, rank).

    Raises:
        ValueError: it is out of range.
    """
    axis = compile_time_int(axis, "axis")
    if not -rank <= axis < rank:
        message = f"invalid axis {axis}. Expected {-rank} <= axis < {rank}"
        raise coded("axis", ValueError(message))
    return axis + rank if axis < 0 else axis


def expand_dims(s: Semantic, x: tensor, axis: Any) -> tensor:
    """Insert axes of length 1 at these positions of the result."""
    axes = list(unwrap_shape(axis))
    rank = len(shape_of(x.type)) + len(axes)
    positions = sorted(normalized_axis(a, rank) for a in axes)
    if len(set(positions)) != len(positions):
        raise ValueError(f"expand_dims received duplicate axes, normalized axes = {positions}")
    for position in positions:
        x = convert.with_axis(s, x, position)
    return x


def squeeze(s: Semantic, x: tensor, dim: Any) -> tensor:
    """Remove the axis `dim`, whose length must be 1."""
    shape = shape_of(x.type)
    axis = normalized_axis(dim, len(shape))
    static_assert(shape[axis] == 1, f"squeeze: axis {axis} of {list(shape)} does not have length 1")
    return reshape(s, x, shape[:axis] + shape[axis + 1 :])


def permute(s: Semantic, x: tensor, dims: Any) -> tensor:
    """Permute the axes: axis i of the result is axis dims[i]."""
    order = unwrap_shape(dims)
    rank = len(shape_of(x.type))
    if len(order) != rank:
        raise ValueError(
            f"permute dims must have the same length as input shape, got {len(order)} and {rank}"
        )
    order = [d + rank if isinstance(d, int) and d < 0 else d for d in order]
    if sorted(order) != list(range(rank)):
        raise ValueError(
            f"permute dims must be a permutation of 0, 1, ..., n-1, but were {list(order)}"
        )
    if list(order) == list(range(rank)):
        return x
    return s.emit(ops.Permute(x.handle, unwrap_shape(order)))


def trans(s: Semantic, x: tensor, dims: Sequence[Any]) -> tensor:
    """Permute the axes; without `dims`, swap the last two."""
    if dims:
        return permute(s, x, shape_argument(dims))
    rank = len(shape_of(x.type))
    if rank < 2:
        raise ValueError("tl.trans invoked with a 0- or 1-dimensional tensor")
    return permute(s, x, [*range(rank - 2), rank - 1, rank - 2])


def cat(s: Semantic, a: tensor, b: tensor, dim: Any) -> tensor:
    """Concatenate along `dim`. The other extents must be equal; in Triton, all extents."""
    first, second = shape_of(a.type), shape_of(b.type)
    assert len(first) == len(second), (
        f"tensors must have the same rank, got {len(first)} and {len(second)}"
    )
    axis = normalized_axis(dim, len(first))
    others = first[:axis] == second[:axis] and first[axis + 1 :] == second[axis + 1 :]
    assert others if not s.options.strict_triton else first == second, (
        f"tl.cat requires tensors of the same shape, got {list(first)} and {list(second)}"
    )
    b = _with_signedness_of(s, b, a)
    if a.dtype != b.dtype:
        if not isinstance(a.dtype, DType) or not isinstance(b.dtype, DType):
            raise IncompatibleTypeErrorImpl(a.type, b.type)
        if s.options.strict_triton:
            raise IncompatibleTypeErrorImpl(a.type, b.type)
        common = convert.computation_type(a.dtype, False, b.dtype, False)
        a, b = convert.cast(s, a, common), convert.cast(s, b, common)
    check_shape(s, (*first[:axis], first[axis] + second[axis], *first[axis + 1 :]))
    return s.emit(ops.Cat(a.handle, b.handle, axis))


def join(s: Semantic, a: Any, b: Any) -> tensor:
    """Stack two tensors along a new last axis of length 2."""
    x, y = convert.broadcast(s, to_tensor(s, a), to_tensor(s, b))
    y = _with_signedness_of(s, y, x)
    if x.dtype != y.dtype:
        raise coded(
            "unlike-types",
            ValueError(f"join takes two tensors of one dtype, got {x.dtype} and {y.dtype}"),
        )
    if shape_of(x.type):
        check_shape(s, (*shape_of(x.type), 2))
        return s.emit(ops.Join(x.handle, y.handle))
    pair = join(s, convert.splat(s, x, (1,)), convert.splat(s, y, (1,)))
    return reshape(s, pair, (2,))


def _with_signedness_of(s: Semantic, x: tensor, other: tensor) -> tensor:
    """The tensor, of integers as wide as those of another, with their signedness."""
    one, two = x.dtype, other.dtype
    both = one.is_int() and two.is_int() and one.primitive_bitwidth == two.primitive_bitwidth
    return convert.bitcast(s, x, two) if both else x


def split(s: Semantic, x: tensor) -> tuple:
    """The two slices along a last axis of length 2; scalars for shape [2]."""
    shape = shape_of(x.type)
    last = shape[-1] if shape else 1
    if last != 2:
        raise ValueError(f"expected last dimension to be 2 for split, got {last}")
    op = s.builder.insert(ops.Split(x.handle))
    return tuple([tensor(r) for r in op.results])


def interleave(s: Semantic, a: Any, b: Any) -> tensor:
    """Interleave along the last axis: a0, b0, a1, b1, …"""
    pair = join(s, a, b)
    shape = shape_of(pair.type)
    return pair if len(shape) == 1 else reshape(s, pair, (*shape[:-2], 2 * shape[-2]))


def flip(s: Semantic, x: tensor, dim: Any) -> tensor:
    """Reverse along `dim`, the last axis by default."""
    rank = len(shape_of(x.type))
    by_default = plain(dim) is None and not s.options.strict_triton
    axis = rank - 1 if by_default else compile_time_int(dim, "flip: dim")
    static_assert(-rank <= axis < rank, "flip: dim must be None or in [-rank, rank)")
    return s.emit(ops.Flip(x.handle, axis % rank))


def gather(s: Semantic, src: tensor, index: tensor, axis: Any) -> tensor:
    """Gather along an axis by an index tile of the same rank."""
    if not index.dtype.is_int():
        raise ValueError("index must be an integer tensor")
    source, target = shape_of(src.type), shape_of(index.type)
    rank = len(source)
    if len(target) != rank:
        raise ValueError("source and index tensors must have the same rank")
    where = compile_time_int(axis, "gather axis")
    if not -rank <= where < rank:
        raise ValueError(f"gather axis {where} must be < source rank ({rank})")
    where %= rank
    for i, (a, b) in enumerate(zip(source, target, strict=True)):
        if i != where and a != b:
            raise ValueError(f"index dim {i} must match the corresponding source dim")
    return s.emit(ops.Gather(src.handle, index.handle, where))


def item(s: Semantic, x: tensor) -> tensor:
    """The only element of a tensor, as a scalar."""
    count = prod(shape_of(x.type))
    if count != 1:
        raise ValueError(f"item() takes a tensor of one element, got {count}")
    return reshape(s, x, ())


def swizzle2d(s: Semantic, i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> tuple:
    """Swizzle the indices of a row-major 2-D grid: groups of `size_g` rows are traversed column by
    column.

    With L = i * size_j + j: group = L // (size_g * size_j), first = group * size_g,
    rows = min(size_i - first, size_g), r = L % (size_g * size_j); the result is
    (first + r % rows, r // rows).
    """
    linear = arith.add(s, arith.mul(s, i, size_j), j)
    group_size = arith.mul(s, size_g, size_j)
    group = arith.floordiv(s, linear, group_size)
    first = arith.mul(s, group, size_g)
    rows = arith.minimum(s, arith.sub(s, size_i, first), size_g)
    rest = arith.mod(s, linear, group_size)
    new_i = arith.add(s, first, arith.mod(s, rest, rows))
    return tuple([new_i, arith.floordiv(s, rest, rows)])


def index_along(s: Semantic, shape: Any, axis: int) -> tensor:
    """An int32 tile of the coordinates along `axis`."""
    sizes = unwrap_shape(shape)
    line = s.emit(ops.Arange(0, sizes[axis]))
    line = reshape(s, line, [d if a == axis else 1 for a, d in enumerate(sizes)])
    return convert.extend_to(s, line, sizes)
