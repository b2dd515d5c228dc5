"""`Static`: a value that is known when a JAX program is traced, as part of a hashable key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Static:
    """A value that is known when a program is traced. Equal to others of the same type and bits.

    Attributes:
        value: an int, a float, a tuple, a function of the language, …
    """

    value: Any
    key: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", _key(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _key(value: Any) -> Any:
    if isinstance(value, float):
        return float, value.hex()
    if isinstance(value, tuple | list):
        return type(value), tuple(map(_key, value))
    try:
        hash(value)
    except TypeError:
        return type(value), repr(value)
    return type(value), value
