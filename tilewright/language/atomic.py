"""Read-modify-write of memory."""

from __future__ import annotations

from typing import Any

from tilewright.language.semantic import atomic
from tilewright.language.values import builtin, tensor, tensor_method

__all__ = [
    "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or",
    "atomic_xchg", "atomic_xor",
]  # fmt: skip


def _atomic(kind: str, meaning: str) -> Any:
    @builtin
    def function(
        pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, *,
        _semantic: Any = None,
    ) -> tensor:  # fmt: skip
        return atomic.atomic_rmw(_semantic, kind, pointer, val, mask, sem, scope)

    function.__name__ = function.__qualname__ = f"atomic_{kind}"
    function.__doc__ = f"""Atomically {meaning}; the result is what was there before.

    Args:
        pointer: a scalar pointer or a tile of pointers.
        val: cast to the pointee and broadcast to the pointer.
        mask: int1; lanes where it is false do nothing.
        sem: "acquire", "release", "acq_rel" (default) or "relaxed".
        scope: "gpu" (default), "cta" or "sys".

    Raises:
        ValueError, TypeError: the operation does not exist on the element type.
    """
    return tensor_method(function)


atomic_add = _atomic("add", "add `val` to memory")
atomic_max = _atomic("max", "replace memory by the larger of it and `val`")
atomic_min = _atomic("min", "replace memory by the smaller of it and `val`")
atomic_and = _atomic("and", "and `val` into memory")
atomic_or = _atomic("or", "or `val` into memory")
atomic_xor = _atomic("xor", "exclusive-or `val` into memory")
atomic_xchg = _atomic("xchg", "replace memory by `val`")


@tensor_method
@builtin
def atomic_cas(
    pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None, *, _semantic: Any = None
) -> tensor:
    """Atomically write `val` where memory equals `cmp`; the result is what was there before.

    `cmp` and `val` must have the pointer's shape and element type already.
    """
    return atomic.atomic_cas(_semantic, pointer, cmp, val, sem, scope)
