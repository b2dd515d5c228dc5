"""The kernel in a chain of wrappers, such as `autotune` around `heuristics` around a kernel."""

from __future__ import annotations

from typing import Any

from tilewright.runtime.jit import InterpretedFunction, JITFunction


def kernel_of(fn: Any) -> JITFunction | None:
    """The kernel in a chain of wrappers."""
    while fn is not None and not isinstance(fn, JITFunction):
        fn = getattr(fn, "fn", None)
    return fn


def python_function(fn: Any) -> Any:
    """The Python function in a chain of wrappers."""
    while hasattr(fn, "fn"):
        fn = fn.fn
    return fn


def is_interpreted(fn: Any) -> bool:
    """Whether the interpreter runs the kernel in a chain of wrappers."""
    return isinstance(kernel_of(fn), InterpretedFunction)
