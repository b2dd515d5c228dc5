"""The disk cache of compiled kernels, safe for many processes and for shared file systems.

An entry is one file (`runtime/cache_entries.py`). It is written to a private file and renamed, so
that readers see all of it or nothing. A file that was torn by a crash or modified fails its digest;
it counts as a miss and is overwritten. Nothing read from the cache is imported or unpickled, and an
entry that is owned or writable by another user is rejected.

The size of the folder stays near the setting `cache.size_mib`: least recently used entries are
evicted (`runtime/cache_eviction.py`). The mtime of an entry is its last use, to the hour.

Without a writable folder everything works, but nothing is cached; a warning is issued once.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import threading
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilewright.base import knobs
from tilewright.base.digest import sha256
from tilewright.base.lazy_import import lazy_import
from tilewright.base.locks import Lock
from tilewright.base.record import field, record
from tilewright.runtime.cache_entries import SUFFIX, InvalidEntry, decode, encode, read_entry

if TYPE_CHECKING:
    from tilewright.runtime import cache_eviction
else:
    cache_eviction = lazy_import("tilewright.runtime.cache_eviction")


_KEY = re.compile(r"[0-9a-f]{16,64}")

WAIT_SECONDS = 20.0
"""How long a compilation waits for another one of the same kernel before it proceeds."""

RESULTS_FILE = "autotune.json"
"""The file of an entry that is a result of tuning (`tuning/results.py`)."""

SWEEPS_PER_BOUND = 32
"""How many sweeps happen while the size of the folder's bound is written."""

USUAL_BOUND = 2 << 30
"""The size in place of the bound where there is none: files of killed writers are removed there,
too."""

_STALE_SECONDS = 120.0  # for locks of other hosts, whose processes cannot be looked up


def digest(*parts: str | bytes) -> str:
    """SHA-256 of the parts in hexadecimal; ("ab", "c") and ("a", "bc") differ."""
    state = sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        state.update(len(content).to_bytes(8, "little"))
        state.update(content)
    return state.hexdigest()


@record(eq=False, frozen=False)
class _KeyLock:
    lock: threading.RLock = field(default_factory=threading.RLock)
    users: int = 0
    depth: int = 0


