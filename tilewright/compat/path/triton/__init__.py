"""The package `triton`, as tilewright answers to that name: see `tilewright/compat/names.py`.

This folder's parent is what a program's PYTHONPATH names. So this is the first of tilewright that
such a program loads, perhaps from a checkout that it knows nothing of.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("tilewright") is None:
    sys.path.append(str(Path(__file__).parents[4]))

from tilewright.compat import names

__version__ = names.VERSION
__all__ = names.public()  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = names.late_module

names.enter(globals())
