"""Attributes that are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """`functools.cached_property` as it is from Python 3.12 on.

    Before that it holds one lock for all objects of a class while it computes: kernels would wait
    for each other, and a child forked meanwhile would wait for ever. Here threads may compute twice
    what is asked for first by several at once; all get the same result.

        class Kernel:
            @cached_property
            def text(self) -> str: ...
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self._name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        return vars(instance).setdefault(self._name, self._function(instance))
