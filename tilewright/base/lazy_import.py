"""Lazy imports: modules that are imported on the first access to one of their attributes.

`import tilewright` and the launch of a cached kernel must not import the front end, the passes or
LLVM. Where code uses a module, this is the only form of lazy import:

    if TYPE_CHECKING:
        from tilewright.compiler import build
    else:
        build = lazy_import("tilewright.compiler.build")

    build.build(source)  # imports the module

And where a package provides names of other modules, or its own modules:

    if TYPE_CHECKING:
        from tilewright.runtime.gradients import grad as grad
    else:
        __getattr__ = lazy_names(__name__, {"tilewright.runtime.gradients": ("grad",)})

Type checkers and editors see an ordinary import. The layering test requires that both branches
name the same modules and names, and checks them like those of any import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType

from tilewright.base.locks import IMPORTS


def lazy_import(name: str) -> object:
    """A stand-in for a module, which is imported on the first access to one of its attributes.

    Args:
        name: the absolute name of the module.

    Raises:
        ImportError: on that access, if the module cannot be imported.
    """
    return _LazyModule(name)


def lazy_names(
    module: str,
    sources: Mapping[str, Sequence[str]],
    otherwise: Callable[[str], object] | None = None,
) -> Callable[[str], object]:
    """The `__getattr__` of a module, which imports names on the first access to each.

    Args:
        module: the absolute name of the module that gets this function.
        sources: the names by the module that each is imported from; from a package itself, its
            submodules.
        otherwise: called with any other name.

    Raises:
        ImportError: on the access, if the source cannot be imported.
        AttributeError: the name is in none of them.
    """
    source_of = {name: source for source, names in sources.items() for name in names}

    def find(name: str) -> object:
        source = source_of.get(name)
        if source is None:
            if otherwise is not None:
                return otherwise(name)
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        if source == module:
            found: object = _import(f"{module}.{name}")
        else:
            found = getattr(_import(source), name)
        vars(sys.modules[module])[name] = found
        return found

    return find


def _import(name: str) -> ModuleType:
    with IMPORTS:
        return import_module(name)


class _LazyModule:
    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> object:
        module = _import(self.__name__)
        # From now on this is the module's own namespace: an access costs no more than one to the
        # module, and either sees what is assigned to the other.
        self.__dict__ = vars(module)
        return getattr(module, name)

    def __repr__(self) -> str:
        return f"<lazily imported module {self.__name__!r}>"
