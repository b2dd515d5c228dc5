"""Which compiler this is: its version, and a hash of what it is made of."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

from tilewright.base.remembered import remembered

VERSION = "0.1.0"
PACKAGE = Path(__file__).parents[1]


def hash_tree(root: Path) -> str:
    """A hash of the names and contents of the Python files below `root`.

    Contents, not times: a cache that machines share must tell them apart by what they run.
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


_SETTLED_SECONDS = 2.0
"""What changed so lately may change again without a change of its times, which some systems count
in steps of this length."""


def hash_of_tree(root: Path) -> str:
    """`hash_tree`, remembered by the files' sizes and times.

    Those change with the contents, as the time of a change is not for programs to choose. To look
    at them takes a fifth of the time of reading the files, which every process would do.
    """
    states, newest = hashlib.sha256(), 0
    for path, status in sorted(_files(str(root))):
        newest = max(newest, status.st_ctime_ns)
        times = f"{status.st_mtime_ns}\0{status.st_ctime_ns}\0{status.st_ino}"
        states.update(f"{path}\0{status.st_size}\0{times}\0".encode("utf-8", "surrogatepass"))
    if abs(time.time() - newest / 1e9) < _SETTLED_SECONDS:
        return hash_tree(root)
    return remembered("the compiler's files", (states.hexdigest(),), lambda: hash_tree(root))


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The Python files below a folder, in no order."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path, entry.stat()
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _files(entry.path)


@cache
def compiler_key() -> str:
    """What of the compiler changes its results: its own sources, and what folds constants."""
    return " ".join(
        [
            VERSION,
            hash_of_tree(PACKAGE),
            f"{sys.implementation.name}-{sys.hexversion:x}",
            f"numpy-{np.__version__}",
            f"ml_dtypes-{ml_dtypes.__version__}",
        ]
    )
