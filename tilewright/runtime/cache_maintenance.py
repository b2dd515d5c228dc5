"""What lies in the disk cache: listed, checked, kept to a size, and packed into files to ship.

    for entry in entries(disk_cache()):
        print(entry.key, entry.size, describe(entry))

All of it is safe while other processes use the folder. What is removed under the hands of one that
reads it stays readable for that one; what it looks for afterwards is absent, and is made again.

A pack is one file of entries, in the order of their keys, each as it lies on disk:

    8 bytes    magic, with the format's version
    32 bytes   SHA-256 of all that follows
    entries    each: 64 bytes key, 8 bytes length, little-endian, contents

so that equal entries give equal packs. Who imports a pack runs its code: the digest finds damage,
not malice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tilewright.base.fact_cache import FACT_FILE
from tilewright.compiler.artifact import METADATA_FILE
from tilewright.runtime.cache import SUFFIX, DiskCache, InvalidEntry, decode, read_entry
from tilewright.runtime.tuning.results import RESULTS_FILE

_MAGIC = b"TWPACK01"
_HEAD = 40
_KEY_BYTES = 64

ROOM = 7 / 8
"""What of its bound a folder takes after entries were removed, so that this is seldom needed."""

ABANDONED_SECONDS = 3600.0
"""After so long, private files and locks are of writers that were killed."""


class Entry(NamedTuple):
    """An entry of the folder, which may be gone by now.

    Attributes:
        key: what names it.
        path: its file.
        size: in bytes.
        used: when it was used last, in seconds since 1970; see `USED_SECONDS`.
    """

    key: str
    path: Path
    size: int
    used: float


class About(NamedTuple):
    """What an entry holds.

    Attributes:
        kind: ``kernel``, ``tuning``, ``fact`` of the machine (`base/fact_cache.py`), or ``code``
            that the runtime keeps for itself.
        name: of the kernel, or what the fact is about.
        target: what it is compiled for.
    """

    kind: str
    name: str = ""
    target: str = ""


# -- what is there --------------------------------------------------------------------------------


def entries(cache: DiskCache) -> Iterator[Entry]:
    """The entries of a cache, whole or not, in no order."""
    for file in _files(cache, lambda name: name.endswith(SUFFIX) and not name.startswith(".")):
        with contextlib.suppress(OSError):  # removed meanwhile
            status = file.stat(follow_symlinks=False)
            key = file.name.removesuffix(SUFFIX)
            yield Entry(key, Path(file.path), status.st_size, status.st_mtime)


def _files(cache: DiskCache, wanted: Callable[[str], bool]) -> Iterator[os.DirEntry[str]]:
    """The files below the folders of the first digits."""
    if cache.root is None:
        return
    for digits in (f"{number:02x}" for number in range(256)):
        with contextlib.suppress(OSError), os.scandir(cache.root / digits) as found:
            yield from [file for file in found if wanted(file.name)]


def contents(entry: Entry) -> dict[str, bytes]:
    """The files of an entry. Does not count as a use.

    Raises:
        InvalidEntry: it is not believed; says why.
        OSError: it cannot be read, or is gone.
    """
    return decode(entry.key, read_entry(entry.path, used=False))


def describe(files: dict[str, bytes]) -> About:
    """What files are, as `contents` gives them."""
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
        pass  # of something else that has files of these names
    return About("code")


def faults(cache: DiskCache) -> Iterator[tuple[Entry, str]]:
    """The entries that are not believed, each with the reason."""
    for entry in sorted(entries(cache)):
        try:
            cache.path(entry.key)
            contents(entry)
        except FileNotFoundError:
            continue  # removed meanwhile
        except (InvalidEntry, OSError, ValueError) as error:
            yield entry, str(error)


# -- its size -------------------------------------------------------------------------------------


def remove(found: Iterable[Entry]) -> int:
    """Remove entries; gives how many this process did."""
    count = 0
    for entry in found:
        with contextlib.suppress(OSError):
            entry.path.unlink()
            count += 1
    return count


def sweep(cache: DiskCache) -> int:
    """Remove what killed writers left and, from a folder that takes more than its bound, what was
    used longest ago; gives how many entries went. Never raises for the disk.

    Several processes may do so at once: they agree on what goes.
    """
    now = time.time()
    for file in _files(cache, lambda name: name.endswith((".tmp", ".lock"))):
        with contextlib.suppress(OSError):
            # A time far ahead is of a clock that went backwards since.
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
    """When an entry was used last, for choosing. One that lies ahead has not been used since the
    clock went backwards, which is longest ago."""
    return entry.used if entry.used <= now + ABANDONED_SECONDS else 0.0


# -- packs ----------------------------------------------------------------------------------------


def pack(found: Iterable[Entry]) -> tuple[bytes, int]:
    """Entries as one file's contents, and how many there are. Those not believed are left out."""
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
    """Put the entries of a pack into a cache: how many were written, and how many were there.

    Raises:
        ValueError: the content is no pack, or is damaged.
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
        raise ValueError("it is no pack of compiled kernels")
    if hashlib.sha256(content[_HEAD:]).digest() != content[8:_HEAD]:
        raise ValueError("the pack is damaged: its contents do not have the digest that it names")
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
