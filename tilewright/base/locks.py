"""Locks that stay right when the process forks.

A fork copies the memory of all threads but only the thread that forks. What another thread held
would stay locked in the child for ever, so the child finds such locks free. `LLVM` goes further: a
fork waits for it, as what is inside LLVM while it compiles is fit for nobody else.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Any

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """A lock for ``with``, which its own thread may take again. Free in a forked child, unless the
    thread that forked holds it.

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
        """Forget a thread that the child does not have."""
        if self._owner != threading.get_ident():
            self._lock = threading.RLock()
            self._owner = self._depth = 0


LLVM = Lock()
"""Held while LLVM compiles: its options are the process's, and one set of passes serves all."""


def _llvmlite_lock() -> Any:
    """What llvmlite holds during each call of LLVM, those of finalisers too; None when it is not
    loaded."""
    loaded = sys.modules.get("llvmlite.binding.ffi")
    return getattr(getattr(loaded, "lib", None), "_lock", None)


_held: list[Any] = []
"""By the thread that is forking."""


def _hold_llvm() -> None:
    for lock in (LLVM, _llvmlite_lock()):
        if lock is not None:
            lock.__enter__()
            _held.append(lock)


def _let_go() -> None:
    while _held:
        _held.pop().__exit__(None, None, None)


def _free_all() -> None:
    for lock in list(_locks):
        lock.free_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_llvm, after_in_parent=_let_go, after_in_child=_let_go)
    os.register_at_fork(after_in_child=_free_all)
