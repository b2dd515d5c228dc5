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

    Contents, not times: a cache that machines share must tell them apart by what they run.
    """
    state = hashlib.sha256()
    for folder, folders, files in os.walk(root):
        folders.sort()
        for file in sorted(f for f in files if f.endswith(".py")):
            path = Path(folder, file)
            content = path.read_bytes()
            state.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
            state.update(content)
    return state.hexdigest()


@cache
def compiler_key() -> str:
    """What of the compiler changes its results: its own sources, and what folds constants."""
    return " ".join(
        [
            VERSION,
            hash_tree(PACKAGE),
            f"python-{sys.version}",
            f"numpy-{np.__version__}",
            f"ml_dtypes-{ml_dtypes.__version__}",
        ]
    )
