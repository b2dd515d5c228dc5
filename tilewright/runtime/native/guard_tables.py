"""The tables of guards on names that the native code of a launch checks: globals, captured
variables and attributes; see `guards.py`.

A namespace of a module has many entries that kernels do not use, and is rarely modified. Where
CPython counts the modifications of each dict (`ma_version_tag` of PEP 509, up to 3.13), comparing
one word shows that a namespace is unchanged; otherwise each entry is looked up.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from types import CellType
from typing import Any, NamedTuple, TypeAlias

from tilewright.frontend.captured import Captured
from tilewright.language.values import constexpr
from tilewright.runtime.native.layout import FIELDS, WORD
from tilewright.runtime.native.structure import Structure

WatchedName: TypeAlias = tuple[Mapping[str, Any], str]
"""A namespace, such as an object's `__dict__`, and a name in it whose value must not change."""

_ABSENT = object()


def fill_guards(
    state: Structure, attributes: Sequence[WatchedName], variables: Sequence[WatchedName]
) -> None:
    """Fill in State.globals and State.guards with the present values of names.

    Args:
        state: the structure State.
        attributes: names in dicts of objects.
        variables: global and captured variables; of a constexpr, the value in it as well.
    """
    always, guards = list(attributes), list[_Guard]()
    by_scope: dict[int, list[WatchedName]] = {}
    for scope, name in variables:
        value = scope.get(name, _ABSENT)
        if type(value) is constexpr:
            guards.append(_Guard(id(value) + _value_offset(), id(value.value), value.value))
        if isinstance(scope, Captured):
            cell = scope.cells[name]
            address = id(cell) + FIELDS["Cell"]["object"].offset
            guards.append(_Guard(address, 0 if value is _ABSENT else id(value), (cell, value)))
        elif version_offset():
            by_scope.setdefault(id(scope), []).append((scope, name))
        else:
            always.append((scope, name))
    guards += map(_version_guard, by_scope.values())
    # Another thread may check the guards meanwhile: a count is never larger than its table.
    state.put("global_count", 0)
    state.put("guard_count", 0)
    state.keep("globals", _globals(always))
    state.keep("guards", _table(guards))
    state.put("global_count", len(always))
    state.put("guard_count", len(guards))


class _Guard(NamedTuple):
    """A row of State.guards.

    word: the address of a word.
    value: its expected value.
    kept: the object that the word refers to, and the owner of the word.
    globals: if the word is the version of a dict: the names in the dict that must be unchanged.
    """

    word: int
    value: int
    kept: object
    globals: Sequence[WatchedName] = ()


def _version_guard(names: Sequence[WatchedName]) -> _Guard:
    scope = names[0][0]
    address = id(scope) + version_offset()
    return _Guard(address, _word_at(address), scope, names)


def _table(guards: Sequence[_Guard]) -> Structure:
    table = Structure("Guard", len(guards))
    for i, guard in enumerate(guards):
        table.put("word", guard.word, i)
        table.put("value", guard.value, i)
        table.put("count", len(guard.globals), i)
        table.keep("globals", _globals(guard.globals), i)
        table.keep_alive(guard.kept)
    return table


def _globals(names: Sequence[WatchedName]) -> Structure:
    table = Structure("Global", len(names))
    for i, (scope, name) in enumerate(names):
        table.put_object("scope", scope, i)
        table.put_object("name", name, i)
        if name in scope:
            table.put_object("object", scope[name], i)
    return table


def _word_at(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


@cache
def _value_offset() -> int:
    """The offset in a constexpr of its reference to the value."""
    value = object()
    sample = constexpr(value)
    offsets = range(object.__basicsize__, constexpr.__basicsize__, WORD)
    return next(at for at in offsets if _word_at(id(sample) + at) == id(value))


def cells_are_as_expected() -> bool:
    """Whether cells have their reference at the expected offset."""
    value = object()
    at = FIELDS["Cell"]["object"].offset
    full, empty = CellType(value), CellType()
    return (_word_at(id(full) + at), _word_at(id(empty) + at)) == (id(value), 0)


_MODIFICATIONS: tuple[Callable[[dict[str, Any]], object], ...] = (
    lambda d: d.update(a=1),
    lambda d: d.update(a=2),
    lambda d: d.__setitem__("a", 3),
    lambda d: d.__setitem__("b", 3),
    lambda d: d.setdefault("c", 4),
    lambda d: exec("global a; a = 5", d),
    lambda d: exec("global d; d = 5", d),
    lambda d: exec("global d; del d", d),
    lambda d: d.pop("a"),
    lambda d: d.__delitem__("b"),
    lambda d: d.popitem(),
    lambda d: d.clear(),
    lambda d: d.update({"a": 1}),
    lambda d: d.__ior__({"a": 2}),
)


@cache
def version_offset() -> int:
    """The offset of a dict's version; 0 if this Python does not maintain one."""
    at = FIELDS["Dict"]["version"].offset
    return at if all(a != b for a, b in pairwise(_versions(at))) else 0


def _versions(at: int) -> Iterable[int]:
    """The words of a dict at an offset, between modifications of it."""
    sample: dict[str, Any] = {"__builtins__": {}}
    yield _word_at(id(sample) + at)
    for modify in _MODIFICATIONS:
        modify(sample)
        yield _word_at(id(sample) + at)
