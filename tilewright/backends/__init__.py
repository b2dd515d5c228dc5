"""Targets under the names that users import: `backends` has for each its compiler and its driver.

backends["cpu"].driver.is_active()
"""

from __future__ import annotations

from typing import Any

from tilewright.runtime.driver import DRIVERS
from tilewright.targets.base_backend import BaseBackend
from tilewright.targets.registry import BUILT_IN

__all__ = ["Backend", "BaseBackend", "backends"]


class Backend:
    """A target's two sides. Each is a class, loaded when it is first asked for.

    Args:
        name: of the target, which is also its devices' type.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def compiler(self) -> Any:
        """Compiles for the target; takes an architecture."""
        return BUILT_IN[self._name]()

    @property
    def driver(self) -> Any:
        """Runs on its devices: see `runtime.driver.set_active`. Takes no arguments."""
        return DRIVERS[self._name]()

    def __repr__(self) -> str:
        return f"Backend({self._name!r})"


OTHER_NAMES = {"cuda": "nvidia"}
"""What libraries look for by the maker's name."""

backends = {OTHER_NAMES.get(name, name): Backend(name) for name in DRIVERS}
