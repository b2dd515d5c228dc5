"""The public registry of targets: `backends` maps each name to its compiler and its driver.

backends["cpu"].driver.is_active()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_names
from tilewright.runtime import driver
from tilewright.targets import registry
from tilewright.targets.base_backend import BaseBackend

if TYPE_CHECKING:
    from tilewright.backends import compiler as compiler
else:  # an attribute after `import tilewright`, as in Triton
    __getattr__ = lazy_names(__name__, {__name__: ("compiler",)})

__all__ = ["Backend", "BaseBackend", "backends"]


class Backend:
    """The compiler and the driver of a target, two classes that are loaded on first use.

    Args:
        name: the name of the target, which is also the type of its devices.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def compiler(self) -> Any:
        """The compiler class; its constructor takes an architecture."""
        return registry.factory_of(self._name)

    @property
    def driver(self) -> Any:
        """The driver class, whose constructor takes no arguments; see
        `runtime.driver.set_active`."""
        return driver.driver_class(self._name)

    def __repr__(self) -> str:
        return f"Backend({self._name!r})"


OTHER_NAMES = {"cuda": "nvidia", "hip": "amd"}
"""Targets that libraries look up by the vendor's name."""


class _Backends(dict[str, Backend]):
    """The built-in backends, and plug-ins once they are looked up by name."""

    def __missing__(self, name: str) -> Backend:
        if name not in driver.names():
            raise KeyError(name)
        return self.setdefault(name, Backend(name))


backends = _Backends({OTHER_NAMES.get(name, name): Backend(name) for name in driver.DRIVERS})
