"""What a kernel says while it runs."""

from __future__ import annotations

from typing import Any

from tilewright.language.semantic import arith
from tilewright.language.semantic import debug as semantic
from tilewright.language.semantic.convert import to_tensor
from tilewright.language.values import builtin, tensor

__all__ = ["device_assert", "device_print", "expect_zero"]


@builtin
def device_print(prefix: Any, *args: Any, hex: Any = False, _semantic: Any = None) -> None:
    """Print values while the kernel runs; in a kernel, ``print(…)`` is this.

        tl.device_print("x", x, y)

    On a GPU each element is a line, ``pid (0, 0, 0) idx (3) x: 1.000000``; on the CPU and in the
    interpreter a tile is one, ``(0, 0, 0) x: [ 1.000000, 2.000000 ]``.

    Args:
        prefix: a compile-time string of printable ASCII.
        args: tensors or numbers; without any, the prefix alone is printed, once a program.
        hex: print the bits.

    Raises:
        AssertionError: the prefix is no such string.
    """
    semantic.device_print(_semantic, prefix, args, hex)


@builtin
def device_assert(cond: Any, msg: Any = "", mask: Any = None, *, _semantic: Any = None) -> None:
    """End the kernel unless the condition holds in every element; ``assert`` is this.

    It is checked only with the option `debug` (or the setting TRITON_DEBUG). A failure raises
    RuntimeError with the place and the message: on the CPU and in the interpreter from the launch,
    on a GPU when the launch is next waited for.

    Args:
        cond: tensor or number; anything but 0 holds.
        msg: a compile-time string.
        mask: where it is false, the condition need not hold.
    """
    semantic.device_assert(_semantic, cond, msg, mask)


@builtin
def expect_zero(x: Any, mask: Any, *, _semantic: Any = None) -> tensor:
    """`x`, of which the author says that it is 0 wherever the mask holds; checked as
    `device_assert` is."""
    value = to_tensor(_semantic, x)
    if _semantic.options.debug:
        is_zero = arith.eq(_semantic, value, 0)
        message = "expected zero where the mask holds"
        semantic.device_assert(_semantic, is_zero, message, mask)
    return value
