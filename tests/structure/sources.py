"""Syntax trees of source files, of which several tests read all."""

import ast
import gc
from functools import cache
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file, which tests may not change: they share it."""
    return _parsed(path.read_text("utf-8"))


@cache
def _parsed(text: str) -> ast.Module:
    tree = ast.parse(text)
    gc.freeze()  # trees stay; collections that traverse them take longer than parsing them again
    return tree
