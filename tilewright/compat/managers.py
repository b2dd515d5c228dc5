"""Folders for files that programs store in the cache, one folder per key.

Libraries keep tuning results and compiled libraries there. tilewright's own kernels are single-file
entries (`runtime/cache.py`) and do not use these.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from tilewright.base import knobs
from tilewright.runtime.cache import digest


def base32(key: str) -> str:
    """A shorter encoding of hexadecimal digits that is safe in file names."""
    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


class CacheManager(ABC):
    """Stores files under a key.

    Args:
        key: a name for the folder.
    """

    @abstractmethod
    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None: ...

    @abstractmethod
    def get_file(self, filename: str) -> str | None:
        """The path of a file; None if it does not exist."""

    @abstractmethod
    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Store a file; returns its path."""

    @abstractmethod
    def get_group(self, filename: str) -> dict[str, str] | None:
        """The paths of the files in a group by name; None if it does not exist."""

    @abstractmethod
    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Store the paths of a group of files; returns the path of the group file."""


class FileCacheManager(CacheManager):
    """Stores files in a subfolder of the cache folder.

        manager = FileCacheManager(base32(hash))
        path = manager.put("{}", "timings.json", binary=False)

    Args:
        key: the name of the folder.
        override: use `knobs.cache.override_dir`, the folder of overriding stages.
        dump: use `knobs.cache.dump_dir`; the folder is created.

    Raises:
        RuntimeError: the setting for that folder is not set.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        self.cache_dir = os.path.join(self._root(override, dump), key)
        self.lock_path = None if override else os.path.join(self.cache_dir, "lock")
        if not override:
            os.makedirs(self.cache_dir, exist_ok=True)

    def _root(self, override: bool, dump: bool) -> str:
        """The folder of the folders."""
        if not (override or dump):
            return knobs.cache.folder()
        name = "dump_dir" if dump else "override_dir"
        folder: str | None = getattr(knobs.cache, name)
        if not folder:
            raise RuntimeError(f"Could not create or locate cache dir: knobs.cache.{name} is unset")
        return folder

    def _path(self, filename: str) -> str:
        return os.path.join(self.cache_dir, filename)

    def has_file(self, filename: str) -> bool:
        """Whether the file exists."""
        return os.path.exists(self._path(filename))

    def get_file(self, filename: str) -> str | None:
        return self._path(filename) if self.has_file(filename) else None

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Store a file atomically; returns its path.

        Args:
            data: the contents; text is encoded as UTF-8.
            binary: ignored; the type of `data` decides.
        """
        content = data if isinstance(data, bytes) else str(data).encode()
        path = self._path(filename)
        private = f"{path}.{secrets.token_hex(8)}.new"
        try:
            Path(private).write_bytes(content)
            os.replace(private, path)
        finally:
            Path(private).unlink(missing_ok=True)
        return path

    def get_group(self, filename: str) -> dict[str, str] | None:
        path = self.get_file(_group_name(filename))
        if path is None:
            return None
        names: list[str] = json.loads(Path(path).read_text("utf-8"))["child_paths"]
        return {name: self._path(name) for name in names if self.has_file(name)}

    def put_group(self, filename: str, group: Mapping[str, Any]) -> str:
        return self.put(json.dumps({"child_paths": sorted(group)}), _group_name(filename))


def _group_name(filename: str) -> str:
    return f"__grp__{filename}"


def get_cache_manager(key: str) -> CacheManager:
    """The manager of a folder for a key in hexadecimal digits, in the cache folder. Its class is
    given by the setting `cache.manager_class`.

    Raises:
        ValueError: the setting does not have the form ``module:Class``, or the class is missing.
    """
    name = knobs.cache.manager_class
    return (_class_of(name) if name else FileCacheManager)(base32(key))


def _class_of(name: str) -> Callable[[str], CacheManager]:
    wrong = f"the setting cache.manager_class = {name!r}"
    if not re.fullmatch(r"[\w.]+:[\w.]+", name):
        raise ValueError(f"{wrong} must be as `module:Class`")
    try:
        return resolve_name(name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{wrong}: {error}") from None


def get_override_manager(key: str) -> CacheManager:
    """The same for the folder of overriding stages."""
    return FileCacheManager(base32(key), override=True)


def get_dump_manager(key: str) -> CacheManager:
    """The same for the folder of dumped stages."""
    return FileCacheManager(base32(key), dump=True)


def make_so_cache_key(
    version_hash: str, signature: Mapping[Any, str], constants: Any, ids: Any, **kwargs: Any
) -> str:
    """A cache key, in hexadecimal digits, for a library compiled for a kernel's signature."""
    return digest(version_hash, str(dict(signature)), str(constants), str(ids), str(kwargs))
