"""Errors for invalid kernel arguments: names the argument and suggests a fix."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.spelling import similar
from tilewright.runtime.placement import leaves_of


def with_argument_name(
    error: Exception,
    kernel: str,
    signature: inspect.Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Exception:
    """Extend the error of a binder with the name of the invalid argument and a suggestion.

    Args:
        error: the error, which names the type of the invalid argument but not the parameter.
        kernel: the name of the kernel.
        args, kwargs: the arguments of the launch.
    """
    known = {k: v for k, v in kwargs.items() if k in signature.parameters}
    try:
        bound = signature.bind(*args, **known).arguments
    except TypeError:  # Python's message is right, except that a keyword may be meant for another
        unknown = [name for name in kwargs if name not in known]
        if not unknown:
            return error
        missing = [name for name in signature.parameters if name not in known]
        near = [name for other in unknown for name in similar(other, missing)]
        hint = f"; did you mean {near[0]} by {unknown[0]}?" if near else ""
        names = ", ".join(signature.parameters)
        return TypeError(f"{error}; the parameters of {kernel} are ({names}){hint}")
    for name, value in bound.items():
        if any(_is_at_fault(leaf, error) for leaf in leaves_of(value)):
            return type(error)(f"{error}: argument `{name}` of {kernel}. {_hint(value)}")
    return error


def _is_at_fault(leaf: Any, error: Exception) -> bool:
    if isinstance(error, OverflowError):
        return isinstance(leaf, int) and not -(2**63) <= leaf < 2**64
    element = getattr(leaf, "dtype", None)
    return str(error) in (
        f"failed to specialize argument of type: {type(leaf).__name__}",
        f"kernels have no element type for {element!r}",
        f"a tensor of layout {getattr(leaf, 'layout', None)} has no storage",
    )


def _hint(value: Any) -> str:
    """A hint about what to pass instead of an invalid argument."""
    if isinstance(value, int):
        return "An integer has at most 64 bits."
    if isinstance(value, list | tuple):
        return "Kernels read memory through arrays: pass numpy.asarray(…) of it."
    if str(getattr(value, "layout", "torch.strided")) != "torch.strided":
        return "Pass `.to_dense()` of it, or tensors of its indices and values."
    if getattr(value, "shape", ()):
        return (
            "Elements are integers of 8 to 64 bits, bool, float16, bfloat16, float32, float64 or "
            "fp8: convert it, or pass a view of its parts."
        )
    if hasattr(value, "item"):
        return "It is a scalar of another library: pass int(…), float(…) or bool(…) of it."
    if isinstance(value, types.MethodType | types.BuiltinMethodType):
        return f"It is a method: call it, as in `{value.__name__}()`, to pass its result."
    if type(value).__name__.lower().endswith("dtype"):
        return "Annotate the parameter as tl.constexpr, and pass an element type of tl for it."
    if isinstance(value, str | bytes | dict | set) or callable(value):
        return "Annotate the parameter as tl.constexpr if it is meant for compile time."
    return (
        "A kernel takes bool, int, float, None, tuples of these, and tensors: what has data_ptr() "
        "and dtype, __array_interface__ or __dlpack__."
    )
