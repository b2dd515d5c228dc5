"""Calls of Python functions, classes and builtins, at compile time."""

from __future__ import annotations

import types
from typing import Any

from tilewright.base.codes import coded
from tilewright.frontend.ast_to_ir.expr import attribute
from tilewright.frontend.ast_to_ir.frame import Frame
from tilewright.frontend.dependencies import (
    TOLERATED_MODULES,
    is_language_object,
    unsupported_function,
)
from tilewright.ir.types import Tile
from tilewright.language.aggregate import (
    is_static_method,
)
from tilewright.language.semantic import arith
from tilewright.language.types import constexpr_type, dtype
from tilewright.language.values import (
    base_value,
    constexpr,
    is_constant,
    tensor,
    tuple,
    unwrap,
    wrap,
)


def call_python(frame: Frame, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a builtin of Python, a class, or a method of a compile-time value."""
    if fn is isinstance:
        return constexpr(_is_instance(*args))
    if fn is getattr or fn is hasattr:
        return _attribute_builtin(frame, fn, *args)
    if fn is min or fn is max:
        return _extremum(frame, fn, args)
    if fn is tensor and any(isinstance(a, base_value) for a in args):
        raise coded("tensor-class", TypeError("tl.tensor is the class of tiles, and makes none"))
    plain = [unwrap(a) for a in args]
    named = {k: unwrap(v) for k, v in kwargs.items()}
    if is_language_object(fn) and (isinstance(fn, types.FunctionType) or fn in _TAKE_PYTHON_VALUES):
        return wrap(fn(*plain, **named))
    if is_language_object(fn) or (isinstance(fn, type) and hasattr(fn, "_fields")):
        return wrap(fn(*args, **kwargs))
    if fn is list:
        return tuple(list(args[0]) if args else [])
    if fn is len:
        if isinstance(args[0], tensor):
            message = "a tensor has no len(); see its attributes `shape` and `numel`"
            raise coded("length-of-tensor", TypeError(message))
        return constexpr(len(args[0]))
    _check_callable(fn)
    if not all(is_constant(a) for a in [*args, *kwargs.values()]):
        name = getattr(fn, "__name__", fn)
        message = f"{name} is a Python function: it takes compile-time values, not run-time ones"
        raise coded("compile-time-function", TypeError(message), function=fn)
    result = wrap(fn(*plain, **named))
    return result if isinstance(result, base_value) else constexpr(result)


_TAKE_PYTHON_VALUES = (constexpr_type, dtype)


def _check_callable(fn: Any) -> None:
    if not callable(fn):
        raise coded("not-callable", TypeError(f"{fn!r} is not callable"), value=fn)
    module = getattr(fn, "__module__", None)
    if is_static_method(fn):
        return
    if isinstance(fn, types.FunctionType) and module not in TOLERATED_MODULES:
        raise unsupported_function(fn)


def _is_instance(value: Any, classes: Any) -> bool:
    """As in Triton, a compile-time value is of its Python class only: a number is an int, not a
    constexpr."""
    plain = unwrap(classes)
    if isinstance(value, constexpr):
        value = value.value
    return isinstance(value, plain) or isinstance(unwrap(value), plain)


def _attribute_builtin(frame: Frame, fn: Any, owner: Any, name: Any, *default: Any) -> Any:
    """Python's `hasattr` and `getattr`; a compile-time value has the attributes of its class."""
    name = unwrap(name)
    try:
        of_python = isinstance(owner, constexpr)
        found = wrap(getattr(owner.value, name)) if of_python else attribute(frame, owner, name)
    except AttributeError:
        if fn is hasattr:
            return constexpr(False)
        if default:
            return default[0]
        raise
    return constexpr(True) if fn is hasattr else found


def _extremum(frame: Frame, fn: Any, args: list[Any]) -> Any:
    """Python's min and max: evaluated for compile-time values, otherwise a chain of ops."""
    values = list(args[0]) if len(args) == 1 and isinstance(args[0], tuple) else args
    if len(args) == 1 and isinstance(args[0], tensor):
        message = f"Python's `{fn.__name__}` takes several values, or a tuple of them"
        raise coded("one-value", TypeError(message), function=fn)
    if all(is_constant(v) for v in values):
        plain = [unwrap(v) for v in values]
        for v in plain:
            assert v == v, "min and max of compile-time values don't take NaN"
            assert not (v == 0 and str(v) == "-0.0"), "min and max don't take -0.0"
        return constexpr(fn(*plain) if len(plain) > 1 else plain[0])
    if any(isinstance(v, tensor) and isinstance(v.type, Tile) for v in values):
        name = fn.__name__
        frame.semantic.warn(
            f"Python's `{name}` is deprecated for tiles; use `tl.{name}imum`, or `tl.{name}` to "
            "reduce one",
        )
    apply = arith.minimum if fn is min else arith.maximum
    result = values[0]
    for value in values[1:]:
        result = apply(frame.semantic, result, value)
    return result
