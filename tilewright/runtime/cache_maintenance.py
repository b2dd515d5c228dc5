"""Maintenance of the disk cache: contents, verification, and packs for shipping.

    for entry in entries(disk_cache().root):
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
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tilewright.base.fact_cache import FACT_FILE
from tilewright.compiler.artifact import METADATA_FILE
from tilewright.runtime.cache import RESULTS_FILE, DiskCache
from tilewright.runtime.cache_entries import Entry, InvalidEntry, decode, entries, read_entry

_MAGIC = b"TWPACK01"
_HEAD = 40
_KEY_BYTES = 64


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
    for entry in sorted(entries(cache.root)):
        try:
            cache.path(entry.key)
            contents(entry)
        except FileNotFoundError:
            continue  # removed in the meantime
        except (InvalidEntry, OSError, ValueError) as error:
            yield entry, str(error)


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
