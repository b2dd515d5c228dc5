"""`install_as_triton`: makes tilewright importable as `triton`, here and in child processes."""

from __future__ import annotations

import os
import sys

from tilewright.base import knobs
from tilewright.compat.names import NAME, SEARCH_PATH, VERSION, TritonFinder

__all__ = ["VERSION", "install_as_triton", "search_path"]

# Modules that cache, in memoised functions, whether `triton` is available.
REMEMBERING = ("torch.utils._triton",)


def search_path() -> str:
    """The folder that, on PYTHONPATH, makes ``import triton`` load tilewright.

    It contains only that package and the metadata of an installation of it, which
    `importlib.metadata` reads. It takes precedence over an installed Triton.
    """
    return SEARCH_PATH


def cuda_search_path() -> str:
    """The folder that, on PYTHONPATH, lets programs use CUDA's devices where torch has no GPU
    (`tilewright.compat.cuda_on_cpu`)."""
    return os.path.join(os.path.dirname(SEARCH_PATH), "cuda_path")


def install_as_triton() -> None:
    """Make ``import triton`` and its submodules load tilewright, here and in child processes.

        import tilewright
        tilewright.install_as_triton()
        import triton                    # tilewright, even if Triton is installed
        import library_of_triton_kernels

    Call it before anything imports Triton. Child processes inherit it through the environment
    variable PYTHONPATH, unless they ignore that (``python -I``). Further calls have no effect.

    Raises:
        RuntimeError: Triton itself has already been imported.
    """
    present = sys.modules.get(NAME)
    file = getattr(present, "__file__", None)
    if present is not None and (file is None or not file.startswith(SEARCH_PATH + os.sep)):
        raise RuntimeError(
            f"{NAME!r} has already been imported, from {file}. Call install_as_triton() before the "
            "first import of it, also by libraries, or start the program with "
            "`python -m tilewright run`."
        )
    if not any(isinstance(finder, TritonFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TritonFinder())
    folder = search_path()
    if folder not in sys.path:
        # Not at the front: that entry is the script's folder, which tools replace.
        sys.path.insert(1, folder)
    knobs.prepend_python_path(folder)
    for module in [sys.modules[name] for name in REMEMBERING if name in sys.modules]:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
