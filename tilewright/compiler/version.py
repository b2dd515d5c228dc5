"""Which compiler this is: its version, and a hash of what it is made of."""

from __future__ import annotations

import os
import sys
import time
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

from tilewright.base.fact_cache import cached_fact
from tilewright.base.late import late

sha256 = late("hashlib:sha256")  # OpenSSL behind it takes 2 ms to load


VERSION = "0.1.0"
PACKAGE = Path(__file__).parents[1]


def hash_tree(root: Path) -> str:
    """A hash of the names and contents of the Python files below `root`.

    Contents, not times: a cache that machines share must tell them apart by what they run.
    """
    state = sha256()
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
    """`hash_tree`, cached by the files' sizes and times.

    Those change with the contents, as the time of a change is not for programs to choose. To look
    at them takes a fifth of the time of reading the files, which every process would do.
    """
    states: list[str] = []
    newest = _add_states(str(root), states)
    if abs(time.time() - newest / 1e9) < _SETTLED_SECONDS:
        return hash_tree(root)
    text = "\0".join(sorted(states)).encode("utf-8", "surrogatepass")
    depends_on = (sha256(text).hexdigest(),)
    return cached_fact("the compiler's files", depends_on, lambda: hash_tree(root))


def _add_states(folder: str, states: list[str]) -> int:
    """What changes with each Python file below a folder, in no order; gives the newest time of a
    change, in nanoseconds."""
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
