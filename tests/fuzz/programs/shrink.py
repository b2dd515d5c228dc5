"""Makes a failing program small: fewer statements, simpler expressions, the same failure.

    print(shrink(text, lambda t: outcome(t) == "Difference"))

It is independent of the language's rules: a candidate may be an invalid program, which fails in
another way and is discarded.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator

Fails = Callable[[str], bool]


def shrink(text: str, fails: Fails, seconds: float = 60.0) -> str:
    """The smallest program found in that time for which `fails` holds, as for this one."""
    end = time.monotonic() + seconds
    best = _without_unused(ast.unparse(ast.parse(text)))
    if not fails(best):
        return text
    for _ in range(20):
        before = best
        for edits in (_without_statements, _flattened, _simpler_expressions):
            best = _pass(_without_unused(best), edits, fails, end)
        if best == before or time.monotonic() > end:
            break
    return best


Edits = Callable[[ast.Module], Iterator[Callable[[], Callable[[], None]]]]
"""Gives edits of a tree: each makes its change, and returns what undoes it."""


def _pass(text: str, edits: Edits, fails: Fails, end: float) -> str:
    """The text after all edits of a kind that keep the failure."""
    tree = ast.parse(text)
    for edit in list(edits(tree)):
        if time.monotonic() > end:
            break
        undo = edit()
        candidate = ast.unparse(tree)
        if candidate == text:
            continue
        if _parses(candidate) and fails(candidate):
            text = candidate
        else:
            undo()
    return text


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [n for n in tree.body if isinstance(n, ast.FunctionDef)]


def _bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """The lists of statements within functions, outer ones first."""
    for function in reversed(_functions(tree)):
        for node in ast.walk(function):
            for field in ("body", "orelse"):
                found = getattr(node, field, None)
                if isinstance(found, list) and found:
                    yield found


def _replacing(items: list[ast.stmt], place: ast.stmt, by: list[ast.stmt]) -> Callable[[], None]:
    """Put statements in the place of one; an empty list gets a `pass`."""
    before = list(items)
    if place in items:
        at = items.index(place)
        items[at : at + 1] = by
        if not items:
            items.append(ast.Pass())

    def undo() -> None:
        items[:] = before

    return undo


def _without_statements(tree: ast.Module) -> Iterator[Callable[[], Callable[[], None]]]:
    for items in _bodies(tree):
        size = len(items) // 2
        while size:
            for stop in range(len(items), 0, -size):
                part = items[max(0, stop - size) : stop]
                yield lambda items=items, part=part: _removing(items, part)
            size //= 2


def _removing(items: list[ast.stmt], part: list[ast.stmt]) -> Callable[[], None]:
    before = list(items)
    if any(p in items and not isinstance(p, ast.Pass) for p in part):
        items[:] = [i for i in items if i not in part] or [ast.Pass()]

    def undo() -> None:
        items[:] = before

    return undo


def _flattened(tree: ast.Module) -> Iterator[Callable[[], Callable[[], None]]]:
    """A block in the place of what it is the block of."""
    for items in _bodies(tree):
        for place in items:
            for field in ("body", "orelse"):
                inner = getattr(place, field, None)
                if isinstance(inner, list) and inner:
                    yield lambda items=items, place=place, inner=inner: _replacing(
                        items, place, inner
                    )


def _without_unused(text: str) -> str:
    """The program without the functions and classes that nothing names."""
    while True:
        tree = ast.parse(text)
        named = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {"kernel"}
        tree.body = [
            n for n in tree.body
            if not isinstance(n, ast.FunctionDef | ast.ClassDef) or n.name in named
        ]  # fmt: skip
        kept = ast.unparse(tree)
        if kept == text:
            return text
        text = kept


def _simpler_expressions(tree: ast.Module) -> Iterator[Callable[[], Callable[[], None]]]:
    """A part of an expression in the place of the whole."""
    for function in _functions(tree):
        for node in list(ast.walk(function)):
            if not isinstance(node, ast.expr | ast.stmt | ast.keyword):
                continue
            for field, value in ast.iter_fields(node):
                if isinstance(value, ast.expr):
                    for part in _parts(value):
                        yield lambda node=node, field=field, part=part: _setting(node, field, part)
                elif isinstance(value, list):
                    for i, item in enumerate(value):
                        if isinstance(item, ast.expr):
                            for part in _parts(item):
                                yield lambda items=value, i=i, part=part: _putting(items, i, part)


def _parts(node: ast.expr) -> list[ast.expr]:
    """Parts to try in its place, the smallest first."""
    found = [
        n for n in ast.walk(node)
        if isinstance(n, ast.expr) and n is not node and not isinstance(n, ast.Attribute)
    ]  # fmt: skip
    found.sort(key=lambda n: len(ast.unparse(n)))
    return found[:12]


def _setting(node: ast.AST, field: str, part: ast.expr) -> Callable[[], None]:
    before = getattr(node, field)
    setattr(node, field, part)
    return lambda: setattr(node, field, before)


def _putting(items: list[ast.expr], i: int, part: ast.expr) -> Callable[[], None]:
    before = items[i]
    items[i] = part

    def undo() -> None:
        items[i] = before

    return undo
