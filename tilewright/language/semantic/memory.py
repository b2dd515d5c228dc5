"""Loads and stores."""

from __future__ import annotations

from typing import Any

from tilewright.base.codes import coded
from tilewright.ir.types import I1, I8, Pointer, Scalar, element_of, shape_of
from tilewright.language.semantic import convert
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.convert import to_tensor
from tilewright.language.types import tensor_descriptor_type
from tilewright.language.values import composite, constexpr, tensor, unwrap
from tilewright.ops import memory as ops

CACHE_MODIFIERS = ("ca", "cg", "cs", "cv", "wb", "wt")
OF_LOADS = ("ca", "cg", "cv")
"""The modifiers that Triton has for loads; for stores it has the others, and "cg"."""
EVICTION_POLICIES = ("evict_first", "evict_last", "evict_normal")


def plain(value: Any) -> Any:
    """The Python value of a constexpr."""
    return value.value if isinstance(value, constexpr) else value


def optional_tensor(s: Semantic, value: Any) -> tensor | None:
    """A tensor, or None for None."""
    return None if plain(value) is None else to_tensor(s, value)


def cache_modifier(s: Semantic, value: Any, *, loads: bool = False) -> str:
    """The modifier without its dot: "", "ca", "cg", "cs", "cv", "wb" or "wt"; with `strict_triton`,
    one that Triton has for loads or, otherwise, for stores."""
    text = plain(value) or ""
    name = str(text).removeprefix(".")
    known = not name or name in CACHE_MODIFIERS
    if known and name and s.options.strict_triton:
        known = name == "cg" or (name in OF_LOADS) == loads
    if not known:
        raise ValueError(f"Unsupported cache modifier '{text}'")
    return name


def load_advice(s: Semantic, cache: Any, evict: Any, volatile: Any) -> tuple[str, str, bool]:
    """The attributes `cache`, `evict` and `volatile` of a load.

    The modifier "cv" does not use cached values, and implies `volatile`.
    """
    modifier = cache_modifier(s, cache, loads=True)
    return modifier, eviction_policy(evict), bool(plain(volatile)) or modifier == "cv"


def eviction_policy(value: Any) -> str:
    """The policy in the IR: "", "evict_first" or "evict_last"."""
    text = plain(value) or ""
    if text and text not in EVICTION_POLICIES:
        raise ValueError(f"Unsupported eviction policy '{text}'")
    return "" if text == "evict_normal" else text


def check_pointer(ptr: Any, function: str) -> Scalar:
    """The pointee type.

    Raises:
        ValueError: it is not a pointer.
    """
    element = ptr.dtype if isinstance(ptr, tensor) else None
    if not isinstance(element, Pointer):
        shown = ptr.type if isinstance(ptr, tensor | composite) else plain(ptr)
        advice = ""
        if isinstance(shown, tensor_descriptor_type):
            advice = f"; a descriptor has methods, such as `desc.{function}(offsets…)`"
        raise coded(
            "not-a-pointer", ValueError(f"Unsupported ptr type {shown} in `tl.{function}`{advice}")
        )
    return element.element_ty


def check_mask(mask: tensor | None) -> None:
    if mask is not None and element_of(mask.type) is not I1:
        raise coded("mask-type", ValueError("Mask must have boolean scalar type"))


def check_scalar_pointer(ptr: tensor, **others: tensor | None) -> None:
    """Raise ValueError if a scalar pointer is combined with a tile as mask or value."""
    if shape_of(ptr.type):
        return
    for name, value in others.items():
        if value is not None and shape_of(value.type):
            message = f"{name.capitalize()} argument cannot be block type if pointer argument is "
            raise coded("tile-through-scalar-pointer", ValueError(f"{message}not a block"))


def _check_block_pointer_options(boundary_check: Any, padding_option: Any) -> None:
    # `boundary_check=(0)` is not a tuple but 0, which Triton takes as none.
    if plain(padding_option) or unwrap(boundary_check) not in (None, (), [], 0):
        raise ValueError(
            "`padding_option` or `boundary_check` argument is not supported for a tensor of "
            "pointers or a scalar pointer: its bounds are not known. They need block pointers; "
            "pass a `mask` instead"
        )


