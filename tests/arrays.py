"""Arrays for tests: aligned ones, and blocks cut out by loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.types import FP8E4B15


def aligned(array: Any, offset: int = 0) -> Any:
    """A copy that begins `offset` bytes after a multiple of 64; tensor descriptors require 0."""
    room = np.zeros(array.nbytes + 64 + offset, np.uint8)
    start = -room.ctypes.data % 64 + offset
    found = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def copied(args: Sequence[Any], copy_of: Callable[[Any], Any] = np.copy) -> list[Any]:
    """The arguments with copies of the arrays among them, of which those that share memory still
    do; numbers are as they are."""
    roots: dict[int, Any] = {}
    found: list[Any] = []
    for arg in args:
        if not isinstance(arg, np.ndarray) or not arg.ndim:
            found.append(arg)
            continue
        root = arg
        while isinstance(root.base, np.ndarray):
            root = root.base
        copy = roots.get(id(root))
        if copy is None:
            copy = roots[id(root)] = copy_of(root)
        start = arg.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        raw = copy.ravel(order="K").view(np.uint8)
        found.append(np.ndarray(arg.shape, arg.dtype, raw.data, start, arg.strides))
    return found


def block_of(x: Any, at: tuple[int, ...], shape: tuple[int, ...], padding: Any) -> Any:
    """The block of an array that begins at an index, by loops; `padding` outside."""
    out = np.full(shape, padding, x.dtype)
    for where in np.ndindex(*shape):
        index = tuple(a + w for a, w in zip(at, where, strict=True))
        if all(0 <= i < n for i, n in zip(index, x.shape, strict=True)):
            out[where] = x[index]
    return out


def has_nan(element: Any) -> bool:
    """Whether an element type has a NaN."""
    return element.is_floating() and element != FP8E4B15
