"""What the names below `triton` stand for: tilewright's own modules, the same objects.

The package itself is a module of its own (`path/triton/__init__.py`), as its version and its list
of names are its own. Everything below is tilewright's, found by a finder on `sys.meta_path`, so
that a class is one class by whichever name it was imported and a setting is set for both.

A name is looked up where its parent really is: `triton.runtime.cache` is `cache` of
`tilewright.runtime`. What lies elsewhere stands in `ELSEWHERE`. Nothing below `triton` is ever
loaded from its file a second time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from tilewright.compat.extras import add_extras

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    # The import system asks for the methods alone, and `importlib.abc` would load archives,
    # temporary files and more with every `import tilewright`.
    Loader = object

NAME = "triton"
OURS = __name__.partition(".")[0]

VERSION = "3.7.1"
"""The version of Triton whose interface this is; libraries choose their code by it. They compare
it as text too ("3.7.1" < "3.2.0"), so that no part may reach two digits."""

SEARCH_PATH = Path(__file__).parent / "path"
"""The folder that makes `import triton` find tilewright when it is on `sys.path`."""

PUBLIC = ("backends", "compiler", "errors", "knobs", "language", "runtime", "testing", "tools")
"""Modules of the package. Others of tilewright's are its own affair, whatever they are called."""

ELSEWHERE = {
    f"{NAME}.compiler.compiler": f"{OURS}.compiler",
    f"{NAME}.compiler.errors": f"{OURS}.errors",
    f"{NAME}._utils": f"{OURS}.compat.utils",
    f"{NAME}.knobs": f"{OURS}.base.knobs",
    f"{NAME}.language.extra.cpu.libdevice": f"{OURS}.language.extra.libdevice",
    f"{NAME}.language.extra.cuda.libdevice": f"{OURS}.language.extra.libdevice",
    f"{NAME}.language.extra.hip.libdevice": f"{OURS}.language.extra.libdevice",
    f"{NAME}.runtime._async_compile": f"{OURS}.runtime.async_compile",
    f"{NAME}.runtime.errors": f"{OURS}.errors",
    f"{NAME}.runtime.interpreter": f"{OURS}.runtime.jit",
}
"""Modules whose place is not the one that their name says."""


def public() -> list[str]:
    """What ``from triton import *`` gives."""
    return sorted({"tools", *sys.modules[OURS].__all__})


def enter(namespace: dict[str, Any]) -> None:
    """Make a module the package `triton`, and tilewright's modules those below it.

    Args:
        namespace: the module's globals; gets the names of `import tilewright`, but for those that
            it has already.
    """
    ours = import_module(OURS)
    for name in ours.__all__:
        namespace.setdefault(name, getattr(ours, name))
    add_extras(OURS)
    finder = TritonFinder()
    if not any(isinstance(other, TritonFinder) for other in sys.meta_path):
        sys.meta_path.insert(0, finder)
    # Programs reach these as attributes, without importing them; and below a module that is no
    # package the import system asks no finder.
    for alias, name in ELSEWHERE.items():
        if name in sys.modules:
            _bind(alias, sys.modules[name])


def _bind(alias: str, module: ModuleType) -> None:
    sys.modules[alias] = module
    parent, _, child = alias.rpartition(".")
    if parent != NAME:  # the package's own namespace has it already
        setattr(import_module(parent), child, module)


def late_module(name: str) -> ModuleType:
    """A module of the package that is first reached as an attribute: ``triton.testing``."""
    if name in PUBLIC:
        try:
            return import_module(f"{NAME}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{NAME}.{name}":
                raise
    raise AttributeError(f"module {NAME!r} has no attribute {name!r}", name=name)


def _our_name(fullname: str) -> str | None:
    """The module that a name below `triton` stands for, if there may be one."""
    if fullname in ELSEWHERE:
        return ELSEWHERE[fullname]
    parent, _, child = fullname.rpartition(".")
    if parent == NAME:
        return f"{OURS}.{child}" if child in PUBLIC else None
    return f"{sys.modules[parent].__name__}.{child}"


class TritonFinder:
    """Finds `triton` and the modules below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == NAME:
            folder = SEARCH_PATH / NAME
            return spec_from_file_location(
                NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
            )
        name = _our_name(fullname) if fullname.startswith(f"{NAME}.") else None
        found = find_spec(name) if name is not None else None
        if name is None or found is None:
            return None  # then nobody finds it: the path below `triton` holds nothing else
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, _Alias(name), origin=found.origin, is_package=is_package)


class _Alias(Loader):
    """Gives a module that has another name, as it is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._own: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.name)
        self._own = module.__spec__
        return module

    def get_code(self, fullname: str) -> CodeType | None:
        """What ``python -m triton.tools.compile`` runs."""
        own = find_spec(self.name)
        loader: Any = own.loader if own is not None else None
        return loader.get_code(self.name) if hasattr(loader, "get_code") else None

    def exec_module(self, module: ModuleType) -> None:
        # It has run. The import system has just given it the alias's specification, but what the
        # module imports relative to itself, and its reloading, go by its own.
        module.__spec__ = self._own
