"""Atomic memory operations."""

from __future__ import annotations

from typing import Any

from tilewright.ir.core import Value
from tilewright.ir.types import BF16, FP16, I1, I64, DType, Pointer, Scalar, int_type, shape_of
from tilewright.language.semantic import convert
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.convert import to_tensor
from tilewright.language.semantic.memory import (
    as_bytes,
    check_mask,
    check_pointer,
    check_scalar_pointer,
    check_writable,
    optional_tensor,
    plain,
    stored_value,
    to_pointer_shape,
)
from tilewright.language.values import tensor
from tilewright.ops import atomic as ops

SEMANTICS = ("acquire", "release", "acq_rel", "relaxed")
BITWISE = ("and", "or", "xor")
SCOPES = ("gpu", "cta", "sys")


def memory_order(sem: Any) -> str:
    text = plain(sem) or "acq_rel"
    if text not in SEMANTICS:
        raise ValueError(f"Memory semantic {text} not supported")
    return text


def memory_scope(scope: Any) -> str:
    text = plain(scope) or "gpu"
    if text not in SCOPES:
        raise ValueError(f"Memory semantic {text} not supported")
    return text


def _check_element(kind: str, element: Scalar) -> None:
    """Raise unless the operation is supported for this element type."""
    name = f"atomic_{kind}"
    bits = element.primitive_bitwidth
    if not isinstance(element, DType) or (element in (FP16, BF16) and kind != "add"):
        raise ValueError(f"{name} does not support {element}")
    if bits < 16 or (element.is_int() and bits == 16):
        raise ValueError(f"{name} does not support {element}")


def atomic_rmw(
    s: Semantic, kind: str, pointer: Any, value: Any, mask: Any, sem: Any, scope: Any
) -> tensor:
    """Read-modify-write of memory with `value` by `kind`; returns the old value."""
    element = check_pointer(pointer, f"atomic_{kind}")
    check_writable(pointer)
    order = memory_order(sem), memory_scope(scope)
    _check_element(kind, element)
    if element.is_floating() and kind in BITWISE:
        return _on_bits(s, kind, pointer, value, element, (mask, sem, scope))
    lanes = optional_tensor(s, mask)
    check_mask(lanes)
    operand = to_tensor(s, value)
    check_scalar_pointer(pointer, value=operand, mask=lanes)
    operand = to_pointer_shape(s, pointer, convert.cast(s, operand, element))
    lanes = None if lanes is None else to_pointer_shape(s, pointer, lanes)
    handle = None if lanes is None else lanes.handle
    return s.emit(ops.AtomicRMW(pointer.handle, operand.handle, handle, kind, *order))


def _on_bits(
    s: Semantic, kind: str, pointer: tensor, value: Any, element: Scalar, rest: tuple[Any, Any, Any]
) -> tensor:
    """A bitwise operation on the bits of floats."""
    bits = int_type(element.primitive_bitwidth, False)
    words = convert.bitcast(s, pointer, Pointer(bits))
    operand = convert.bitcast(s, convert.cast(s, to_tensor(s, value), element), bits)
    return convert.bitcast(s, atomic_rmw(s, kind, words, operand, *rest), element)


def atomic_cas(
    s: Semantic, pointer: Any, expected: Any, value: Any, sem: Any, scope: Any
) -> tensor:
    """Compare-and-swap: write `value` where memory equals `expected`; returns the old value."""
    element = check_pointer(pointer, "atomic_cas")
    check_writable(pointer)
    order = memory_order(sem), memory_scope(scope)
    if element.primitive_bitwidth not in (16, 32, 64):
        raise ValueError("atomic_cas only supports elements with width {16, 32, 64}")
    old, new = (_with_sign_of(s, to_tensor(s, v), element) for v in (expected, value))
    type_ = convert.with_dtype(pointer, element)
    for name, found in (("cmp", old), ("val", new)):
        if found.type != type_:
            raise ValueError(f"atomic_cas takes a {name} of type {type_}, got {found.type}")
    return s.emit(ops.AtomicCAS(pointer.handle, old.handle, new.handle, None, *order))


