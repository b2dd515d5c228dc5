"""A dictionary that calls back before an item is removed or replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ObservedDict(dict[K, V]):
    """Calls `changed()` before an item is removed or replaced. Adding an item does not call it.

    variants = ObservedDict(launcher.invalidate)
    variants.clear()        # launcher.invalidate()
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed = changed

    def __setitem__(self, key: K, value: V) -> None:
        if key in self:
            self._changed()
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        self._changed()
        super().__delitem__(key)

    def __ior__(self, other: Any) -> ObservedDict[K, V]:
        self.update(other)
        return self

    def pop(self, *args: Any) -> Any:
        self._changed()
        return super().pop(*args)

    def popitem(self) -> tuple[K, V]:
        self._changed()
        return super().popitem()

    def clear(self) -> None:
        self._changed()
        super().clear()

    def update(self, *args: Any, **kwargs: Any) -> None:
        self._changed()
        super().update(*args, **kwargs)
