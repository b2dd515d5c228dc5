"""Atomic memory operations."""

from __future__ import annotations

from typing import Any

from tilewright.language import semantic
from tilewright.language.values import builtin, tensor, tensor_method

__all__ = [
    "atomic_add", "atomic_and", "atomic_cas", "atomic_load", "atomic_max", "atomic_min",
    "atomic_or", "atomic_poll", "atomic_store", "atomic_xchg", "atomic_xor",
]  # fmt: skip


def _atomic(kind: str, meaning: str) -> Any:
    @builtin
    def function(
        pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, *,
        _semantic: Any = None,
    ) -> tensor:  # fmt: skip
        return semantic.atomic.atomic_rmw(_semantic, kind, pointer, val, mask, sem, scope)

    function.__name__ = function.__qualname__ = f"atomic_{kind}"
    function.__doc__ = f"""Atomically {meaning}; returns the previous value.

    Args:
        pointer: a scalar pointer or a tile of pointers.
        val: cast to the pointee type and broadcast to the pointer's shape.
        mask: int1; masked-off lanes do nothing.
        sem: "acquire", "release", "acq_rel" (default) or "relaxed".
        scope: "gpu" (default), "cta" or "sys".

    Raises:
        ValueError, TypeError: the operation is not supported for the element type.
    """
    return tensor_method(function)


atomic_add = _atomic("add", "add `val` to memory")
atomic_max = _atomic("max", "replace memory by the maximum of it and `val`")
atomic_min = _atomic("min", "replace memory by the minimum of it and `val`")
atomic_and = _atomic("and", "replace memory by the bitwise and of it and `val`")
atomic_or = _atomic("or", "replace memory by the bitwise or of it and `val`")
atomic_xor = _atomic("xor", "replace memory by the exclusive or of it and `val`")
atomic_xchg = _atomic("xchg", "replace memory by `val`")


@tensor_method
@builtin
def atomic_cas(
    pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None, *, _semantic: Any = None
) -> tensor:
    """Atomic compare-and-swap: store `val` if memory equals `cmp`; returns the previous value.

    `cmp` and `val` must have the shape and element type of the pointer.
    """
    return semantic.atomic.atomic_cas(_semantic, pointer, cmp, val, sem, scope)


@tensor_method
@builtin
def atomic_load(
    pointer: Any, mask: Any = None, sem: Any = None, scope: Any = None, *, _semantic: Any = None
) -> tensor:
    """Atomic load: each element is read as a whole, and never from a stale cache.

    Args:
        pointer: a scalar pointer or a tile of pointers, to any numeric type.
        mask: int1; masked-off lanes do not access memory and return 0.
        sem: "acquire" (default), which synchronizes with the release that stored the value; or
            "relaxed".
        scope: "gpu" (default), "cta" or "sys".

    Raises:
        ValueError: an argument is incompatible with the pointer.
    """
    return semantic.atomic.atomic_load(_semantic, pointer, mask, sem, scope)


@tensor_method
@builtin
def atomic_store(
    pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, *,
    _semantic: Any = None,
) -> None:  # fmt: skip
    """Atomic store of `val`, cast to the pointee type and broadcast to the pointer's shape.

    Args:
        pointer: a scalar pointer or a tile of pointers, to any numeric type.
        mask: int1; masked-off lanes do not access memory.
        sem: "release" (default), which synchronizes with an acquire that reads the value; or
            "relaxed".
        scope: "gpu" (default), "cta" or "sys".

    Raises:
        ValueError: an argument is incompatible with the pointer, or the pointee is const.
    """
    semantic.atomic.atomic_store(_semantic, pointer, val, mask, sem, scope)


@tensor_method
@builtin
def atomic_poll(
    pointer: Any, expected_value: Any, sem: Any = None, scope: Any = None, timeout_ns: Any = None,
    *, _semantic: Any = None,
) -> tensor:  # fmt: skip
    """Wait until memory equals `expected_value`, for each lane; returns success as an int1.

    The program waited for must be guaranteed to run. The interpreter runs programs sequentially,
    so there a wait without a timeout fails unless the condition already holds.

    Args:
        pointer: a scalar pointer or a tile of pointers, to integers of 16, 32 or 64 bits.
        expected_value: cast to the pointee type and broadcast to the pointer's shape.
        sem: "acquire" (default) or "relaxed".
        scope: "gpu" (default), "cta" or "sys".
        timeout_ns: timeout in nanoseconds, a scalar integer; None waits forever.

    Raises:
        ValueError: an argument is incompatible with the pointer.
    """
    return semantic.atomic.atomic_poll(_semantic, pointer, expected_value, sem, scope, timeout_ns)