def as_bytes(s: Semantic, ptr: tensor, pointee: Scalar) -> tensor:
    """A pointer to bools as a pointer to int8, their type in memory; others are unchanged."""
    if pointee is not I1:
        return ptr
    element = ptr.dtype
    assert isinstance(element, Pointer)
    return convert.bitcast(s, ptr, Pointer(I8, element.const, element.address_space))


def load(
    s: Semantic,
    pointer: Any,
    mask: Any,
    other: Any,
    boundary_check: Any,
    padding_option: Any,
    cache: Any,
    evict: Any,
    volatile: Any,
) -> tensor:
    """Load from memory, in the common shape of pointer, mask and other."""
    pointee = check_pointer(pointer, "load")
    mask = optional_tensor(s, mask)
    if mask is None and plain(other) is not None:
        raise coded("other-without-mask", ValueError("`other` cannot be provided without `mask`"))
    _check_block_pointer_options(boundary_check, padding_option)
    check_mask(mask)
    check_scalar_pointer(pointer, mask=mask, other=other if isinstance(other, tensor) else None)
    modifiers = load_advice(s, cache, evict, volatile)
    ptr = as_bytes(s, pointer, pointee)
    if mask is not None and isinstance(other, tensor):
        other = stored_value(s, other, pointee)
        ptr, mask, other = convert.broadcast_all(s, (ptr, mask, other))
    elif mask is not None:
        ptr, mask = convert.broadcast(s, ptr, mask)
        filler = plain(other)
        other = None
        if filler is not None:
            other = stored_value(s, filler, pointee, shape_of(ptr.type))
    op = ops.Load(
        ptr.handle,
        None if mask is None else mask.handle,
        other.handle if isinstance(other, tensor) else None,
        *modifiers,
    )
    found = s.emit(op)
    return convert.cast(s, found, I1) if pointee is I1 else found


def stored_value(s: Semantic, value: Any, pointee: Scalar, shape: tuple[int, ...] = ()) -> tensor:
    """The value in its type in memory: cast to the pointee type, bools as int8 that is 0 or 1.

    A number becomes a constant of this shape; a tensor keeps its shape. Where bools are stored,
    other values are cast to int8 first, as in Triton: 0.5 and 256 are false.
    """
    element = I8 if pointee is I1 else pointee
    if convert.is_number(value):
        found = convert.number_as(s, value, element, shape)
    else:
        value = to_tensor(s, value)
        if element_of(value.type) is I1:
            return convert.cast(s, value, element)
        found = convert.cast(s, value, element)
    return convert.cast(s, convert.cast(s, found, I1), I8) if pointee is I1 else found


def check_writable(ptr: Any) -> None:
    """Raise ValueError for a const pointer, a tensor or a block pointer."""
    if ptr.dtype.is_const():
        raise ValueError("Cannot store to a constant pointer")


def to_pointer_shape(s: Semantic, ptr: tensor, value: tensor) -> tensor:
    """Broadcast to the pointer's shape; the pointer itself is not broadcast."""
    shape = shape_of(ptr.type)
    common = convert.common_shape(shape, shape_of(value.type))
    if common != shape:
        message = f"Expected pointer argument to have shape {list(common)} but got {list(shape)}"
        raise coded("stored-shape", ValueError(message), shape=common)
    return convert.extend_to(s, value, shape)


def store(
    s: Semantic,
    pointer: Any,
    value: Any,
    mask: Any,
    boundary_check: Any,
    cache: Any,
    evict: Any,
) -> None:
    """Store the value, cast to the pointee type and broadcast to the pointer's shape."""
    pointee = check_pointer(pointer, "store")
    check_writable(pointer)
    _check_block_pointer_options(boundary_check, "")
    lanes = optional_tensor(s, mask)
    check_mask(lanes)
    check_scalar_pointer(pointer, value=value if isinstance(value, tensor) else None, mask=lanes)
    modifiers = cache_modifier(s, cache), eviction_policy(evict)
    written = to_pointer_shape(s, pointer, stored_value(s, value, pointee, shape_of(pointer.type)))
    lanes = None if lanes is None else to_pointer_shape(s, pointer, lanes)
    ptr = as_bytes(s, pointer, pointee)
    handle = None if lanes is None else lanes.handle
    s.builder.insert(ops.Store(ptr.handle, written.handle, handle, *modifiers))
