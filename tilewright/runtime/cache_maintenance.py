"""Maintenance of the disk cache: listing, verification, eviction, and packs for shipping.

    for entry in entries(disk_cache()):
        print(entry.key, entry.size, describe(entry))

All operations are safe while other processes use the folder. Readers of a removed entry keep their
open file; later look-ups miss, and the entry is rebuilt.

A pack is one file of entries, sorted by key, with their raw bytes:

    8 bytes    magic, with the format's version
    32 bytes   SHA-256 of all that follows
    entries    each: 64 bytes key, 8 bytes length, little-endian, contents

so that equal entries give equal packs. Importing a pack means running its code: the digest detects
damage, not malice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tilewright.base.fact_cache import FACT_FILE
from tilewright.compiler.artifact import METADATA_FILE
from tilewright.runtime.cache import (
    RESULTS_FILE,
    SUFFIX,
    DiskCache,
    InvalidEntry,
    decode,
    read_entry,
)

_FOLDER = re.compile("[0-9a-f]{2}")
_MAGIC = b"TWPACK01"
_HEAD = 40
_KEY_BYTES = 64

ROOM = 7 / 8
"""Eviction reduces the folder to this fraction of its bound, so that it is rarely needed."""

ABANDONED_SECONDS = 3600.0
"""Private files and locks older than this belong to writers that were killed."""


class Entry(NamedTuple):
    """An entry of the folder, which may have been removed since.

    Attributes:
        key: its key.
        path: its file.
        size: in bytes.
        used: time of last use, in seconds since 1970; see `USED_SECONDS`.
    """

    key: str
    path: Path
    size: int
    used: float


class About(NamedTuple):
    """The contents of an entry.

    Attributes:
        kind: ``kernel``, ``tuning``, ``fact`` about the machine (`base/fact_cache.py`), or ``code``
            of the runtime itself.
        name: the name of the kernel, or the subject of the fact.
        target: the target of the kernel.
    """

    kind: str
    name: str = ""
    target: str = ""


# -- listing --------------------------------------------------------------------------------------


def entries(cache: DiskCache) -> Iterator[Entry]:
    """The entries of a cache, valid or not, in no particular order."""
    for file in _files(cache, lambda name: name.endswith(SUFFIX) and not name.startswith(".")):
        with contextlib.suppress(OSError):  # removed in the meantime
            status = file.stat(follow_symlinks=False)
            key = file.name.removesuffix(SUFFIX)
            yield Entry(key, Path(file.path), status.st_size, status.st_mtime)


def _files(cache: DiskCache, matches: Callable[[str], bool]) -> Iterator[os.DirEntry[str]]:
    """The files in the subfolders, which are named by the first digits of keys."""
    if cache.root is None:
        return
    folders: list[str] = []
    with contextlib.suppress(OSError), os.scandir(cache.root) as found:  # one call, not 256
        folders += [folder.path for folder in found if _FOLDER.fullmatch(folder.name)]
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as found:
            yield from [file for file in found if matches(file.name)]


def contents(entry: Entry) -> dict[str, bytes]:
    """The files of an entry. Does not count as a use.

    Raises:
        InvalidEntry: it is invalid; says why.
        OSError: it cannot be read, or was removed.
    """
    return decode(entry.key, read_entry(entry.path, used=False))


def describe(files: dict[str, bytes]) -> About:
    """Classify the result of `contents`."""
    try:
        if RESULTS_FILE in files:
            return About("tuning", str(json.loads(files[RESULTS_FILE])["kernel"]))
        if METADATA_FILE in files:
            facts = json.loads(files[METADATA_FILE])["metadata"]
            backend, arch, _ = facts["target"]
            return About("kernel", str(facts["source_name"]), f"{backend}:{arch}".rstrip(":"))
        if FACT_FILE in files:
            return About("fact", str(json.loads(files[FACT_FILE])[0]))
    except (ValueError, KeyError, IndexError, TypeError):
        pass  # files of something else with the same names
    return About("code")


def faults(cache: DiskCache) -> Iterator[tuple[Entry, str]]:
    """The invalid entries, each with the reason."""
    for entry in sorted(entries(cache)):
        try:
            cache.path(entry.key)
            contents(entry)
        except FileNotFoundError:
            continue  # removed in the meantime
        except (InvalidEntry, OSError, ValueError) as error:
            yield entry, str(error)


# -- eviction -------------------------------------------------------------------------------------


def remove(found: Iterable[Entry]) -> int:
    """Remove entries; returns how many this process removed."""
    count = 0
    for entry in found:
        with contextlib.suppress(OSError):
            entry.path.unlink()
            count += 1
    return count


def sweep(cache: DiskCache) -> int:
    """Remove files left by killed writers and, if the folder exceeds its bound, the least recently
    used entries; returns the number of evicted entries. Does not raise OSError.

    Several processes may sweep at once: they select the same entries.
    """
    now = time.time()
    for file in _files(cache, lambda name: name.endswith((".tmp", ".lock"))):
        with contextlib.suppress(OSError):
            # A time in the future: the clock was set back since.
            if abs(now - file.stat(follow_symlinks=False).st_mtime) > ABANDONED_SECONDS:
                os.unlink(file.path)
    if not cache.bound:
        return 0
    found = list(entries(cache))
    total = sum(entry.size for entry in found)
    if total <= cache.bound:
        return 0
    going: list[Entry] = []
    for entry in sorted(found, key=lambda entry: (_last_use(entry, now), entry.key)):
        if total <= cache.bound * ROOM:
            break
        going.append(entry)
        total -= entry.size
    return remove(going)


def _last_use(entry: Entry, now: float) -> float:
    """The time of last use, for the selection. A time in the future counts as the oldest: the entry
    was not used since the clock was set back."""
    return entry.used if entry.used <= now + ABANDONED_SECONDS else 0.0


# -- packs ----------------------------------------------------------------------------------------


def pack(found: Iterable[Entry]) -> tuple[bytes, int]:
    """Pack valid entries into one file; returns its contents and the number of entries."""
    parts: dict[bytes, bytes] = {}
    for entry in found:
        with contextlib.suppress(OSError, InvalidEntry):
            content = read_entry(entry.path, used=False)
            decode(entry.key, content)
            parts[entry.key.encode().ljust(_KEY_BYTES)] = content
    body = b"".join(
        key + len(content).to_bytes(8, "little") + content for key, content in sorted(parts.items())
    )
    return _MAGIC + hashlib.sha256(body).digest() + body, len(parts)


def unpack(cache: DiskCache, content: bytes) -> tuple[int, int]:
    """Add the entries of a pack to a cache: returns how many were written, and how many existed.

    Raises:
        ValueError: the content is not a pack, or is damaged.
        OSError: the cache cannot be written.
    """
    packed = list(_parts(content))
    there = 0
    for key, entry in packed:
        if cache.get(key) is not None:
            there += 1
        elif error := cache.put_entry(key, entry):
            raise error
    return len(packed) - there, there


def _parts(content: bytes) -> Iterator[tuple[str, bytes]]:
    if content[:8] != _MAGIC:
        raise ValueError("it is not a pack of compiled kernels")
    if hashlib.sha256(content[_HEAD:]).digest() != content[8:_HEAD]:
        raise ValueError("the pack is damaged: its contents do not match its digest")
    at = _HEAD
    while at < len(content):
        key = content[at : at + _KEY_BYTES].decode().rstrip()
        at += _KEY_BYTES
        size = int.from_bytes(content[at : at + 8], "little")
        at += 8
        entry = content[at : at + size]
        at += size
        try:
            decode(key, entry)
        except InvalidEntry as error:
            raise ValueError(f"the pack's entry {key[:16]} is damaged: {error}") from None
        yield key, entry
