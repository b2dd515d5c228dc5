"""Python's collector of reference cycles, paused while IR is built.

A module is one web of references, all of it alive until the module is compiled. The collector
would go through all of it again and again and find nothing: more than half of the time that a
kernel of 10,000 ops takes, and a part that grows with their number.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses = 0
_was_enabled = False


@contextmanager
def collector_paused() -> Generator[None]:
    """Collect no cycles within the block, in any thread; may be nested, also by many threads."""
    global _pauses, _was_enabled
    with _lock:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if _pauses == 0 and _was_enabled:
                gc.enable()
