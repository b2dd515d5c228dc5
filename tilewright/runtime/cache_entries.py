"""Entries of the disk cache: their format, and the files in its folder.

An entry is one file, ``<root>/<first two digits of the key>/<key>.twc``:

    8 bytes    magic, with the format's version
    32 bytes   SHA-256 of all that follows
    8 bytes    length of the header, little-endian
    header     JSON: {"key": ..., "files": [[name, length], ...]}
    contents   of the files, one after the other
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tilewright.base.digest import sha256

_MAGIC = b"TWCACHE1"
_DIGEST = slice(8, 40)
_LENGTH = slice(40, 48)
_HEADER = 48
_FOLDER = re.compile("[0-9a-f]{2}")

SUFFIX = ".twc"

USED_SECONDS = 3600.0
"""Resolution of the time of last use: an entry's mtime is updated at most this often."""


class InvalidEntry(Exception):
    """A file in the cache folder is invalid or not trusted; the message says why."""


class Entry(NamedTuple):
    """An entry of the folder, which may have been removed since.

    Attributes:
        key: its key.
        path: its file.
        size: in bytes.
        used: time of last use, in seconds since 1970; see `USED_SECONDS`.
    """

    key: str
    path: str
    size: int
    used: float


def encode(key: str, files: dict[str, bytes]) -> bytes:
    """Serialise an entry; deterministic."""
    sizes = [[name, len(content)] for name, content in files.items()]
    header = json.dumps({"key": key, "files": sizes}).encode()
    body = b"".join([len(header).to_bytes(8, "little"), header, *files.values()])
    return _MAGIC + sha256(body).digest() + body


def decode(key: str, entry: bytes) -> dict[str, bytes]:
    """Parse an entry.

    Raises:
        InvalidEntry: it is not a valid entry for this key.
    """
    if entry[:8] != _MAGIC:
        raise InvalidEntry("it is not an entry of this version's cache")
    if sha256(entry[_LENGTH.start :]).digest() != entry[_DIGEST]:
        raise InvalidEntry("its contents do not match its digest: torn or modified")
    at = _HEADER + int.from_bytes(entry[_LENGTH], "little")
    try:
        header = json.loads(entry[_HEADER:at])
        owner, files = header["key"], {}
        for name, size in header["files"]:
            files[name] = entry[at : at + size]
            at += size
    except (ValueError, KeyError, TypeError):
        raise InvalidEntry("its header cannot be read") from None
    if owner != key:
        raise InvalidEntry(f"it is the entry of {owner}, renamed")
    return files


def _require_trusted(status: os.stat_result) -> None:
    """Raise InvalidEntry unless this is a regular file that only this user can write."""
    if not stat.S_ISREG(status.st_mode):
        raise InvalidEntry("it is not a regular file")
    if not hasattr(os, "geteuid"):  # Windows: the access control list protects the folder
        return
    if status.st_uid != os.geteuid():
        raise InvalidEntry(f"it is owned by another user, with id {status.st_uid}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidEntry("it is writable by other users")


def read_entry(path: str, *, used: bool = True) -> bytes:
    """Read the raw bytes of an entry, for `decode`.

    Args:
        used: update the time of last use.

    Raises:
        InvalidEntry: the file is not owned by this user.
        OSError: it cannot be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        _require_trusted(status)
        # Also for a time in the future: the clock may have been set back.
        if used and abs(time.time() - status.st_mtime) > USED_SECONDS:
            with contextlib.suppress(OSError):
                os.utime(descriptor if os.utime in os.supports_fd else path)
        return file.readall()


def entries(root: str | None) -> Iterator[Entry]:
    """The entries in the folder of a cache, valid or not, in no particular order."""
    for file in files_in(root, lambda name: name.endswith(SUFFIX) and not name.startswith(".")):
        with contextlib.suppress(OSError):  # removed in the meantime
            status = file.stat(follow_symlinks=False)
            key = file.name.removesuffix(SUFFIX)
            yield Entry(key, file.path, status.st_size, status.st_mtime)


def files_in(root: str | None, matches: Callable[[str], bool]) -> Iterator[os.DirEntry[str]]:
    """The files in the subfolders, which are named by the first digits of keys."""
    if root is None:
        return
    folders: list[str] = []
    with contextlib.suppress(OSError), os.scandir(root) as found:  # one call, not 256
        folders += [folder.path for folder in found if _FOLDER.fullmatch(folder.name)]
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as found:
            yield from [file for file in found if matches(file.name)]


def remove(found: Iterable[Entry]) -> int:
    """Remove entries; returns how many this process removed."""
    count = 0
    for entry in found:
        with contextlib.suppress(OSError):
            os.unlink(entry.path)
            count += 1
    return count
