"""The package `triton.experimental.gluon`: Triton's language of explicit layouts.

Libraries import it beside their Triton kernels, and select its kernels for some devices only. It
can therefore be imported, and kernels can be defined, tuned ones too; their launch raises
NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from tilewright.compat.experimental.gluon import language as language
from tilewright.compat.missing import Missing
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.jit import constexpr_function as constexpr_function

NAME = "triton.experimental.gluon"
WHY = "kernels in Gluon are written for Triton's layouts; use the library's kernel in Triton"


class GluonJITFunction(JITFunction):
    """A kernel in Gluon, or a function called by such kernels: wrappers of kernels may be created
    for it, such as an autotuner, and read its parameters; it cannot be launched."""

    def is_gluon(self) -> bool:
        return True

    def run(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises NotImplementedError."""
        name = self.fn.__qualname__
        raise NotImplementedError(f"the Gluon kernel {name} is not available in tilewright: {WHY}")


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Define a kernel in Gluon, of which a launch raises NotImplementedError.

    Args:
        fn: the function.
        options: those of `triton.jit`.
    """
    if fn is None:
        return partial(jit, **options)
    return GluonJITFunction(fn, **options)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {NAME!r} has no attribute {name!r}", name=name)
    return Missing(f"{NAME}.{name}", WHY)
