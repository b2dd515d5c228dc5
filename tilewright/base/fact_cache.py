"""Facts about this machine that are slow to compute, cached on disk between processes.

    version = cached_fact("ptxas", (path, size, time), lambda: run_ptxas(path))

A cached fact is valid as long as the values on which it depends are unchanged. The runtime provides
the store (`install_fact_store`); without one, or if an entry cannot be read, the fact is
recomputed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tilewright.base.digest import sha256

FACT_FILE = "fact.json"
_BYTES_FILE = "bytes"


class FactStore(Protocol):
    """A key-value store of small sets of files. Its methods do not raise."""

    def get(self, key: str) -> dict[str, bytes] | None: ...
    def put(self, key: str, files: dict[str, bytes]) -> None: ...


T = TypeVar("T")

_store_of: Callable[[], FactStore] | None = None


def install_fact_store(store_of: Callable[[], FactStore]) -> None:
    """Set the function that returns the store. The runtime calls this once at import.

    `store_of` is called at each look-up, because the cache folder is a setting that may change.
    """
    global _store_of
    _store_of = store_of


def cached_fact(name: str, depends_on: tuple[Any, ...], compute: Callable[[], str]) -> str:
    """The result of `compute()`, from the store if it was computed for the same inputs before.

    Args:
        name: the name of the fact, part of its key.
        depends_on: everything that the result depends on, as values that JSON can represent.
        compute: called on a miss.
    """

    def read(files: dict[str, bytes]) -> str | None:
        fact = json.loads(files[FACT_FILE])[1]
        return fact if isinstance(fact, str) else None

    def files_of(fact: str) -> dict[str, bytes]:
        return {FACT_FILE: json.dumps([name, fact]).encode()}

    return _lookup(name, depends_on, compute, read, files_of)


def cached_bytes(name: str, depends_on: tuple[Any, ...], compute: Callable[[], bytes]) -> bytes:
    """Like `cached_fact`, for binary results such as machine code."""

    def files_of(content: bytes) -> dict[str, bytes]:
        return {FACT_FILE: json.dumps([name]).encode(), _BYTES_FILE: content}

    return _lookup(name, depends_on, compute, lambda files: files[_BYTES_FILE], files_of)


def _lookup(
    name: str,
    depends_on: tuple[Any, ...],
    compute: Callable[[], T],
    read: Callable[[dict[str, bytes]], T | None],
    files_of: Callable[[T], dict[str, bytes]],
) -> T:
    if _store_of is None:
        return compute()
    text = json.dumps(["fact", name, *depends_on])
    key, store = sha256(text.encode()).hexdigest(), _store_of()
    files = store.get(key)
    if files is not None:
        try:
            cached = read(files)
            if cached is not None:
                return cached
        except (ValueError, KeyError, IndexError, TypeError):
            pass  # not an entry of this format; it is overwritten below
    result = compute()
    store.put(key, files_of(result))
    return result


def file_state(path: str) -> tuple[str, int, int, int]:
    """Values that change whenever a file's contents do: path, size, mtime and ctime.

    The ctime catches programs that restore the mtime of a file they have modified.
    """
    status = os.stat(path)
    return path, status.st_size, status.st_mtime_ns, status.st_ctime_ns
