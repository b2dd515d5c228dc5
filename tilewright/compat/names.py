"""Maps the module names below `triton` to tilewright's own modules, as the same objects.

The package `triton` is a separate module (`path/triton/__init__.py`), since its version and its
public names differ. A finder on `sys.meta_path` resolves everything below it to tilewright's
modules, so that classes and settings are shared between both names.

A name is resolved relative to its parent: `triton.runtime.cache` is `cache` in
`tilewright.runtime`. `ELSEWHERE` lists the exceptions. No module is loaded a second time under its
alias.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_import
from tilewright.compat.extras import add_extras

if TYPE_CHECKING:
    from importlib.abc import Loader

    from tilewright.compat import missing
else:
    missing = lazy_import("tilewright.compat.missing")
    # Duck-typed: importing `importlib.abc` for a base class would add archives, temporary files
    # and more to every `import tilewright`.
    Loader = object

NAME = "triton"
OURS = __name__.partition(".")[0]

VERSION = "3.7.1"
"""The version of Triton whose interface is implemented. Libraries compare it, sometimes as text
("3.7.1" < "3.2.0"), so no component may have two digits."""

LANGUAGE = f"{NAME}.language"

SEARCH_PATH = os.path.join(os.path.dirname(__file__), "path")
"""The folder on `sys.path` that makes `import triton` load tilewright."""

PUBLIC = (
    "backends", "compiler", "errors", "knobs", "language", "profiler", "runtime",
    "testing", "tools")  # fmt: skip
"""The public modules of the package. Other modules of tilewright have no alias."""

ELSEWHERE = {
    f"{NAME}._C": f"{OURS}.compat.native_compiler",
    f"{NAME}._C.libtriton": f"{OURS}.compat.native_compiler.libtriton",
    f"{NAME}.backends.driver": f"{OURS}.compat.drivers",
    f"{NAME}.backends.nvidia": f"{OURS}.compat.nvidia",
    f"{NAME}.compiler.code_generator": f"{OURS}.compat.generating",
    f"{NAME}.compiler.compiler": f"{OURS}.compiler",
    f"{NAME}.compiler.errors": f"{OURS}.errors",
    f"{NAME}.experimental": f"{OURS}.compat.experimental",
    f"{NAME}.experimental.gluon": f"{OURS}.compat.experimental.gluon",
    f"{NAME}.experimental.gluon.language": f"{OURS}.compat.experimental.gluon.language",
    f"{NAME}._utils": f"{OURS}.compat.utils",
    f"{NAME}.knobs": f"{OURS}.base.knobs",
    f"{NAME}.language.extra.cpu.libdevice": f"{OURS}.language.extra.libdevice",
    f"{NAME}.language.extra.cuda.libdevice": f"{OURS}.language.extra.libdevice",
    f"{NAME}.language.extra.cuda.gdc": f"{OURS}.language.extra.cuda",
    f"{NAME}.language.extra.cuda.utils": f"{OURS}.language.extra.cuda",
    f"{NAME}.language.extra.hip.libdevice": f"{OURS}.language.extra.libdevice",
    f"{NAME}.runtime._async_compile": f"{OURS}.runtime.async_compile",
    f"{NAME}.runtime.build": f"{OURS}.compat.building",
    f"{NAME}.runtime.errors": f"{OURS}.errors",
    f"{NAME}.runtime.interpreter": f"{OURS}.runtime.jit",
}
"""Modules whose location differs from their name."""


GLUON = f"{NAME}.experimental.gluon"
"""Modules below this one that are not listed above exist, and each of their names is missing."""


def public() -> list[str]:
    """The names exported by ``from triton import *``."""
    return sorted({"tools", *sys.modules[OURS].__all__})


def enter(namespace: dict[str, Any]) -> None:
    """Make a module the package `triton`, with tilewright's modules as its submodules.

    Args:
        namespace: the globals of the module; receives the public names of `tilewright` that it
            does not define itself.
    """
    ours = vars(import_module(OURS))
    for name in ours.keys() & ours["__all__"]:
        namespace.setdefault(name, ours[name])
    add_extras(OURS)
    finder = TritonFinder()
    if not any(isinstance(other, TritonFinder) for other in sys.meta_path):
        sys.meta_path.insert(0, finder)
        # Programs access these as attributes without importing them; and the import system does
        # not call finders below a module that is not a package.
    for alias, name in ELSEWHERE.items():
        if name in sys.modules:
            _bind(alias, sys.modules[name])


def _bind(alias: str, module: ModuleType) -> None:
    sys.modules[alias] = module
    parent, _, child = alias.rpartition(".")
    if parent != NAME:  # the package's own namespace already has it
        setattr(import_module(parent), child, module)


def late_name(name: str) -> object:
    """A submodule that is accessed as an attribute before its import, ``triton.testing``, or a
    public name that `tilewright` imports on its first access."""
    ours = import_module(OURS)
    if name in ours.__all__ and name not in PUBLIC:
        result = vars(sys.modules[NAME])[name] = getattr(ours, name)
        return result
    if name in PUBLIC or f"{NAME}.{name}" in ELSEWHERE:
        try:
            return import_module(f"{NAME}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{NAME}.{name}":
                raise
    raise AttributeError(f"module {NAME!r} has no attribute {name!r}", name=name)


def _our_name(fullname: str) -> str | None:
    """The tilewright module for a name below `triton`, if there may be one."""
    if fullname in ELSEWHERE:
        return ELSEWHERE[fullname]
    parent, _, child = fullname.rpartition(".")
    if parent == NAME:
        return f"{OURS}.{child}" if child in PUBLIC else None
    return f"{sys.modules[parent].__name__}.{child}"


class TritonFinder:
    """A meta path finder for `triton` and its submodules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == NAME:
            folder = os.path.join(SEARCH_PATH, NAME)
            return spec_from_file_location(
                NAME, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
            )
        if fullname.startswith(f"{GLUON}.") and fullname not in ELSEWHERE:
            loader: Any = missing.MissingLoader()
            return ModuleSpec(fullname, loader, is_package=True)
        name = _our_name(fullname) if fullname.startswith(f"{NAME}.") else None
        found = find_spec(name) if name is not None else None
        if name is None or found is None:
            return None  # not found: the path below `triton` contains nothing else
        is_package = found.submodule_search_locations is not None
        alias = _Alias(fullname, name)
        return ModuleSpec(fullname, alias, origin=found.origin, is_package=is_package)


