"""Printing and assertions at run time."""

from __future__ import annotations

from typing import Any

from tilewright.language import semantic
from tilewright.language.values import builtin, tensor

__all__ = ["device_assert", "device_print", "expect_zero"]


@builtin
def device_print(prefix: Any, *args: Any, hex: Any = False, _semantic: Any = None) -> None:
    """Print values at run time; in a kernel, ``print(…)`` is this function.

        tl.device_print("x", x, y)

    A GPU prints one line per element, ``pid (0, 0, 0) idx (3) x: 1.000000``; the CPU and the
    interpreter print one per tile, ``(0, 0, 0) x: [ 1.000000, 2.000000 ]``.

    Args:
        prefix: a compile-time string of printable ASCII.
        args: tensors or numbers; if there are none, only the prefix is printed, once per program.
        hex: print bits in hexadecimal.

    Raises:
        AssertionError: the prefix is invalid.
    """
    semantic.debug.device_print(_semantic, prefix, args, hex)


@builtin
def device_assert(cond: Any, msg: Any = "", mask: Any = None, *, _semantic: Any = None) -> None:
    """Assert that the condition holds for all elements; ``assert`` is this function.

    It is checked only with the option `debug` (or the setting TRITON_DEBUG). A failure raises
    RuntimeError with the location and the message: at the launch on the CPU and in the interpreter,
    at the next synchronization on a GPU.

    Args:
        cond: a tensor or number; nonzero means true.
        msg: a compile-time string.
        mask: masked-off elements are not checked.
    """
    semantic.debug.device_assert(_semantic, cond, msg, mask)


@builtin
def expect_zero(x: Any, mask: Any, *, _semantic: Any = None) -> tensor:
    """`x`, assuming that it is 0 where the mask is true; checked under the same conditions as
    `device_assert`."""
    value = semantic.to_tensor(_semantic, x)
    if _semantic.options.debug:
        is_zero = semantic.arith.eq(_semantic, value, 0)
        message = "expected zero where the mask holds"
        semantic.debug.device_assert(_semantic, is_zero, message, mask)
    return value
