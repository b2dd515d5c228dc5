"""Name lookup: local, captured, global and builtin names."""

from __future__ import annotations

import types
from typing import Any

import tilewright.language as tl
from tilewright.base.codes import coded
from tilewright.frontend.ast_to_ir.frame import Frame
from tilewright.frontend.dependencies import (
    is_language_object,
    is_named_tuple_class,
    unsupported_function,
)
from tilewright.frontend.source import JITCallable
from tilewright.ir.types import DType, Pointer, Tile
from tilewright.language.aggregate import is_aggregate_class
from tilewright.language.values import constexpr, wrap

_ABSENT: Any = object()

# Supported builtins of Python -> their values in kernels.
BUILTIN_NAMES: dict[str, Any] = {
    "len": len,
    "list": list,
    "range": tl.range,
    "float": float,
    "int": int,
    "isinstance": isinstance,
    "getattr": getattr,
    "hasattr": hasattr,
    "min": min,
    "max": max,
    "print": tl.device_print,
}


def lookup(frame: Frame, name: str) -> Any:
    """The value of a name: local, captured, global, builtin, in this order.

    Raises:
        NameError: the name is undefined, or a global that kernels may not read.
    """
    value = frame.names.get(name, _ABSENT)
    if value is not _ABSENT:
        return value
    value = frame.captured.get(name, _ABSENT)
    if value is _ABSENT:
        value = frame.globals.get(name, _ABSENT)
    if value is _ABSENT:
        value = BUILTIN_NAMES.get(name, _ABSENT)
        if value is _ABSENT:
            raise coded("unknown-name", NameError(f"{name} is not defined"), name=name)
        return value
    if isinstance(value, types.FunctionType) and not may_be_global(value):
        raise unsupported_function(value)
    if not (may_be_global(value) or frame.context.any_global):
        raise coded("global-variable", NameError(_global_message(name)), name=name, value=value)
    return wrap(value)


def may_be_global(value: Any) -> bool:
    """Whether kernels may read a global with this value."""
    if value is None or isinstance(value, constexpr | types.ModuleType | JITCallable):
        return True
    if isinstance(value, DType | Pointer | Tile) or is_language_object(value):
        return True
    return is_named_tuple_class(value) or is_aggregate_class(value)


def _global_message(name: str) -> str:
    return (
        f"Cannot access global variable {name} from within @jit'ed function. Kernels can only "
        "read globals that are compile-time constants, because the compiled kernel would not see a "
        f"later change. Either write `{name} = tl.constexpr(value)` (the annotation `{name}: "
        "tl.constexpr = value` alone is not enough), or pass it to the kernel as an argument. "
        "Setting TRITON_ALLOW_NON_CONSTEXPR_GLOBALS=1 switches the check off."
    )
