"""Who gives kernels memory of their own, where they need any.

Scratch memory on a GPU comes from the allocator that is set in the context of the launch; while
none is, from torch or the driver. No kernel is instrumented today, so none asks for a profile's.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol


class Buffer(Protocol):
    """Memory on a device."""

    def data_ptr(self) -> int: ...


class Allocator(Protocol):
    """Gives memory: so many bytes, at a multiple of the alignment, for use on a stream."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Buffer: ...


class NullAllocator:
    """Stands for none: raises RuntimeError when it is called."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Buffer:
        raise RuntimeError(
            "Kernel requires a runtime memory allocation, but no allocator was set. Use "
            "triton.set_allocator to specify an allocator."
        )


_NULL_ALLOCATOR = NullAllocator()
_allocator: ContextVar[Any] = ContextVar("_allocator", default=_NULL_ALLOCATOR)
_profile_allocator: ContextVar[Any] = ContextVar("_profile_allocator", default=_NULL_ALLOCATOR)


def set_allocator(allocator: Allocator) -> None:
    """Have kernels launched in this context take the memory that they need from `allocator`.

        tilewright.set_allocator(lambda size, align, stream: torch.empty(size, device="cuda"))

    Args:
        allocator: called with bytes, alignment and stream; what it gives has `data_ptr()`.
    """
    _allocator.set(allocator)


def chosen_allocator() -> Allocator | None:
    """The one that is set in this context; None for none."""
    allocator = _allocator.get()
    return None if isinstance(allocator, NullAllocator) else allocator


def set_profile_allocator(allocator: Allocator | None) -> None:
    """The same for memory that instrumented kernels write; None takes it back."""
    _profile_allocator.set(_NULL_ALLOCATOR if allocator is None else allocator)
