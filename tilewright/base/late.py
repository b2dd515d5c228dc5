"""Functions of modules that load when they are first called.

What launching a compiled kernel does not need, such as the front end, the passes and each target
with LLVM behind it, stays unloaded until a kernel is compiled. This is the one way to say so; the
layering test reads the names given here like any import.
"""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any


class late:
    """The function that a name stands for; calling it loads its module.

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
