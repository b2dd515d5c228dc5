"""`install_as_triton`: tilewright answers to the name `triton`, here and in child processes."""

from __future__ import annotations

import sys
from pathlib import Path

from tilewright.base import knobs
from tilewright.compat.names import NAME, SEARCH_PATH, VERSION, TritonFinder

__all__ = ["VERSION", "install_as_triton", "search_path"]

# Modules that remember whether there is a `triton`, in functions that keep their first answer.
REMEMBERING = ("torch.utils._triton",)


def search_path() -> str:
    """The folder that, on PYTHONPATH, makes ``import triton`` give tilewright.

    It holds nothing but that package and the record of an installation of it, which
    `importlib.metadata` reads. It goes before a Triton that is installed.
    """
    return str(SEARCH_PATH)


def install_as_triton() -> None:
    """Make ``import triton``, and all below it, give tilewright: here and in child processes.

        import tilewright
        tilewright.install_as_triton()
        import triton                    # tilewright, also where Triton is installed
        import library_of_triton_kernels

    Call it before anything imports Triton. Processes started from now on, by whatever means, find
    it through the environment variable PYTHONPATH, unless they ignore it (``python -I``). A second
    call changes nothing.

    Raises:
        RuntimeError: Triton itself has been imported already; what uses it would not change.
    """
    present = sys.modules.get(NAME)
    file = getattr(present, "__file__", None)
    if present is not None and (file is None or SEARCH_PATH not in Path(file).parents):
        raise RuntimeError(
            f"{NAME!r} has already been imported, from {file}. Call install_as_triton() before the "
            "first import of it, also by libraries, or start the program with "
            "`python -m tilewright run`."
        )
    if not any(isinstance(finder, TritonFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TritonFinder())
    folder = search_path()
    if folder not in sys.path:
        # Not the first place: that is the script's folder, which tools replace.
        sys.path.insert(1, folder)
    knobs.prepend_python_path(folder)
    for module in [sys.modules[name] for name in REMEMBERING if name in sys.modules]:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
