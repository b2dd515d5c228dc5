"""The identity of the compiler: its version and a hash of its sources."""

from __future__ import annotations

import os
import sys
import time
from functools import cache
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from tilewright.base.digest import sha256
from tilewright.base.fact_cache import cached_fact
from tilewright.base.lazy_import import lazy_import

if TYPE_CHECKING:
    import hashlib
else:
    hashlib = lazy_import("hashlib")

VERSION = "0.1.0"
PACKAGE = os.path.dirname(os.path.dirname(__file__))


def hash_tree(root: str | os.PathLike[str]) -> str:
    """A hash of the names and contents of the Python files below `root`.

    Contents, not mtimes, since machines with different sources may share a cache.
    """
    # Of several megabytes, so that loading OpenSSL pays.
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
"""A file modified more recently than this may change again without a new mtime, because some file
systems count in steps of this length."""


def hash_of_tree(root: str | os.PathLike[str]) -> str:
    """`hash_tree`, cached by the files' sizes and times.

    Those change with the contents, because programs cannot set the ctime. Reading them takes a
    fifth of the time of reading the files, and every process does it.
    """
    states: list[str] = []
    newest = _add_states(os.fspath(root), states)
    if abs(time.time() - newest / 1e9) < _SETTLED_SECONDS:
        return hash_tree(root)
    text = "\0".join(sorted(states)).encode("utf-8", "surrogatepass")
    depends_on = (sha256(text).hexdigest(),)
    return cached_fact("the compiler's files", depends_on, lambda: hash_tree(root))


def _add_states(folder: str, states: list[str]) -> int:
    """Append the state of each Python file below a folder, in no particular order; returns the
    newest ctime in nanoseconds."""
    newest = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                now = entry.stat()
                changed = now.st_ctime_ns
                newest = max(newest, changed)
                times = f"{now.st_mtime_ns} {changed} {now.st_ino}"
                states.append(f"{entry.path}\0{now.st_size} {times}")
            elif entry.name != "__pycache__" and entry.is_dir():
                newest = max(newest, _add_states(entry.path, states))
    return newest


@cache
def compiler_key() -> str:
    """The state that affects the results of the compiler: its sources, and the libraries that fold
    constants."""
    return " ".join(
        [
            VERSION,
            hash_of_tree(PACKAGE),
            f"{sys.implementation.name}-{sys.hexversion:x}",
            f"numpy-{np.__version__}",
            f"ml_dtypes-{ml_dtypes.__version__}",
        ]
    )
