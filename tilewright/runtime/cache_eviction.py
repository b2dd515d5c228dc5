"""Eviction from the disk cache: the least recently used entries, and files of killed writers."""

from __future__ import annotations

import contextlib
import os
import time

from tilewright.runtime.cache_entries import Entry, entries, files_in, remove

ROOM = 7 / 8
"""Eviction reduces the folder to this fraction of its bound, so that it is rarely needed."""

ABANDONED_SECONDS = 3600.0
"""Private files and locks older than this belong to writers that were killed."""


def sweep(root: str | None, bound: int) -> int:
    """Remove files left by killed writers and, if the folder exceeds its bound in bytes, the least
    recently used entries; returns the number of evicted entries. Does not raise OSError.

    Several processes may sweep at once: they select the same entries.
    """
    now = time.time()
    for file in files_in(root, lambda name: name.endswith((".tmp", ".lock"))):
        with contextlib.suppress(OSError):
            # A time in the future: the clock was set back since.
            if abs(now - file.stat(follow_symlinks=False).st_mtime) > ABANDONED_SECONDS:
                os.unlink(file.path)
    if not bound:
        return 0
    found = list(entries(root))
    total = sum(entry.size for entry in found)
    if total <= bound:
        return 0
    going: list[Entry] = []
    for entry in sorted(found, key=lambda entry: (_last_use(entry, now), entry.key)):
        if total <= bound * ROOM:
            break
        going.append(entry)
        total -= entry.size
    return remove(going)


def _last_use(entry: Entry, now: float) -> float:
    """The time of last use, for the selection. A time in the future counts as the oldest: the entry
    was not used since the clock was set back."""
    return entry.used if entry.used <= now + ABANDONED_SECONDS else 0.0
