"""Keys of compile-time values: equal only for values that compile to the same code."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.source import JITCallable
from tilewright.ir.types import DType, Pointer, Tile
from tilewright.language.values import constexpr

COMPILE_TIME = (constexpr, JITCallable, DType, Pointer, Tile)
"""The classes of objects that are compile-time values for parameters of any kind."""


def constant_key(value: Any) -> object:
    """A hashable key of a compile-time value. A constexpr has the key of its value.

    In Python ``1 == 1.0 == True`` and ``0.0 == -0.0``, but these compile to different code:

        constant_key(2) == constant_key(tl.constexpr(2)) != constant_key(2.0)

    The text of the key identifies the value in other processes, too, unless the value is an object
    whose text is local to this one.
    """
    kind = type(value)
    if kind is int or kind is str or value is None:
        return value
    if isinstance(value, float):
        return kind, value.hex()
    if isinstance(value, constexpr):
        return constant_key(value.value)
    if isinstance(value, JITCallable):
        return "function", value.cache_key
    if isinstance(value, tuple | list):
        return kind, tuple(map(constant_key, value))
    if isinstance(value, np.generic):
        return kind, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return kind, repr(value)
    return kind, value
