"""Traversal of nested tuples, the interface of `triton._utils`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

Path = tuple[int, ...]


def get_iterable_path(iterable: Any, path: Sequence[int]) -> Any:
    """The element at a path of indices.

    >>> get_iterable_path(["a", ("b", "c")], (1, 0))
    'b'
    """
    return reduce(lambda found, index: found[index], path, iterable)


def set_iterable_path(iterable: Any, path: Sequence[int], value: Any) -> None:
    """Assign the element at a path of indices; the innermost container must be a list."""
    get_iterable_path(iterable, path[:-1])[path[-1]] = value


def find_paths_if(iterable: Any, pred: Callable[[Path, Any], bool]) -> list[Path]:
    """Paths to the leaves for which ``pred(path, leaf)`` holds; lists and tuples are traversed.

    >>> find_paths_if(["D", ("", "D")], lambda _, leaf: leaf == "D")
    [(0,), (1, 1)]
    """
    return list(_paths(iterable, pred, ()))


def _paths(value: Any, pred: Callable[[Path, Any], bool], path: Path) -> Iterator[Path]:
    for i, part in enumerate(value):
        if isinstance(part, list | tuple):
            yield from _paths(part, pred, (*path, i))
        elif pred((*path, i), part):
            yield (*path, i)
