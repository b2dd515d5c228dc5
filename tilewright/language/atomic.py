"""Accesses to memory that others may access at the same time."""

from __future__ import annotations

from typing import Any

from tilewright.language.semantic import atomic
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


@tensor_method
@builtin
def atomic_load(
    pointer: Any, mask: Any = None, sem: Any = None, scope: Any = None, *, _semantic: Any = None
) -> tensor:
    """What is in memory now, element by element as one whole; never from a cache that is stale.

    Args:
        pointer: a scalar pointer or a tile of pointers, to any number.
        mask: int1; lanes where it is false touch no memory, and give 0.
        sem: "acquire" (default): what others did before they released this value is seen after
            it; or "relaxed".
        scope: "gpu" (default), "cta" or "sys".

    Raises:
        ValueError: an argument does not fit.
    """
    return atomic.atomic_load(_semantic, pointer, mask, sem, scope)


@tensor_method
@builtin
def atomic_store(
    pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, *,
    _semantic: Any = None,
) -> None:  # fmt: skip
    """Put `val`, cast to the pointee and broadcast to the pointer, into memory.

    Args:
        pointer: a scalar pointer or a tile of pointers, to any number.
        mask: int1; lanes where it is false touch no memory.
        sem: "release" (default): who acquires this value sees what was done before it; or
            "relaxed".
        scope: "gpu" (default), "cta" or "sys".

    Raises:
        ValueError: an argument does not fit, or it points to constants.
    """
    atomic.atomic_store(_semantic, pointer, val, mask, sem, scope)


@tensor_method
@builtin
def atomic_poll(
    pointer: Any, expected_value: Any, sem: Any = None, scope: Any = None, timeout_ns: Any = None,
    *, _semantic: Any = None,
) -> tensor:  # fmt: skip
    """Wait until memory holds `expected_value`, lane by lane; whether it did, an int1.

    Who waits for another program must be sure that it runs at the same time. Interpreted programs
    run one after the other, so that there a wait without a timeout fails if it is not over at once.

    Args:
        pointer: a scalar pointer or a tile of pointers, to integers of 16, 32 or 64 bits.
        expected_value: cast to the pointee and broadcast to the pointer.
        sem: "acquire" (default) or "relaxed".
        scope: "gpu" (default), "cta" or "sys".
        timeout_ns: nanoseconds after which a lane gives up, a scalar integer; None waits for ever.

    Raises:
        ValueError: an argument does not fit.
    """
    return atomic.atomic_poll(_semantic, pointer, expected_value, sem, scope, timeout_ns)
