"""Structures of the native code, as Python fills them in."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from tilewright.runtime.native.layout import FIELDS, SIZES, WORD


class Structure:
    """Memory for some structures of one kind. It keeps the objects whose addresses it holds.

    Attributes:
        address: of the first structure.
    """

    def __init__(self, name: str, count: int = 1) -> None:
        self._fields = FIELDS[name]
        self._words = SIZES[name] // WORD
        self._memory = (ctypes.c_uint64 * (self._words * max(1, count)))()
        self._kept: dict[int, Any] = {}
        self.address = ctypes.addressof(self._memory)

    def put(self, field: str, value: int, index: int = 0) -> None:
        """Set a field to a number, or to an address of what is kept elsewhere."""
        self._memory[self._at(field, index)] = value & (1 << 64) - 1

    def put_object(self, field: str, value: Any, index: int = 0) -> None:
        """Set a field to the address of an object, which is kept."""
        at = self._at(field, index)
        before = self._kept.get(at)  # for as long as its address is there
        self._kept[at] = value
        self._memory[at] = id(value)
        del before

    def put_words(self, field: str, values: Iterable[int], index: int = 0, skip: int = 0) -> None:
        """Set words from the first of a field on, all at once for other threads: native code in
        one of them must not find an address gone and its count still there.

        Args:
            skip: begin so many words after the field's first.
        """
        at, words = self._at(field, index) + skip, [value & (1 << 64) - 1 for value in values]
        self._memory[at : at + len(words)] = words

    def keep(self, field: str, value: Structure, index: int = 0) -> None:
        """Set a field to the address of another structure, which is kept."""
        at = self._at(field, index)
        self._kept[at] = value
        self._memory[at] = value.address

    def address_of(self, field: str) -> int:
        """Where a field is."""
        return self.address + self._fields[field].offset

    def _at(self, field: str, index: int) -> int:
        return index * self._words + self._fields[field].offset // WORD

    def words(self) -> list[int]:
        """Everything in it."""
        return list(self._memory)