class _Alias(Loader):
    """Loads an alias by returning the existing module."""

    def __init__(self, alias: str, name: str) -> None:
        self.alias = alias
        self.name = name
        self._own: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.name)
        self._own = module.__spec__
        return module

    def get_code(self, fullname: str) -> CodeType | None:
        """The code for ``python -m triton.tools.compile``."""
        own = find_spec(self.name)
        loader: Any = own.loader if own is not None else None
        return loader.get_code(self.name) if hasattr(loader, "get_code") else None

    def exec_module(self, module: ModuleType) -> None:
        # Already executed. The import system has set the alias's spec, but relative imports and
        # reloading need the module's own.
        module.__spec__ = self._own
        if any(alias.startswith(f"{self.alias}.") for alias in ELSEWHERE):
            vars(module).setdefault("__path__", [])  # so that the import system calls the finder
        if self.alias.startswith(LANGUAGE):
            _rename_members(self.alias, module)


def _rename_members(alias: str, module: ModuleType) -> None:
    """Set `__module__` of the language's functions and classes to the alias from which they can be
    imported.

    Where a kernel uses a name that was imported on its own (``from triton.language import load``),
    Inductor writes that import into the module that it generates, if `__module__` begins with
    "triton".
    """
    for name, value in vars(module).items():
        own = getattr(value, "__module__", "")
        if getattr(value, "__name__", "") == name and own.startswith(f"{OURS}.language"):
            value.__module__ = alias
