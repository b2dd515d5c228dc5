"""`Static`: a value that is known when a JAX program is traced, as part of a hashable key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.frontend.constant_key import constant_key


@dataclass(frozen=True, eq=False)
class Static:
    """A value that is known when a program is traced. Equal to others of the same type and bits.

    Attributes:
        value: an int, a float, a tuple, a function of the language, …
    """

    value: Any
    key: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", constant_key(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)
