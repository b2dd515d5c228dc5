"""Reductions and scans, with arbitrary combine functions and by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.codes import coded
from tilewright.base.located import error_at
from tilewright.ir.core import Op, Region
from tilewright.ir.types import BF16, FP32, I32, U32, DType, Scalar, Tile, shape_of
from tilewright.language.semantic import arith, convert
from tilewright.language.semantic.context import Semantic, static_assert
from tilewright.language.semantic.convert import compile_time_int, to_tensor
from tilewright.language.semantic.shape import index_along, plain, reshape
from tilewright.language.values import composite, tensor, tuple, type_of, unwrap
from tilewright.ops.control import Yield
from tilewright.ops.reduce import Reduce, Scan

Combine = Callable[[Sequence[tensor]], Sequence[tensor]]


def _combine_region(s: Semantic, srcs: Sequence[tensor], combine: Combine) -> Region:
    """The region that combines two elements of each source."""
    elements = [x.dtype for x in srcs]
    region = Region([*elements, *elements])
    with s.builder.combining(region):
        combined = combine([tensor(a) for a in region.args])
        if [c.type for c in combined] != elements:
            raise TypeError(
                f"the combine function returns {[str(c.type) for c in combined]}, it must return "
                f"{[str(e) for e in elements]}, the types of the elements"
            )
        s.builder.insert(Yield([c.handle for c in combined]))
    _erase_unused(region)
    for op in region:
        _check_combines_elements(op)
    return region


def _erase_unused(region: Region) -> None:
    """Erase ops whose results nothing uses: a function may compute a value only for its type."""
    for op in [*region.reversed()]:
        if op.pure and op.results and not any(result.users for result in op.results):
            op.erase()


def _check_combines_elements(op: Op) -> None:
    """Raise CompilationError if an op of a combine function computes a tile or has effects.

    A target combines as many elements at once as it likes, in any order, and in any thread.
    """
    for inner in op.walk():
        if any(isinstance(r.type, Tile) for r in inner.results):
            raise error_at(
                inner.loc,
                "a combine function computes with elements, not with tiles, such as this one of "
                f"shape {shape_of(inner.results[0].type)}",
            )
        if not inner.pure:
            raise error_at(
                inner.loc,
                "a combine function must not access memory, and have no effects: how often it runs "
                "is open",
            )


def combine_with(s: Semantic, fn: Any) -> Combine:
    """The combine function of a jit function."""

    def combine(args: Sequence[tensor]) -> Sequence[tensor]:
        result = s.inline(fn, args)
        values = result.values if isinstance(result, tuple) else [result]
        if 2 * len(values) != len(args):
            raise TypeError(
                f"the combine function returns {len(values)} values for {len(args) // 2} inputs"
            )
        for v in values:
            if not isinstance(v, tensor | bool | int | float) and not convert.is_number(v):
                shown = type_of(v) if isinstance(v, composite) else repr(unwrap(v))
                raise TypeError(f"the combine function returns {shown}, no number")
        return [
            convert.cast(s, to_tensor(s, v), a.dtype) if not isinstance(v, tensor) else v
            for v, a in zip(values, args, strict=False)
        ]

    return combine


def _same_shape(srcs: Sequence[tensor], what: str) -> None:
    if any(shape_of(x.type) != shape_of(srcs[0].type) for x in srcs):
        raise ValueError(f"all {what} inputs must have the same shape")


def reduce(
    s: Semantic, srcs: Sequence[tensor], axis: Any, combine: Combine, keep_dims: bool = False
) -> list[tensor]:
    """Reduce along `axis`, or over all elements if it is None."""
    axis = plain(axis)
    shape = shape_of(srcs[0].type)
    if axis is None:
        count = 1
        for d in shape:
            count *= d
        flat = [reshape(s, x, (count,)) for x in srcs]
        results = _reduce_axis(s, flat, 0, combine)
        kept = (1,) * len(shape)
    else:
        rank = len(shape)
        axis = compile_time_int(axis, "axis")
        if not -rank <= axis < rank:
            message = f"invalid axis {axis}. Expected {-rank} <= axis < {rank}"
            raise coded("axis", ValueError(message))
        axis %= rank
        results = _reduce_axis(s, srcs, axis, combine)
        kept = (*shape[:axis], 1, *shape[axis + 1 :])
    return [reshape(s, r, kept) for r in results] if keep_dims and shape else results


def _reduce_axis(s: Semantic, srcs: Sequence[tensor], axis: int, combine: Combine) -> list[tensor]:
    _same_shape(srcs, "reduction")
    region = _combine_region(s, srcs, combine)
    op = s.builder.insert(Reduce([x.handle for x in srcs], axis, region))
    return [tensor(r) for r in op.results]


def scan(
    s: Semantic, srcs: Sequence[tensor], axis: Any, combine: Combine, reverse: Any = False
) -> list[tensor]:
    """Inclusive scan along `axis`, from the end with `reverse`."""
    axis = compile_time_int(axis, "scan axis")
    rank = len(shape_of(srcs[0].type))
    if not -rank <= axis < rank:
        raise ValueError(f"scan axis {axis} must be < inputs rank ({rank})")
    _same_shape(srcs, "scan")
    region = _combine_region(s, srcs, combine)
    flag = bool(plain(reverse))
    op = s.builder.insert(Scan([x.handle for x in srcs], axis % rank, flag, region))
    return [tensor(r) for r in op.results]


# -- named -----------------------------------------------------------------------------------------

Pairwise = Callable[[Semantic, Any, Any], tensor]


def pairwise(s: Semantic, function: Pairwise) -> Combine:
    """The combine function of a function of two scalars."""
    return lambda args: [function(s, args[0], args[1])]


def sum_dtype(element: Scalar) -> Scalar:
    """The element type of a sum: integers have at least 32 bits."""
    if isinstance(element, DType) and element.is_int() and element.primitive_bitwidth < 32:
        return I32 if element.is_int_signed() else U32
    return element


def _for_sum(s: Semantic, x: tensor, dtype: Any) -> tensor:
    target = sum_dtype(x.dtype) if plain(dtype) is None else convert.as_dtype(dtype)
    return convert.cast(s, x, target)


def total(s: Semantic, x: tensor, axis: Any, keep_dims: Any, dtype: Any) -> tensor:
    """`tl.sum`."""
    return reduce(s, [_for_sum(s, x, dtype)], axis, pairwise(s, arith.add), plain(keep_dims))[0]


def xor_sum(s: Semantic, x: tensor, axis: Any, keep_dims: Any) -> tensor:
    static_assert(x.dtype.is_int(), "xor_sum only supported for integers")
    return reduce(s, [x], axis, pairwise(s, arith.bit_xor), plain(keep_dims))[0]


def reduce_or(s: Semantic, x: tensor, axis: Any, keep_dims: Any) -> tensor:
    static_assert(x.dtype.is_int(), "reduce_or only supported for integers")
    return reduce(s, [x], axis, pairwise(s, arith.bit_or), plain(keep_dims))[0]


def cumsum(s: Semantic, x: tensor, axis: Any, reverse: Any, dtype: Any) -> tensor:
    """`tl.cumsum`: accumulated as in `tl.sum`, but bfloat16 in fp32."""
    element = _for_sum(s, _bf16_as_fp32(s, x), dtype)
    return scan(s, [element], axis, pairwise(s, arith.add), reverse)[0]


def cumprod(s: Semantic, x: tensor, axis: Any, reverse: Any, dtype: Any) -> tensor:
    """`tl.cumprod`: in the type of `x`, so that narrow integers wrap, but bfloat16 in fp32."""
    element = _bf16_as_fp32(s, x)
    if plain(dtype) is not None:
        element = convert.cast(s, element, convert.as_dtype(dtype))
    return scan(s, [element], axis, pairwise(s, arith.mul), reverse)[0]


def _bf16_as_fp32(s: Semantic, x: tensor) -> tensor:
    return convert.cast(s, x, FP32) if x.dtype is BF16 else x


def widened(s: Semantic, x: tensor) -> tensor:
    """Widen elements narrower than 32 bits to fp32 or int32."""
    element = x.dtype
    if element.primitive_bitwidth >= 32:
        return x
    return convert.cast(s, x, FP32 if element.is_floating() else I32)


def extremum(s: Semantic, x: tensor, axis: Any, keep_dims: Any, function: Pairwise) -> tensor:
    """`tl.max` or `tl.min` without indices."""
    return reduce(s, [widened(s, x)], axis, pairwise(s, function), plain(keep_dims))[0]


def extremum_with_index(
    s: Semantic, x: tensor, axis: Any, keep_dims: Any, better: Pairwise, tie_break_left: Any
) -> list[tensor]:
    """The extremum along `axis` and its index; of equal ones the first with `tie_break_left`."""
    where = plain(axis)
    shape = shape_of(x.type)
    if not isinstance(where, int):
        raise coded(
            "needs-constant",
            ValueError("an index along an axis needs `axis`, a compile-time integer"),
        )
    rank = len(shape)
    if not -rank <= where < rank:
        message = f"invalid axis {where}. Expected {-rank} <= axis < {rank}"
        raise coded("axis", ValueError(message))
    index = index_along(s, shape, where % rank)
    left = bool(plain(tie_break_left))

    def combine(args: Sequence[tensor]) -> Sequence[tensor]:
        value1, index1, value2, index2 = args
        first = better(s, value1, value2)
        if left:
            tie = arith.bit_and(s, arith.eq(s, value1, value2), arith.lt(s, index1, index2))
            first = arith.bit_or(s, first, tie)
        value = arith.where(s, first, value1, value2)
        return [value, arith.where(s, first, index1, index2)]

    return reduce(s, [_bf16_as_fp32(s, x), index], where, combine, plain(keep_dims))


def softmax(s: Semantic, x: tensor, dim: Any, ieee: Any) -> tensor:
    """exp(x - max) / sum(exp(x - max)) along `dim`, the first axis by default; in fp32 for
    narrower floats.
    """
    if not x.dtype.is_floating():
        arith.check_dtype(x.dtype, ("fp32", "fp64"))
    axis = 0 if plain(dim) is None else plain(dim)
    top = extremum(s, x, axis, True, arith.larger)
    powers = arith.unary_math(s, arith.Exp, arith.sub(s, x, top))
    return arith.fdiv(s, powers, total(s, powers, axis, True, None), bool(plain(ieee)))
