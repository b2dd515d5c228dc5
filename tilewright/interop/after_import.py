"""Functions that adapt a module of another library once the program imports it.

A library's modules may take long to import, and a program may never use them. So changes to a
module are applied when it is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Adaptation = Callable[[Any], None]

_waiting: dict[str, list[Adaptation]] = {}
"""Adaptations of modules that have not been imported, by the modules' names."""


def after_import(name: str, adapt: Adaptation) -> None:
    """Call ``adapt(module)``, now if the module has been imported, otherwise after its import.

        after_import("torch._inductor.compile_fx", lambda module: print(module.__name__))

    A function that already waits for the module is not added again.
    """
    module = sys.modules.get(name)
    if module is not None:
        adapt(module)
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    waiting = _waiting.setdefault(name, [])
    if adapt not in waiting:
        waiting.append(adapt)


def is_defined_in(function: Any, file: str) -> bool:
    """Whether a function's code is in a file: adaptations check this for the functions that they
    replace, with their own ``__file__``, since a module may be adapted twice."""
    return function.__code__.co_filename == file


class _Finder(MetaPathFinder):
    """Finds the awaited modules by the other finders, and has their loaders call the
    adaptations."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _waiting:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target) if finder is not self else None
            if spec is not None:
                _adapt_loaded(spec.loader)
                return spec
        return None


def _adapt_loaded(loader: Any) -> None:
    """Have a loader, which is that of one module, adapt the module once it has executed it."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        execute(module)
        for adapt in _waiting.pop(module.__name__, []):
            adapt(module)

    loader.exec_module = exec_module