class DiskCache:
    """A key-value store of sets of files on disk.

    Args:
        root: the folder, created with the first entry; None disables caching. Paths are text here:
            `pathlib` takes 3 ms to import in Python 3.11, of 20 for the launch of a cached kernel.

    Example:
        cache = DiskCache(os.path.expanduser("~/.cache/tilewright"))
        key = digest(source, target)
        with cache.compiling(key):
            files = cache.get(key)
            if files is None:
                files = compile()
                cache.put(key, files)
    """

    def __init__(self, root: str | os.PathLike[str] | None) -> None:
        self.root = None if root is None else os.fspath(root)
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._locks: dict[str, _KeyLock] = {}
        self._warned = False

    def path(self, key: str) -> str | None:
        """The file of a key, whether or not it exists; None if caching is disabled.

        Raises:
            ValueError: `key` is not 16 to 64 lower-case hexadecimal digits.
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"a cache key is 16 to 64 lower-case hexadecimal digits, not {key!r}")
        return None if self.root is None else os.path.join(self.root, key[:2], f"{key}{SUFFIX}")

    def get(self, key: str) -> dict[str, bytes] | None:
        """The files stored under `key`; None if there is no valid entry."""
        path = self.path(key)
        if path is None:
            return None
        try:
            return decode(key, read_entry(path))
        except (OSError, InvalidEntry):
            return None

    def put(self, key: str, files: dict[str, bytes]) -> None:
        """Store `files` under `key`, replacing any previous entry. Does not raise OSError."""
        error = self.try_put(key, files)
        if error is not None:
            self._warn(error)

    def try_put(self, key: str, files: dict[str, bytes]) -> OSError | None:
        """Like `put`, but returns the error instead of warning."""
        return self.put_entry(key, encode(key, files))

    def put_entry(self, key: str, entry: bytes) -> OSError | None:
        """Like `try_put`, for the raw bytes of an entry."""
        path = self.path(key)
        if path is None:
            return None
        private = _private_name(path)
        try:
            self._make_folder(path)
            _write_private(private, entry)
            os.replace(private, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(private)
            return error
        if _is_turn(key, len(entry), self.bound):
            self.sweep()
        return None

    @property
    def bound(self) -> int:
        """Approximate bound on the total size of entries in bytes; 0 for unlimited."""
        return knobs.cache.size_mib << 20

    def sweep(self) -> int:
        """Remove files left by killed writers and, if the folder exceeds its bound, the least
        recently used entries; returns the number of evicted entries. Does not raise OSError."""
        return cache_eviction.sweep(self.root, self.bound)

    def _make_folder(self, path: str) -> None:
        """Create the folder of an entry, and the root."""
        folder = os.path.dirname(path)
        if os.path.isdir(folder):
            return
        assert self.root is not None
        for part in (self.root, folder):
            os.makedirs(part, mode=0o700, exist_ok=True)

    def _warn(self, error: OSError) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"compiled kernels are not cached, as {self.root} cannot be written: {error}. "
            "Set TILEWRIGHT_CACHE_DIR to a folder of your own.",
            RuntimeWarning,
            stacklevel=3,
        )

    # -- mutual exclusion of compilations ----------------------------------------------------------

    @contextmanager
    def compiling(self, key: str) -> Generator[None]:
        """Lock `key` during a compilation, so that other threads and processes wait for it.

        The lock is advisory: a waiter proceeds after `WAIT_SECONDS`, and concurrent compilations of
        one key are harmless. Check with `get` again once the lock is held.
        """
        entry = self._enter(key)
        held = entry.lock.acquire(timeout=WAIT_SECONDS)
        try:
            # Reentrant: the holder may compile the same kernel inside.
            entry.depth += held
            with self._lock_file(key) if held and entry.depth == 1 else contextlib.nullcontext():
                yield
        finally:
            if held:
                entry.depth -= 1
                entry.lock.release()
            self._leave(key, entry)

    def _enter(self, key: str) -> _KeyLock:
        if self._pid != os.getpid():
            # After a fork, the threads that held these locks no longer exist.
            self._pid, self._guard, self._locks = os.getpid(), threading.Lock(), {}
        with self._guard:
            entry = self._locks.setdefault(key, _KeyLock())
            entry.users += 1
            return entry

    def _leave(self, key: str, entry: _KeyLock) -> None:
        with self._guard:
            entry.users -= 1
            if not entry.users and self._locks.get(key) is entry:
                del self._locks[key]

    @contextmanager
    def _lock_file(self, key: str) -> Generator[None]:
        path = self.path(key)
        owner = json.dumps({"pid": os.getpid(), "host": _host(), "id": os.urandom(8).hex()})
        taken = path is not None and self._take(path, owner.encode())
        try:
            yield
        finally:
            if taken and path is not None:
                lock = lock_of(path)
                with contextlib.suppress(OSError):
                    # Unless the lock was considered stale and now belongs to another process.
                    if _content_of(lock) == owner.encode():
                        os.unlink(lock)

    def _take(self, path: str, owner: bytes) -> bool:
        """Create the lock file, waiting for its owner; False to proceed without it."""
        lock = lock_of(path)
        until = time.monotonic() + WAIT_SECONDS
        pause = 0.002
        while True:
            try:
                self._make_folder(path)
                _create_whole(lock, owner)
                return True
            except FileExistsError:
                if not os.path.isdir(os.path.dirname(path)):
                    return False  # another file has the folder's name
            except OSError:
                return False
            if _is_stale(lock):
                with contextlib.suppress(OSError):
                    os.unlink(lock)
            elif os.path.exists(path) or time.monotonic() > until:
                return False
            else:
                time.sleep(pause)
                pause = min(2 * pause, 0.05)


def _is_turn(key: str, size: int, bound: int) -> bool:
    """Whether the writer of an entry sweeps the folder.

    On average, one sweep happens per this number of bytes that any process writes: the decision
    is a function of the key, which is as good as random, and needs no shared state.
    """
    share = size * SWEEPS_PER_BOUND / (bound or USUAL_BOUND)
    return int(key[-8:], 16) < share * 16**8


def lock_of(path: str) -> str:
    """The lock file of an entry."""
    return path.removesuffix(SUFFIX) + ".lock"


def _private_name(path: str) -> str:
    """A name next to a file that is unique among concurrent writers of it."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")


def _content_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write_private(path: str, content: bytes) -> None:
    """Create a new file with permissions for this user only."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, 0o600), "wb", buffering=0) as file:
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) or 0 :]


def _create_whole(path: str, content: bytes) -> None:
    """Create a new file atomically with its contents: a writer killed at any moment leaves all of
    it or nothing. Raises FileExistsError if it exists."""
    private = _private_name(path)
    try:
        _write_private(private, content)
        os.link(private, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(private)


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else ""


def _is_stale(lock: str) -> bool:
    """Whether the owner of a lock file is gone, as far as this process can tell."""
    try:
        age = abs(time.time() - os.stat(lock).st_mtime)  # the clock may have been set back
        owner = json.loads(_content_of(lock))
        if isinstance(owner, dict) and owner.get("host") == _host() and _host():
            return not _is_alive(int(owner["pid"]))
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError):
        return True
    return age > _STALE_SECONDS


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # signal 0 only checks
    except OSError as error:
        return error.errno != errno.ESRCH
    return True


_shared_guard = Lock()
_shared: dict[str | None, DiskCache] = {}


def disk_cache() -> DiskCache:
    """The cache in the folder given by the current settings; one object per folder."""
    try:
        root = knobs.cache.folder()
    except RuntimeError:  # a user without a home folder
        root = None
    result = _shared.get(root)
    if result is None:
        with _shared_guard:
            result = _shared.setdefault(root, DiskCache(root))
    return result
