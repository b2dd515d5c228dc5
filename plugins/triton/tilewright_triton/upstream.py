"""Triton itself in this process, for its drivers, also where `triton` is a name of tilewright.

`with upstream():` makes `import triton` import Triton, and restores the modules of that name at the
end. The block must be short: other threads see Triton's modules too.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tilewright.compat import search_path

_lock = threading.RLock()
_depth = 0
_modules: dict[str, ModuleType] = {}


def _taken() -> dict[str, ModuleType]:
    return {n: m for n, m in sys.modules.items() if n == "triton" or n.startswith("triton.")}


def _is_facade(module: ModuleType | None) -> bool:
    file = getattr(module, "__file__", None)
    return module is not None and (file is None or file.startswith(search_path() + os.sep))


def _finds_facade(finder: Any) -> bool:
    return type(finder).__module__.startswith("tilewright.")


@contextmanager
def upstream() -> Generator[None]:
    """Triton's modules under their names."""
    global _depth
    with _lock:
        if _depth or not (_is_facade(sys.modules.get("triton")) or _facade_is_installed()):
            _depth += 1
            try:
                yield
            finally:
                _depth -= 1
            return
        _depth += 1
        modules, finders, path = _taken(), list(sys.meta_path), list(sys.path)
        for name in modules:
            del sys.modules[name]
        sys.modules.update(_modules)
        sys.meta_path[:] = [f for f in finders if not _finds_facade(f)]
        sys.path[:] = [p for p in path if p != search_path()]
        try:
            yield
        finally:
            _modules.update(_taken())
            for name in _taken():
                del sys.modules[name]
            sys.modules.update(modules)
            sys.meta_path[:] = finders
            sys.path[:] = path
            _depth -= 1


def _facade_is_installed() -> bool:
    return search_path() in sys.path or any(map(_finds_facade, sys.meta_path))
