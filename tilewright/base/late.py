"""Lazy imports: functions whose modules are imported on the first call.

The launch of a cached kernel must not import the front end, the passes or a target with LLVM. This
is the only form of lazy import in the package; the layering test checks these names like imports.
"""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any


class late:
    """A function given by name. The first call imports its module.

        build = late("tilewright.compiler.build:build")
        build(source)       # imports tilewright.compiler.build

    Args:
        name: ``"package.module:function"``.
    """

    __slots__ = ("_function", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._function: Callable[..., Any] | None = None

    def load(self) -> Callable[..., Any]:
        """The function itself."""
        function = self._function
        if function is None:
            function = self._function = resolve_name(self.name)
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.load()(*args, **kwargs)

    def __repr__(self) -> str:
        return f"late({self.name!r})"