def _with_sign_of(s: Semantic, value: tensor, element: Scalar) -> tensor:
    """An integer as one of the element type, if they differ only in whether they are signed."""
    kind = value.type.scalar
    same_width = kind.primitive_bitwidth == element.primitive_bitwidth
    both = element.is_int() and kind.is_int()
    return convert.bitcast(s, value, element) if both and same_width else value


def _one_way(function: str, sem: Any, name: str) -> str:
    """The memory order of an operation that only reads, or only writes: `name` by default."""
    text = plain(sem) or name
    if text not in (name, "relaxed"):
        raise ValueError(f"{function} only supports {name} and relaxed semantics")
    return text


def _handle(value: tensor | None) -> Value | None:
    return None if value is None else value.handle


def atomic_load(s: Semantic, pointer: Any, mask: Any, sem: Any, scope: Any) -> tensor:
    """Atomic load."""
    element = _plain_element(pointer, "atomic_load")
    order = _one_way("atomic_load", sem, "acquire"), memory_scope(scope)
    lanes = optional_tensor(s, mask)
    check_mask(lanes)
    check_scalar_pointer(pointer, mask=lanes)
    lanes = None if lanes is None else to_pointer_shape(s, pointer, lanes)
    ptr = as_bytes(s, pointer, element)
    found = s.emit(ops.AtomicLoad(ptr.handle, _handle(lanes), *order))
    return convert.cast(s, found, I1) if element is I1 else found


def atomic_store(s: Semantic, pointer: Any, value: Any, mask: Any, sem: Any, scope: Any) -> None:
    """Atomic store."""
    element = _plain_element(pointer, "atomic_store")
    check_writable(pointer)
    order = _one_way("atomic_store", sem, "release"), memory_scope(scope)
    lanes = optional_tensor(s, mask)
    check_mask(lanes)
    check_scalar_pointer(pointer, value=value if isinstance(value, tensor) else None, mask=lanes)
    written = stored_value(s, value, element, shape_of(pointer.type))
    written = to_pointer_shape(s, pointer, written)
    lanes = None if lanes is None else to_pointer_shape(s, pointer, lanes)
    ptr = as_bytes(s, pointer, element)
    s.builder.insert(ops.AtomicStore(ptr.handle, written.handle, _handle(lanes), *order))


def _plain_element(pointer: Any, function: str) -> DType:
    """The pointee type, which must not be a pointer."""
    element = check_pointer(pointer, function)
    if not isinstance(element, DType):
        raise ValueError(f"{function} does not support {element}")
    return element


def atomic_poll(
    s: Semantic, pointer: Any, expected: Any, sem: Any, scope: Any, timeout: Any
) -> tensor:
    """Wait until memory equals a value; returns whether it did before the timeout."""
    element = check_pointer(pointer, "atomic_poll")
    order = _one_way("atomic_poll", sem, "acquire"), memory_scope(scope)
    if not element.is_int() or element.primitive_bitwidth not in (16, 32, 64):
        raise ValueError(
            f"atomic_poll only supports integer elements with width {{16, 32, 64}}, not {element}"
        )
    limit = _timeout(s, timeout)
    awaited = to_tensor(s, expected)
    check_scalar_pointer(pointer, expected_value=awaited)
    awaited = to_pointer_shape(s, pointer, convert.cast(s, awaited, element))
    return s.emit(ops.AtomicPoll(pointer.handle, awaited.handle, None, _handle(limit), *order))


def _timeout(s: Semantic, timeout: Any) -> tensor | None:
    """The timeout in nanoseconds as i64; None for an unbounded wait."""
    if plain(timeout) is None:
        return None
    limit = to_tensor(s, timeout)
    if shape_of(limit.type) or not limit.dtype.is_int():
        raise ValueError(f"atomic_poll timeout_ns must be a scalar integer, got {limit.type}")
    if not isinstance(timeout, tensor) and plain(timeout) < 0:
        raise ValueError(f"atomic_poll timeout_ns must be non-negative, got {plain(timeout)}")
    return convert.cast(s, limit, I64)
