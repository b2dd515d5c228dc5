"""Tensor descriptors: arrays in memory with known bounds, which are accessed by blocks."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from tilewright.ir.types import (
    BF16,
    FP16,
    FP32,
    I16,
    I32,
    I64,
    U32,
    U64,
    DType,
    Pointer,
    Tile,
    shape_of,
)
from tilewright.language.block_values import tensor_descriptor
from tilewright.language.semantic import arith, blocks, convert
from tilewright.language.semantic.blocks import Axis, listed, plain
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.shape import check_shape
from tilewright.language.types import DESCRIPTOR_ALIGNMENT
from tilewright.language.values import constexpr, tensor, tuple, type_of
from tilewright.ops.arith import Hint, constant_value
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.memory import Load, Store

MAX_RANK = 5
ALIGNMENT = DESCRIPTOR_ALIGNMENT  # in bytes; also the minimum size of a block's rows
MIN_GATHER_ROWS = 8
TF32_CUT = 13  # mantissa bits of fp32 that tf32 lacks

_INTEGERS = frozenset({U32, I32, U64, I64})
# The element types of each atomic. Triton's minima and maxima of 16-bit floats require
# descriptors in hardware.
ATOMIC_TYPES: dict[str, frozenset[DType]] = {
    "add": _INTEGERS | {FP32, FP16, BF16},
    "min": _INTEGERS | {FP16, BF16},
    "max": _INTEGERS | {FP16, BF16},
    "and": _INTEGERS,
    "or": _INTEGERS,
    "xor": _INTEGERS,
}


def _expect(condition: bool, message: str) -> None:
    """Raise AssertionError, the documented error of these functions, unless the condition is
    true."""
    if not condition:
        raise AssertionError(message)


# -- creation --------------------------------------------------------------------------------------


def make_tensor_descriptor(
    s: Semantic, base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: Any
) -> tensor_descriptor:
    """See `tl.make_tensor_descriptor`."""
    element = _element_of(base)
    extents, steps, block = listed(shape), listed(strides), [plain(n) for n in listed(block_shape)]
    rank = len(extents)
    if not 1 <= rank <= MAX_RANK:
        raise ValueError(f"Expected 1 <= ndim <= {MAX_RANK} but got {rank} dimensions")
    if len(steps) != rank:
        raise ValueError(f"Expected {rank} strides but got {len(steps)}")
    if len(block) != rank:
        raise ValueError(f"Expected block_shape to have {rank} dimensions but got {len(block)}")
    check_shape(s, block)
    _check_row(block[-1], element)
    padding = blocks.padding_option(padding_option, element, "integer blocks") or "zero"
    _check_last_stride(steps[-1])
    return tensor_descriptor(
        _multiple_of(s, base, ALIGNMENT),
        tuple(blocks.integers(s, extents, I32, "shape")),
        tuple([*_strides(s, steps[:-1], element), constexpr(1)]),
        Tile((*block,), element),
        padding,
    )


def _element_of(base: Any) -> DType:
    """The pointee type of the base.

    Raises:
        ValueError: it is not a scalar pointer, or its pointee type is not supported.
    """
    if not isinstance(base, tensor) or not isinstance(base.type, Pointer):
        raise ValueError(f"Expected `base` to be a scalar pointer, got {type_of(base)}")
    element = base.type.element_ty
    if not isinstance(element, DType) or element.is_bool():
        raise ValueError(f"A tensor descriptor can't describe an array of {element}")
    return element


def _check_row(length: int, element: DType) -> None:
    size = element.itemsize
    if length * size < ALIGNMENT:
        raise ValueError(
            f"Descriptor block shape must have at least {ALIGNMENT} bytes in the last dimension, "
            f"but got {length} * {size} = {length * size} bytes"
        )


def _check_last_stride(stride: Any) -> None:
    known = constant_value(stride.handle) if isinstance(stride, tensor) else plain(stride)
    if known != 1:
        shown = stride if known is None else known
        raise ValueError(f"Tensor descriptor last dim must be 1 but got {shown}")


def _strides(s: Semantic, strides: Sequence[Any], element: DType) -> list[tensor]:
    """Strides as i64, with hints that run-time ones are multiples of 16 bytes. Where a compile-time
    stride is not, blocks are accessed without tensor copies."""
    unit = max(1, ALIGNMENT // element.itemsize)
    return [_multiple_of(s, v, unit) for v in blocks.integers(s, strides, I64, "strides")]


def _multiple_of(s: Semantic, value: tensor, unit: int) -> tensor:
    """The scalar with a hint that it is a multiple of `unit`."""
    if constant_value(value.handle) is not None:
        return value
    return s.emit(Hint(value.handle, (unit,), (0,), (0,)))


# -- blocks ----------------------------------------------------------------------------------------


def _expect_descriptor(descriptor: Any) -> None:
    if not isinstance(descriptor, tensor_descriptor):
        raise TypeError(f"expected a tensor descriptor, got {type_of(descriptor)}")


def _offset(s: Semantic, value: Any, what: str) -> tensor:
    """An index as i32.

    Raises:
        ValueError: the index has 64 bits.
    """
    found = blocks.scalar_integer(s, value, what)
    if found.dtype.primitive_bitwidth > 32:
        raise ValueError(
            f"Expected a 32-bit integer; add a `.to(tl.int32)` to {what}, which is {found.type}"
        )
    return convert.cast(s, found, I32)


def _block_at(s: Semantic, descriptor: tensor_descriptor, offsets: Any) -> list[Axis]:
    given, shape = listed(offsets), descriptor.block_type.shape
    _expect(len(given) == len(shape), f"expected {len(shape)} offsets, but got {len(given)}")
    begins = [_offset(s, v, f"offsets[{i}]") for i, v in enumerate(given)]
    return [blocks.run(s, at, n) for at, n in zip(begins, shape, strict=True)]


def _access(
    s: Semantic, descriptor: tensor_descriptor, axes: Sequence[Axis]
) -> builtins.tuple[tensor, tensor]:
    """The pointers to the elements, and the mask of those in bounds."""
    *strides, last = descriptor.strides
    steps = [*strides, convert.constant(s, plain(last), I64)]
    ptr = blocks.pointers(s, descriptor.base, steps, axes)
    inside = blocks.inside(s, descriptor.shape.values, axes, range(len(axes)))
    assert inside is not None
    return ptr, inside


def _read(s: Semantic, descriptor: tensor_descriptor, axes: Sequence[Axis]) -> tensor:
    ptr, inside = _access(s, descriptor, axes)
    fill = blocks.padding_value(s, descriptor.padding, descriptor.dtype, shape_of(ptr.type))
    found = s.emit(Load(ptr.handle, inside.handle, fill, "", "", False))
    return _rounded_to_tf32(s, found) if descriptor.round_to_tf32 else found


def _rounded_to_tf32(s: Semantic, x: tensor) -> tensor:
    """fp32 rounded to the 10 mantissa bits of tf32, to nearest even; a NaN is unchanged.

    The addition carries into the exponent where rounding does; infinities are unchanged, as their
    mantissa is 0.
    """
    bits = convert.bitcast(s, x, U32)
    odd = arith.bit_and(s, arith.shr(s, bits, TF32_CUT), 1)
    half = (1 << TF32_CUT - 1) - 1
    sum = arith.add(s, arith.add(s, bits, half, False), odd, False)
    rounded = arith.bit_and(s, sum, -(1 << TF32_CUT) % (1 << 32))
    is_number = arith.eq(s, x, x)
    return arith.where(s, is_number, convert.bitcast(s, rounded, FP32), x)


def _value(s: Semantic, descriptor: tensor_descriptor, value: Any, shape: Sequence[int]) -> tensor:
    """The value to write, cast to the element type.

    Raises:
        AssertionError: its shape is not `shape`.
    """
    found = convert.to_tensor(s, value)
    own = shape_of(found.type)
    _expect(own == (*shape,), f"expected value shape {list(shape)}, got {list(own)}")
    return convert.cast(s, found, descriptor.dtype)


def load(s: Semantic, descriptor: Any, offsets: Any) -> tensor:
    """Load the block at `offsets`; out-of-bounds elements are the padding."""
    _expect_descriptor(descriptor)
    return _read(s, descriptor, _block_at(s, descriptor, offsets))


def store(s: Semantic, descriptor: Any, offsets: Any, value: Any) -> None:
    """Store the block at `offsets`, except for out-of-bounds elements."""
    _expect_descriptor(descriptor)
    axes = _block_at(s, descriptor, offsets)
    written = _value(s, descriptor, value, descriptor.block_type.shape)
    ptr, inside = _access(s, descriptor, axes)
    s.builder.insert(Store(ptr.handle, written.handle, inside.handle, "", ""))


def atomic(s: Semantic, descriptor: tensor_descriptor, kind: str, offsets: Any, value: Any) -> None:
    """Atomically combine the block at `offsets` with a value, except for out-of-bounds elements."""
    element = descriptor.dtype
    names = ", ".join(sorted(str(e) for e in ATOMIC_TYPES[kind]))
    _expect(
        element in ATOMIC_TYPES[kind],
        f"Unsupported dtype {element}: atomic_{kind} through a descriptor takes {names}",
    )
    if kind in ("min", "max") and s.options.strict_triton:
        possible = s.options.native_descriptors or not element.is_floating()
        _expect(possible, "16-bit float types require native tma support")
    axes = _block_at(s, descriptor, offsets)
    operand = _value(s, descriptor, value, descriptor.block_type.shape)
    ptr, inside = _access(s, descriptor, axes)
    s.emit(AtomicRMW(ptr.handle, operand.handle, inside.handle, kind, "relaxed", "gpu"))


# -- rows ------------------------------------------------------------------------------------------


def _rows_at(
    s: Semantic, descriptor: tensor_descriptor, rows: Any, column: Any, verb: str
) -> list[Axis]:
    """The indices of a gather or scatter of rows."""
    shape, element = list(descriptor.block_type.shape), descriptor.dtype
    _expect(len(shape) == 2, f"descriptor must be 2D, but got {shape}")
    _expect(shape[0] == 1, f"descriptor block must have 1 row, but got {shape}")
    own = list(shape_of(rows.type)) if isinstance(rows, tensor) else []
    _expect(len(own) == 1, f"x offsets must be 1D, but got {own}")
    _expect(
        rows.dtype in (I16, I32),
        f"x offsets must have dtype int16 or int32, but got {rows.dtype}",
    )
    _expect(
        own[0] >= MIN_GATHER_ROWS,
        f"descriptor {verb} must have at least {MIN_GATHER_ROWS} rows, but got {own}",
    )
    minimum = 32 // element.primitive_bitwidth * 8
    _expect(
        shape[1] >= minimum,
        f"descriptor {verb} of {element} must have at least {minimum} columns, but got {shape[1]}",
    )
    return [Axis(None, rows), blocks.run(s, _offset(s, column, "y_offset"), shape[1])]


def gather(s: Semantic, descriptor: tensor_descriptor, rows: Any, column: Any) -> tensor:
    """Load a part of some rows, from `column`; out-of-bounds elements are the padding."""
    return _read(s, descriptor, _rows_at(s, descriptor, rows, column, "gather"))


def scatter(s: Semantic, descriptor: tensor_descriptor, value: Any, rows: Any, column: Any) -> None:
    """Store a part of some rows, from `column`, except for out-of-bounds elements."""
    axes = _rows_at(s, descriptor, rows, column, "scatter")
    written = _value(s, descriptor, value, [axis.length for axis in axes])
    ptr, inside = _access(s, descriptor, axes)
    s.builder.insert(Store(ptr.handle, written.handle, inside.handle, "", ""))
