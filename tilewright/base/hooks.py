"""Attributes of groups of settings (`base/knobs.py`) that have no environment variable: hooks,
chains of hooks, and aliases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload


class Hook:
    """A callback on a group of settings; None if unset. It has no environment variable and is not
    listed among the settings."""

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, group: object | None, owner: type) -> Any:
        return self if group is None else group.__dict__.get(self.name)

    def __set__(self, group: object, value: Any) -> None:
        if not callable(value):
            self.__delete__(group)
        else:
            group.__dict__[self.name] = value

    def __delete__(self, group: object) -> None:
        group.__dict__.pop(self.name, None)


class HookChain:
    """A list of callbacks that are called in order, such as those of profilers.

    Args:
        reversed: call the most recently added callback first.
        counted: a list that receives one item for each callback of this and other chains, so that
            callers can check for callbacks with one look.

    Attributes:
        calls: the callbacks.
    """

    def __init__(self, reversed: bool = False, counted: list[Any] | None = None) -> None:
        self.calls: list[Callable[..., Any]] = []
        self.reversed = reversed
        self._counted: list[Any] = [] if counted is None else counted

    def add(self, func: Callable[..., Any]) -> None:
        """Add a callback, unless it is already in the chain."""
        if func not in self.calls:
            self.calls.append(func)
            self._counted.append(func)

    def remove(self, func: Callable[..., Any]) -> None:
        """Remove a callback, if it is in the chain."""
        try:
            self.calls.remove(func)
        except ValueError:
            return
        self._counted.remove(func)

    def clear(self) -> None:
        """Remove all callbacks."""
        for func in list(self.calls):
            self.remove(func)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        for func in self.calls[::-1] if self.reversed else list(self.calls):
            func(*args, **kwargs)


class Chain:
    """A `HookChain` on a group. The chain object never changes; assigning a callback replaces its
    contents, and assigning None or `env` clears it."""

    def __init__(self, doc: str, reversed: bool = False, counted: list[Any] | None = None) -> None:
        self.__doc__ = doc
        self._chain = HookChain(reversed, counted)

    @overload
    def __get__(self, group: None, owner: type) -> Chain: ...
    @overload
    def __get__(self, group: object, owner: type) -> HookChain: ...
    def __get__(self, group: object | None, owner: type) -> Chain | HookChain:
        return self if group is None else self._chain

    def __set__(self, group: object, value: Any) -> None:
        if value is self._chain:
            return
        self._chain.clear()
        added = value.calls if isinstance(value, HookChain) else [value] if callable(value) else []
        for func in added:
            self._chain.add(func)

    def __delete__(self, group: object) -> None:
        self._chain.clear()


class Alias:
    """An alternative name of a setting of the same group."""

    def __init__(self, of: str) -> None:
        self.of = of

    def __get__(self, group: object | None, owner: type) -> Any:
        return self if group is None else getattr(group, self.of)

    def __set__(self, group: object, value: Any) -> None:
        setattr(group, self.of, value)

    def __delete__(self, group: object) -> None:
        delattr(group, self.of)
