"""How fast tilewright is beside torch, measured in one run: ``python -m benchmarks.cpu``.

The kernels of the examples are measured as they stand, so their folder is on the path here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

sys.path.insert(0, str(ROOT / "examples"))


def child_environment(**settings: str) -> dict[str, str]:
    """The environment of a process that is measured: this one's, with these settings.

    It caches the bytecode of modules, as that of installed packages is, even where this process
    caches none. Otherwise a first compilation would include that of the compiler's own Python code.
    """
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **settings}
