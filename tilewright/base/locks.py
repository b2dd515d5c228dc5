"""Locks that are safe across forks.

A fork copies the memory of all threads but only the forking thread. A lock held by another thread
would stay locked in the child forever, so these locks are released in the child. In addition, a
fork waits for `LLVM` and `IMPORTS`: the child can continue neither a compilation nor an import
that another thread has begun, and Python would let it wait for the latter forever.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Any

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """A reentrant lock for ``with``. It is free in a forked child unless the forking thread holds
    it.

        self._making = Lock()
        with self._making:
            ...
    """

    __slots__ = ("__weakref__", "_depth", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner = self._depth = 0
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(self, *_: Any) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
        self._lock.release()

    def free_in_child(self) -> None:
        """Release the lock if its owner is a thread that does not exist in the child."""
        if self._owner != threading.get_ident():
            self._lock = threading.RLock()
            self._owner = self._depth = 0


LLVM = Lock()
"""Held during LLVM compilation: LLVM's options are global, and all compilations share one set of
passes."""

IMPORTS = Lock()
"""Held during lazy imports. Never take `LLVM` in the body of a module: a fork takes it first."""


def llvmlite_lock() -> Any:
    """The lock that llvmlite holds during each call into LLVM, including finalisers; None if
    llvmlite is not loaded."""
    loaded = sys.modules.get("llvmlite.binding.ffi")
    return getattr(getattr(loaded, "lib", None), "_lock", None)


_held: list[Any] = []
"""Set by the forking thread."""


def _hold() -> None:
    # llvmlite's is last: it is held for one call at a time, also while llvmlite is imported.
    for lock in (LLVM, IMPORTS, llvmlite_lock()):
        if lock is not None:
            lock.__enter__()
            _held.append(lock)


def _release_all() -> None:
    while _held:
        _held.pop().__exit__(None, None, None)


def _free_all() -> None:
    for lock in list(_locks):
        lock.free_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_release_all, after_in_child=_release_all)
    os.register_at_fork(after_in_child=_free_all)
