"""Memory that ends at a page that cannot be accessed: an access beyond it ends the process.

Code that reads more than its program does, as by a vector that is longer than the array, yields the
same results, and is found here only.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tests.arrays import copied


@cache
def _protect() -> Any:
    """The system's function `mprotect`."""
    function = ctypes.CDLL(None).mprotect
    function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return function


def fenced_copy(array: Any, modulus: int = 16) -> Any:
    """A copy of an array that ends at an inaccessible page, but for fewer bytes than `modulus`: its
    address is congruent to that of the array, as kernels may be compiled for an alignment."""
    pages = -(-(array.nbytes + modulus) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, pages + mmap.PAGESIZE), np.uint8)
    assert _protect()(memory.ctypes.data + pages, mmap.PAGESIZE, 0) == 0
    start = pages - array.nbytes
    start -= (start - array.ctypes.data) % modulus
    found = np.ndarray(array.shape, array.dtype, memory.data, start, array.strides)
    found[...] = array
    return found


def fenced(args: Sequence[Any]) -> list[Any]:
    """Copies of the arguments, as by `copied`, in such memory. Those that were placed in a larger
    array keep their place in a cache line."""
    whole = {id(arg) for arg in args}
    return copied(args, lambda root: fenced_copy(root, 16 if id(root) in whole else 64))
