"""The package `triton.experimental.gluon`: Triton's language of explicit layouts.

Libraries import it beside their Triton kernels, and select its kernels for some devices only. It
can therefore be imported, and kernels can be defined; their launch raises NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.compat.experimental.gluon import language as language
from tilewright.compat.missing import Missing
from tilewright.runtime.jit import constexpr_function as constexpr_function

NAME = "triton.experimental.gluon"
WHY = "kernels in Gluon are written for Triton's layouts; use the library's kernel in Triton"


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """A placeholder for a kernel in Gluon: a launch of it raises NotImplementedError.

    Args:
        fn: the function.
        options: ignored.
    """
    if fn is None:
        return jit
    return Missing(f"the Gluon kernel {fn.__qualname__}", WHY)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {NAME!r} has no attribute {name!r}", name=name)
    return Missing(f"{NAME}.{name}", WHY)
