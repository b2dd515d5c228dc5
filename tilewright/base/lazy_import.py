"""Lazy imports: modules that are imported on the first access to one of their attributes.

`import tilewright` and the launch of a cached kernel must not import the front end, the passes or
LLVM. This is the only form of lazy import in the package:

    if TYPE_CHECKING:
        from tilewright.compiler import build
    else:
        build = lazy_import("tilewright.compiler.build")

    build.build(source)  # imports the module

Type checkers and editors see an ordinary import. The layering test requires that both branches
name the same module, and checks the name like that of any import.
"""

from __future__ import annotations

from importlib import import_module


def lazy_import(name: str) -> object:
    """A stand-in for a module, which is imported on the first access to one of its attributes.

    Args:
        name: the absolute name of the module.

    Raises:
        ImportError: on that access, if the module cannot be imported.
    """
    return _LazyModule(name)


class _LazyModule:
    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> object:
        module = import_module(self.__name__)
        # From now on this is the module's own namespace: an access costs no more than one to the
        # module, and either sees what is assigned to the other.
        self.__dict__ = vars(module)
        return getattr(module, name)

    def __repr__(self) -> str:
        return f"<lazily imported module {self.__name__!r}>"
