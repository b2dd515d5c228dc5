"""Which compiler this is: its version, and a hash of what it is made of."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

VERSION = "0.1.0"
PACKAGE = Path(__file__).parents[1]


def hash_tree(root: Path) -> str:
    """A hash of the names and contents of the Python files below `root`.

    Contents, not times: a cache that machines share must tell them apart by what they run. Every
    process does this once, so it goes to the system without `pathlib`, in a third of the time.
    """
    state = hashlib.sha256()
    for folder, folders, files in os.walk(root):
        folders.sort()
        place = os.path.relpath(folder, root).replace(os.sep, "/")
        for name in sorted(name for name in files if name.endswith(".py")):
            content = _content(f"{folder}/{name}")
            state.update(f"{place}/{name}\0{len(content)}\0".encode())
            state.update(content)
    return state.hexdigest()


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        content = os.read(descriptor, os.fstat(descriptor).st_size + 1)
    finally:
        os.close(descriptor)
    return content


@cache
def compiler_key() -> str:
    """What of the compiler changes its results: its own sources, and what folds constants."""
    return " ".join(
        [
            VERSION,
            hash_tree(PACKAGE),
            f"{sys.implementation.name}-{sys.hexversion:x}",
            f"numpy-{np.__version__}",
            f"ml_dtypes-{ml_dtypes.__version__}",
        ]
    )
