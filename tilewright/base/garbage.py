"""Pausing Python's garbage collector while IR is built.

The objects of a module reference each other, and all are alive until the module is compiled. The
collector would traverse them repeatedly without freeing any: more than half of the compile time of
a kernel of 10,000 ops, a share that grows with the number of ops.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from tilewright.base.locks import Lock

_lock = Lock()
_pausing: list[int] = []
"""The thread of each block that is running."""
_was_enabled = False


@contextmanager
def collector_paused() -> Generator[None]:
    """Collect no cycles within the block, in any thread; may be nested, also by many threads."""
    global _was_enabled
    thread = threading.get_ident()
    with _lock:
        if not _pausing:
            _was_enabled = gc.isenabled()
        # Noted first, so that a child of a fork in between enables the collector again.
        _pausing.append(thread)
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _pausing.remove(thread)
            _resume()


def _resume() -> None:
    if not _pausing and _was_enabled:
        gc.enable()


def _after_fork_in_child() -> None:
    """The blocks of other threads do not end in the child."""
    if _pausing:
        thread = threading.get_ident()
        _pausing[:] = [other for other in _pausing if other == thread]
        _resume()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
