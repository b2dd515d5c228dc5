"""The wrappers of autotuning and heuristics around a kernel, as used by frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.runtime.autotuner import Autotuner
from tilewright.runtime.heuristics import Heuristics
from tilewright.runtime.jit import JITFunction


def wrappers_of(kernel: Any) -> Iterator[Autotuner | Heuristics]:
    """The wrappers around a kernel, outermost first."""
    while isinstance(kernel, Autotuner | Heuristics):
        yield kernel
        kernel = kernel.fn


def inner_kernel(kernel: Any, taker: str) -> JITFunction:
    """The kernel in its wrappers.

    Args:
        taker: the function that was given the kernel, for the error.

    Raises:
        TypeError: it is no kernel.
    """
    inner = kernel
    for wrapper in wrappers_of(kernel):
        inner = wrapper.fn
    if not isinstance(inner, JITFunction):
        raise TypeError(
            f"{taker} takes a kernel, not {kernel!r}: decorate the function with @tilewright.jit"
        )
    return inner


def computed_names(kernel: Any) -> Iterator[str]:
    """The parameters and options that the wrappers of a kernel set."""
    for wrapper in wrappers_of(kernel):
        if isinstance(wrapper, Heuristics):
            yield from wrapper.values
        else:
            for config in wrapper.configs:
                yield from config.all_kwargs()
