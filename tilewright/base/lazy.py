"""Attributes that are computed on first access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """`functools.cached_property` with the semantics of Python 3.12.

    Earlier versions hold one lock for all instances of a class during the computation: kernels
    would wait for each other, and a child forked meanwhile would deadlock. Here, concurrent first
    accesses may compute the value twice, but all of them return the same object.

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
