"""Tensor descriptors as launch arguments.

A descriptor is any object with `base`, `shape`, `strides`, `block_shape` and optionally `padding`
and `round_f32_to_tf32`,
such as `tilewright.tools.tensor_descriptor.TensorDescriptor`. It is passed to the kernel in parts:
the base pointer, the extents (int32) and the strides (int64).
"""

from __future__ import annotations

from typing import Any

ALIGNMENT = 16  # bytes; required of the base and of every stride but the last
EXTENT_LIMIT = 1 << 31

DESCRIPTORS: dict[type, None] = {}
"""The descriptor classes seen so far."""


def is_descriptor(value: Any) -> bool:
    """Whether an argument is a tensor descriptor."""
    return hasattr(value, "block_shape") and hasattr(value, "base")


def parts_of(value: Any) -> tuple[Any, ...]:
    """The base tensor, the extents, and the strides."""
    return value.base, *(int(n) for n in value.shape), *(int(n) for n in value.strides)


def descriptor_type(value: Any, element: str) -> str:
    """The type string, such as ``tensordesc<fp16[64, 64]>``."""
    padding = getattr(value, "padding", "zero")
    shown = "" if padding == "zero" else f",padding={padding}"
    rounded = ",round_f32_to_tf32" if getattr(value, "round_f32_to_tf32", False) else ""
    return f"tensordesc<{element}{[int(n) for n in value.block_shape]}{shown}{rounded}>"


def check_descriptor(value: Any, address: int, element_bytes: int) -> None:
    """Raise ValueError unless the descriptor has the properties that compiled kernels assume."""
    rank = len(value.block_shape)
    strides = [int(n) for n in value.strides]
    if not len(value.shape) == len(strides) == rank:
        raise ValueError(
            f"a descriptor's shape, strides and block_shape must have the same length, not "
            f"{len(value.shape)}, {len(strides)} and {rank}"
        )
    if any(not 0 <= n < EXTENT_LIMIT for n in value.shape):
        raise ValueError(f"a descriptor's extents must fit into int32, not {list(value.shape)}")
    if address % ALIGNMENT:
        raise ValueError(f"a descriptor's base must be 16-byte aligned, not at {address:#x}")
    if strides[-1] != 1 or any(n * element_bytes % ALIGNMENT for n in strides[:-1]):
        raise ValueError(
            f"a descriptor's strides must be multiples of 16 bytes, the last one 1, not {strides} "
            f"elements of {element_bytes} bytes"
        )
