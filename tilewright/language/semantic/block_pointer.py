"""Block pointers: pointers to blocks of arrays, with the bounds of the array."""

from __future__ import annotations

from typing import Any

from tilewright.ir.types import I32, I64, Pointer, shape_of
from tilewright.language.block_values import block_pointer
from tilewright.language.semantic import blocks, convert
from tilewright.language.semantic.blocks import listed, plain
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.memory import (
    as_bytes,
    cache_modifier,
    check_writable,
    eviction_policy,
    load_advice,
    stored_value,
)
from tilewright.language.semantic.shape import check_shape
from tilewright.language.types import block_pointer_type
from tilewright.language.values import tensor, type_of
from tilewright.ops import memory as ops
from tilewright.ops.arith import Add


def make_block_ptr(
    s: Semantic,
    base: Any,
    shape: Any,
    strides: Any,
    offsets: Any,
    block_shape: Any,
    order: Any,
) -> block_pointer:
    """See `tl.make_block_ptr`."""
    if not isinstance(base, tensor) or not isinstance(base.type, Pointer):
        raise ValueError(
            "Expected `base` to be a pointer type (but not a block pointer type or others), got "
            f"{type_of(base)}"
        )
    block = [plain(d) for d in listed(block_shape)]
    check_shape(s, block)
    begins = _offsets(s, offsets)
    extents, steps = (
        blocks.integers(s, v, I64, n) for v, n in ((shape, "shape"), (strides, "strides"))
    )
    if not len(extents) == len(steps) == len(begins) == len(block):
        raise ValueError(
            "Expected shape/strides/offsets/block_shape to have the same length, got "
            f"{len(extents)}/{len(steps)}/{len(begins)}/{len(block)}"
        )
    axes = [plain(axis) for axis in listed(order)]
    if sorted(axes) != list(range(len(axes))):
        raise ValueError(
            f"Expected a permutation of (0, 1, ..., len(order)-1) in order, got {tuple(axes)}"
        )
    if len(axes) != len(block):
        raise ValueError(f"Expected order to have {len(block)} axes, got {len(axes)}")
    base = as_bytes(s, base, base.type.element_ty)
    type_ = block_pointer_type(base.dtype, block, axes)
    return block_pointer(type_, [base, *extents, *steps, *begins])


def _offsets(s: Semantic, offsets: Any) -> list[tensor]:
    """Offsets as i32.

    Raises:
        ValueError: an offset has 64 bits.
    """
    result: list[tensor] = []
    for i, value in enumerate(listed(offsets)):
        offset = blocks.scalar_integer(s, value, f"offsets[{i}]")
        if offset.dtype.primitive_bitwidth > 32:
            raise ValueError(
                "Block pointers only support 32 bit `offsets/block_shape`, add a `.to(tl.int32)` "
                f"or use regular indexing for 64 bit support: offsets[{i}] is {offset.type}"
            )
        result.append(convert.cast(s, offset, I32))
    return result


def advance(s: Semantic, pointer: Any, offsets: Any) -> block_pointer:
    """The block pointer advanced by `offsets` elements along each axis."""
    if not isinstance(pointer, block_pointer):
        raise ValueError(f"advance takes a block pointer, got {type_of(pointer)}")
    moves = listed(offsets)
    rank = pointer.type.rank
    if len(moves) != rank:
        raise ValueError(f"Expected {rank} offsets for a block of rank {rank}, got {len(moves)}")
    moved = [
        # An offset that does not change remains the same value, which is then not loop-carried.
        old if _is_zero(move) else s.emit(Add(old.handle, new.handle))
        for old, move, new in zip(pointer.offsets, moves, _offsets(s, moves), strict=True)
    ]
    kept = pointer.values[: 1 + 2 * rank]
    return block_pointer(pointer.type, [*kept, *moved])


def _is_zero(move: Any) -> bool:
    """Whether this is the compile-time integer 0. (A comparison would fail for tensors.)"""
    found = plain(move)
    return isinstance(found, int) and found == 0


def _checked_axes(boundary_check: Any, rank: int) -> list[int]:
    """The axes to check, normalised to [0, rank).

    Raises:
        ValueError: an axis is out of range, or repeated.
    """
    given = [plain(axis) for axis in listed(boundary_check) if plain(axis) is not None]
    axes = [axis + rank if axis < 0 else axis for axis in given]
    if any(not 0 <= axis < rank for axis in axes):
        raise ValueError(
            f"boundary_check {tuple(given)} names an axis that a block of rank {rank} lacks"
        )
    if len(set(axes)) != len(axes):
        raise ValueError(f"Duplicate dimension in `boundary_check`: {tuple(given)}")
    return sorted(axes)


def _reject_mask(mask: Any, other: Any) -> None:
    if plain(mask) is not None or plain(other) is not None:
        raise ValueError(
            "`mask` and `other` arguments cannot be specified for loading block pointers: pass "
            "`boundary_check` and `padding_option` instead"
        )


def _access(s: Semantic, pointer: block_pointer, boundary_check: Any) -> tuple[tensor, Any]:
    """The pointers to the elements, and the handle of their mask, or None."""
    shape = pointer.type.element_ty.shape
    checked = _checked_axes(boundary_check, len(shape))
    axes = [blocks.run(s, at, n) for at, n in zip(pointer.offsets, shape, strict=True)]
    ptr = blocks.pointers(s, pointer.base, pointer.strides, axes)
    mask = blocks.inside(s, pointer.extents, axes, checked)
    return ptr, None if mask is None else mask.handle


def load(
    s: Semantic,
    pointer: block_pointer,
    mask: Any,
    other: Any,
    boundary_check: Any,
    padding_option: Any,
    cache: Any,
    evict: Any,
    volatile: Any,
) -> tensor:
    """Load the block; elements outside the checked bounds are the padding."""
    _reject_mask(mask, other)
    type_ = pointer.type.element_ty
    padding = blocks.padding_option(padding_option, type_.element, "integer block pointers")
    modifiers = load_advice(s, cache, evict, volatile)
    ptr, inside = _access(s, pointer, boundary_check)
    fill = None
    if inside is not None:
        fill = blocks.padding_value(s, padding, type_.element, type_.shape)
    return s.emit(ops.Load(ptr.handle, inside, fill, *modifiers))


def store(
    s: Semantic,
    pointer: block_pointer,
    value: Any,
    mask: Any,
    boundary_check: Any,
    cache: Any,
    evict: Any,
) -> None:
    """Store the block, except for elements outside the checked bounds."""
    _reject_mask(mask, None)
    check_writable(pointer)
    block = pointer.type.element_ty
    if isinstance(value, tensor) and shape_of(value.type) not in ((), block.shape):
        raise ValueError(
            f"Block shape({list(block.shape)}) and value shape({list(shape_of(value.type))}) "
            "mismatch"
        )
    modifiers = cache_modifier(s, cache), eviction_policy(evict)
    written = stored_value(s, value, block.element, block.shape)
    ptr, inside = _access(s, pointer, boundary_check)
    written = convert.extend_to(s, written, block.shape)
    s.builder.insert(ops.Store(ptr.handle, written.handle, inside, *modifiers))
