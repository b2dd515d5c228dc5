"""Modules that a library imports for other purposes than its kernels."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Base:
    """The base of classes that derive from one of an absent module."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


class _Nothing:
    """Stands for any class, function or decorator of an absent module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else _Nothing()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (_Base,)

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __getitem__(self, key: Any) -> Any:
        return self


class _Empty(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()


class _Finder(MetaPathFinder, Loader):
    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if any(f"{fullname}.".startswith(f"{name}.") for name in self.names):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def allow(*names: str) -> None:
    """Let packages be imported that are not installed, and modules of packages without what they
    import: whatever a program takes from them does nothing."""
    missing = frozenset(name for name in names if "." in name or find_spec(name) is None)
    sys.meta_path.insert(0, _Finder(missing))


def bare(*packages: str) -> None:
    """Let modules of packages be imported without what the packages themselves import first; a
    package must come after those that it is in."""
    for package in packages:
        parent = package.rpartition(".")[0]
        found = PathFinder.find_spec(package, sys.modules[parent].__path__ if parent else None)
        if package not in sys.modules and found is not None:
            module = ModuleType(package)
            module.__spec__ = ModuleSpec(package, None, is_package=True)
            module.__path__ = list(found.submodule_search_locations or ())
            sys.modules[package] = module
