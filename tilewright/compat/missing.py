"""Names of Triton that tilewright lacks: they may be imported, and their use is an error."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn


class Missing:
    """A placeholder for an object of Triton's that programs import. Any use of it raises
    NotImplementedError, with the reason. Only layouts may be called: modules create them when they
    are imported, for kernels that may never be launched, and these are placeholders too.

    Args:
        name: its name in Triton.
        why: what there is instead.
    """

    def __init__(self, name: str, why: str) -> None:
        self._name, self._why = name, why

    def _fail(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{self._name} is not available in tilewright: {self._why}")

    __getitem__ = __enter__ = __iter__ = _fail

    def __call__(self, *args: Any, **kwargs: Any) -> Missing:
        if any(part.endswith("Layout") for part in self._name.split(".")):
            return Missing(self._name, self._why)
        return self._fail()

    def __exit__(self, *args: object) -> None:
        """Never called, as it cannot be entered."""

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}", self._why)

    def __repr__(self) -> str:
        return f"<missing {self._name}>"


def missing_names(module: str, original: str, names: str, why: str) -> Callable[[str], Missing]:
    """The `__getattr__` of a module that lacks names of Triton's: each of them is a `Missing`.

    Args:
        module: the name of the module that gets this function.
        original: the module of Triton's that it stands for.
        names: the names, separated by blanks.
        why: what there is instead.
    """
    missing = {name: Missing(f"{original}.{name}", why) for name in names.split()}

    def find(name: str) -> Missing:
        if name in missing:
            return missing[name]
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)

    return find


class MissingModule(ModuleType):
    """A module of Triton's, and a package, in which every name is a `Missing`."""

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name)
        return Missing(f"{self.__name__}.{name}", "kernels that use it cannot be compiled")


class MissingLoader:
    """Creates a `MissingModule`."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return MissingModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: its names are created on access."""
