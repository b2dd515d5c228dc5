"""Allocators for memory that kernels need at run time.

Scratch memory on a GPU comes from the allocator set in the context of the launch, by default from
torch or the driver. The profile allocator is accepted but unused: no kernel is instrumented.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol


class Buffer(Protocol):
    """A device memory allocation."""

    def data_ptr(self) -> int: ...


class Allocator(Protocol):
    """Allocates memory of a given size and alignment for use on a stream."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Buffer: ...


class NullAllocator:
    """Represents the absence of an allocator: raises RuntimeError when called."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Buffer:
        raise RuntimeError(
            "Kernel requires a runtime memory allocation, but no allocator was set. Use "
            "triton.set_allocator to specify an allocator."
        )


_NULL_ALLOCATOR = NullAllocator()
_allocator: ContextVar[Any] = ContextVar("_allocator", default=_NULL_ALLOCATOR)
_profile_allocator: ContextVar[Any] = ContextVar("_profile_allocator", default=_NULL_ALLOCATOR)


def set_allocator(allocator: Allocator) -> None:
    """Set the allocator for memory required by kernels launched in this context.

        tilewright.set_allocator(lambda size, align, stream: torch.empty(size, device="cuda"))

    Args:
        allocator: called with size in bytes, alignment and stream; returns an object with
            `data_ptr()`.
    """
    _allocator.set(allocator)


def current_allocator() -> Allocator | None:
    """The allocator set in this context, or None."""
    allocator = _allocator.get()
    return None if isinstance(allocator, NullAllocator) else allocator


def set_profile_allocator(allocator: Allocator | None) -> None:
    """Set the allocator for memory written by instrumented kernels; None removes it."""
    _profile_allocator.set(_NULL_ALLOCATOR if allocator is None else allocator)
