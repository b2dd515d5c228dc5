"""Benchmarks of tilewright against torch in the same run: ``python -m benchmarks.cpu``.

The kernels of the examples are measured unchanged, so their folder is added to the path here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

sys.path.insert(0, str(ROOT / "examples"))


def child_environment(**settings: str) -> dict[str, str]:
    """The environment of a measured process: this process's, with additional variables.

    Caching of bytecode is enabled even if it is disabled here, because installed packages have
    cached bytecode. Otherwise a first compilation would include compiling the compiler's modules.
    """
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **settings}


def cache_bytecode() -> None:
    """Cache the bytecode of the package's modules, as installing a package does. Else the first
    process to import them would take the time, and any that begin at the same moment."""
    import compileall  # not in measured processes, for which it would be 10 ms more

    compileall.compile_dir(ROOT / "tilewright", quiet=1, workers=0)
