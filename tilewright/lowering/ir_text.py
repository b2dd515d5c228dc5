"""Rewrites of the text of LLVM IR, as workarounds of faults of LLVM's back ends."""

from __future__ import annotations

from collections.abc import Callable

_DEFINE = "\ndefine "


def in_each_function(text: str, rewrite: Callable[[str], str]) -> str:
    """The text of a module with each function rewritten by itself, as names are unique only within
    a function."""
    head, *functions = text.split(_DEFINE)
    return _DEFINE.join([head, *map(rewrite, functions)])
