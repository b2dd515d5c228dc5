"""The package `triton` as provided by tilewright; see `tilewright/compat/names.py`.

A program's PYTHONPATH names the parent of this folder, so this is the first module of tilewright
that such a program loads, possibly from a checkout that is not installed.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("tilewright") is None:
    sys.path.append(str(Path(__file__).parents[4]))

from tilewright.compat import compile_workers, names

__version__ = names.VERSION
__all__ = names.public()  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = names.late_name

names.enter(globals())
compile_workers.load_before_forks()
