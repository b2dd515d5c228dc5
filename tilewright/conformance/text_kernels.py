"""Kernels from text."""

from __future__ import annotations

import hashlib
import linecache
import textwrap
from collections.abc import Callable
from typing import Any

import tilewright.language as tl
from tilewright.frontend.source import ConstexprFunction, SourceFunction


def jit(fn: Callable[..., Any]) -> Any:
    """The decorator, without what the runtime adds to it."""
    return SourceFunction(fn)


def constexpr_function(fn: Callable[..., Any]) -> Any:
    """The decorator of functions that are called at compile time."""
    return ConstexprFunction(fn)


def function_from(text: str, /, **names: Any) -> Any:
    """The last function defined in a text, undecorated; `names` are its globals, with `tl`."""
    text = textwrap.dedent(text).lstrip("\n")
    # Named by what it holds: this module may be loaded twice, and the lines are for all.
    file = f"<kernel {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"tl": tl, "jit": jit, "constexpr_function": constexpr_function}
    scope |= names
    before = set(scope)
    # Without this module's `from __future__ import annotations`: annotations are values.
    exec(compile(text, file, "exec", dont_inherit=True), scope)
    return [v for k, v in scope.items() if k not in before and k != "__builtins__"][-1]


def kernel_from(text: str, /, **names: Any) -> SourceFunction:
    """The last function of a text as a kernel."""
    kernel = function_from(text, **names)
    return kernel if isinstance(kernel, SourceFunction) else SourceFunction(kernel)
