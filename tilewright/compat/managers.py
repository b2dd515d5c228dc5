"""Folders for files that programs keep beside compiled kernels: one folder for a key.

Libraries keep tuning results and libraries that they have compiled there. tilewright's own kernels
are entries of one file each (`runtime/cache.py`) and do not pass through these.
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
    """Hexadecimal digits in fewer signs, of which none is special in file names."""
    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


class CacheManager(ABC):
    """Keeps files for a key.

    Args:
        key: what the files belong to; a name for a folder.
    """

    @abstractmethod
    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None: ...

    @abstractmethod
    def get_file(self, filename: str) -> str | None:
        """Path of a file; None if there is none."""

    @abstractmethod
    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Keep a file; gives its path."""

    @abstractmethod
    def get_group(self, filename: str) -> dict[str, str] | None:
        """Paths of the files of a group by their names; None if there is none."""

    @abstractmethod
    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Keep the paths of files that belong together; gives the path of that file."""


class FileCacheManager(CacheManager):
    """Keeps files in a folder of the cache's folder.

        manager = FileCacheManager(base32(hash))
        path = manager.put("{}", "timings.json", binary=False)

    Args:
        key: the folder's name.
        override: the folder is in `knobs.cache.override_dir`: what replaces stages of kernels.
        dump: the folder is in `knobs.cache.dump_dir`, and is made.

    Raises:
        RuntimeError: it is to be in a folder that is not set.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        self.cache_dir = str(self._root(override, dump) / key)
        self.lock_path = None if override else os.path.join(self.cache_dir, "lock")
        if not override:
            os.makedirs(self.cache_dir, exist_ok=True)

    @staticmethod
    def _root(override: bool, dump: bool) -> Path:
        if not (override or dump):
            return knobs.cache.folder()
        name = "dump_dir" if dump else "override_dir"
        folder = getattr(knobs.cache, name)
        if not folder:
            raise RuntimeError(f"Could not create or locate cache dir: knobs.cache.{name} is unset")
        return Path(folder)

    def _path(self, filename: str) -> str:
        return os.path.join(self.cache_dir, filename)

    def has_file(self, filename: str) -> bool:
        """Whether there is a file of this name."""
        return os.path.exists(self._path(filename))

    def get_file(self, filename: str) -> str | None:
        return self._path(filename) if self.has_file(filename) else None

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Keep a file, so that a reader sees all of it or nothing; gives its path.

        Args:
            data: what is in it; text is UTF-8.
            binary: for programs that say so; what `data` is tells it.
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
    """The manager of a folder for a key, hexadecimal digits, in the cache's folder; of the class
    that the knob `cache.manager_class` names.

    Raises:
        ValueError: the setting is not as ``module:Class``, or there is no such class.
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
    """The same in the folder of what replaces stages of kernels."""
    return FileCacheManager(base32(key), override=True)


def get_dump_manager(key: str) -> CacheManager:
    """The same in the folder where stages of kernels are written."""
    return FileCacheManager(base32(key), dump=True)


def make_so_cache_key(
    version_hash: str, signature: Mapping[Any, str], constants: Any, ids: Any, **kwargs: Any
) -> str:
    """Hexadecimal digits for a library that is compiled for a kernel's signature."""
    return digest(version_hash, str(dict(signature)), str(constants), str(ids), str(kwargs))
