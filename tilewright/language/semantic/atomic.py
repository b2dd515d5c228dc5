"""Read-modify-write of memory."""

from __future__ import annotations

from typing import Any

from tilewright.ir.types import BF16, FP16, FP32, FP64, DType, Scalar
from tilewright.language.semantic import convert
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.convert import to_tensor
from tilewright.language.semantic.memory import (
    check_mask,
    check_pointer,
    check_scalar_pointer,
    check_writable,
    optional_tensor,
    plain,
    to_pointer_shape,
)
from tilewright.language.values import tensor
from tilewright.ops import atomic as ops

SEMANTICS = ("acquire", "release", "acq_rel", "relaxed")
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
    """Raise unless the operation exists on this element type."""
    name = f"atomic_{kind}"
    bits = element.primitive_bitwidth
    if not isinstance(element, DType) or (element in (FP16, BF16) and kind != "add"):
        raise ValueError(f"{name} does not support {element}")
    if bits < 16 or (element.is_int() and bits == 16):
        raise ValueError(f"{name} does not support {element}")
    if element.is_floating() and kind in ("and", "or", "xor"):
        raise TypeError(f"{name} not supported for dtype {element}")
    if element.is_floating() and kind in ("max", "min") and element not in (FP32, FP64):
        raise TypeError(f"{name} not supported for dtype {element}")


def atomic_rmw(
    s: Semantic, kind: str, pointer: Any, value: Any, mask: Any, sem: Any, scope: Any
) -> tensor:
    """Combine memory with `value` by `kind`; the result is what was there before."""
    element = check_pointer(pointer, f"atomic_{kind}")
    check_writable(pointer)
    order = memory_order(sem), memory_scope(scope)
    _check_element(kind, element)
    lanes = optional_tensor(s, mask)
    check_mask(lanes)
    operand = to_tensor(s, value)
    check_scalar_pointer(pointer, value=operand, mask=lanes)
    operand = to_pointer_shape(s, pointer, convert.cast(s, operand, element))
    lanes = None if lanes is None else to_pointer_shape(s, pointer, lanes)
    handle = None if lanes is None else lanes.handle
    return s.emit(ops.AtomicRMW(pointer.handle, operand.handle, handle, kind, *order))


def atomic_cas(
    s: Semantic, pointer: Any, expected: Any, value: Any, sem: Any, scope: Any
) -> tensor:
    """Write `value` where memory equals `expected`; the result is what was there before."""
    element = check_pointer(pointer, "atomic_cas")
    check_writable(pointer)
    order = memory_order(sem), memory_scope(scope)
    if element.primitive_bitwidth not in (16, 32, 64):
        raise ValueError("atomic_cas only supports elements with width {16, 32, 64}")
    old, new = to_tensor(s, expected), to_tensor(s, value)
    want = convert.with_dtype(pointer, element)
    for name, found in (("cmp", old), ("val", new)):
        if found.type != want:
            raise ValueError(f"atomic_cas takes a {name} of type {want}, got {found.type}")
    return s.emit(ops.AtomicCAS(pointer.handle, old.handle, new.handle, None, *order))
