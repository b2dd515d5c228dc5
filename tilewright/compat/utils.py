"""Nested tuples and names of element types, the interface of `triton._utils`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

from tilewright.ir.types import BY_NAME, BY_SHORT
from tilewright.language.types import CANONICAL_NAMES, canonical_name
from tilewright.language.types import validate_block_shape as validate_block_shape

Path = tuple[int, ...]


def get_iterable_path(iterable: Any, path: Sequence[int]) -> Any:
    """The element at a path of indices.

    >>> get_iterable_path(["a", ("b", "c")], (1, 0))
    'b'
    """
    return reduce(lambda found, index: found[index], path, iterable)


def set_iterable_path(iterable: Any, path: Sequence[int], val: Any) -> None:
    """Assign the element at a path of indices; the innermost container must be a list."""
    get_iterable_path(iterable, path[:-1])[path[-1]] = val


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


def apply_with_path(value: Any, fn: Callable[[Path, Any], None]) -> None:
    """Call ``fn(path, leaf)`` for each leaf; lists and tuples are traversed."""
    for path in find_paths_if(value, lambda _path, _leaf: True):
        fn(path, get_iterable_path(value, path))


def is_iterable(x: Any) -> bool:
    """Whether this is a list or a tuple."""
    return isinstance(x, list | tuple)


def is_namedtuple(val: Any) -> bool:
    """Whether this is the class of a named tuple."""
    return isinstance(val, type) and issubclass(val, tuple) and hasattr(val, "_fields")


def is_power_of_two(x: int) -> bool:
    """Whether at most one bit is set."""
    return x & (x - 1) == 0


def canonicalize_dtype(dtype: Any) -> str:
    """The short name of an element type.

    >>> canonicalize_dtype("torch.float32"), canonicalize_dtype("half")
    ('fp32', 'fp16')
    """
    return canonical_name(str(dtype).rpartition(".")[2])


def canonicalize_ptr_dtype(dtype: Any, is_const: bool) -> str:
    """The type string of a pointer to elements of a type.

    >>> canonicalize_ptr_dtype("fp16", True)
    '*kfp16'
    """
    return f"*{'k' if is_const else ''}{canonicalize_dtype(dtype)}"


BITWIDTH_DICT = {
    name: BY_SHORT[short].primitive_bitwidth
    for name, short in [*CANONICAL_NAMES.items(), *((n, n) for n in BY_SHORT)]
} | {name: kind.primitive_bitwidth for name, kind in BY_NAME.items()}
"""Bits of an element by each name of its type."""


def get_primitive_bitwidth(dtype: str) -> int:
    """Bits of an element, by the name of its type."""
    return BITWIDTH_DICT[dtype]
