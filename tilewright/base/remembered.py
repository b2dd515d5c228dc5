"""Facts about this machine that take long to find out, kept between processes.

    version = remembered("ptxas", (path, size, time), lambda: ask(path))

A fact holds as long as what it is told by stays the same. The runtime says where facts are kept
(`install_memory`); until then they are found anew in each process, as they are when what was kept
cannot be read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

FACT_FILE = "fact.json"
_BYTES_FILE = "bytes"


class Memory(Protocol):
    """Keeps files under a key. Nothing here raises."""

    def get(self, key: str) -> dict[str, bytes] | None: ...
    def put(self, key: str, files: dict[str, bytes]) -> None: ...


T = TypeVar("T")

_memory_of: Callable[[], Memory] | None = None


def install_memory(memory_of: Callable[[], Memory]) -> None:
    """Say where facts are kept; called once, by the runtime. It is asked each time."""
    global _memory_of
    _memory_of = memory_of


def remembered(what: str, told_by: tuple[Any, ...], find: Callable[[], str]) -> str:
    """What `find` gives, or gave when it was last asked in the same circumstances.

    Args:
        what: names the fact.
        told_by: the circumstances: plain values, on which alone it depends.
    """

    def read(files: dict[str, bytes]) -> str | None:
        fact = json.loads(files[FACT_FILE])[1]
        return fact if isinstance(fact, str) else None

    def files_of(fact: str) -> dict[str, bytes]:
        return {FACT_FILE: json.dumps([what, fact]).encode()}

    return _recalled(what, told_by, find, read, files_of)


def remembered_bytes(what: str, told_by: tuple[Any, ...], make: Callable[[], bytes]) -> bytes:
    """Like `remembered`, for bytes that are made, such as machine code."""

    def files_of(made: bytes) -> dict[str, bytes]:
        return {FACT_FILE: json.dumps([what]).encode(), _BYTES_FILE: made}

    return _recalled(what, told_by, make, lambda files: files[_BYTES_FILE], files_of)


def _recalled(
    what: str,
    told_by: tuple[Any, ...],
    find: Callable[[], T],
    read: Callable[[dict[str, bytes]], T | None],
    files_of: Callable[[T], dict[str, bytes]],
) -> T:
    if _memory_of is None:
        return find()
    name = json.dumps(["fact", what, *told_by])
    key, memory = hashlib.sha256(name.encode()).hexdigest(), _memory_of()
    files = memory.get(key)
    if files is not None:
        try:
            found = read(files)
            if found is not None:
                return found
        except (ValueError, KeyError, IndexError, TypeError):
            pass  # written by something else; it will be replaced
    found = find()
    memory.put(key, files_of(found))
    return found


def file_state(path: str) -> tuple[str, int, int, int]:
    """What changes when a file does: its path, size, time of change, and the time when that was
    set, which no program chooses."""
    status = os.stat(path)
    return path, status.st_size, status.st_mtime_ns, status.st_ctime_ns
