"""Python's access to the structures of the native code."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from tilewright.runtime.native.layout import FIELDS, SIZES, WORD


class Structure:
    """Memory for an array of structures of one type; it keeps the objects it refers to alive.

    Args:
        name: the type, a key of `FIELDS`.
        count: number of elements.

    Attributes:
        address: of the first element.
    """

    def __init__(self, name: str, count: int = 1) -> None:
        self._fields = FIELDS[name]
        self._words = SIZES[name] // WORD
        self._memory = (ctypes.c_uint64 * (self._words * max(1, count)))()
        self._kept: dict[int, Any] = {}
        self._more_kept: list[Any] = []
        self.address = ctypes.addressof(self._memory)

    def put(self, field: str, value: int, index: int = 0) -> None:
        """Set a field to a number, or to the address of something that the caller keeps alive."""
        self._memory[self._at(field, index)] = value & (1 << 64) - 1

    def put_object(self, field: str, value: Any, index: int = 0, skip: int = 0) -> None:
        """Set a field to the address of an object, and keep the object alive.

        Args:
            skip: offset of the word from the field, in words.
        """
        at = self._at(field, index) + skip
        before = self._kept.get(at)  # must outlive its address in the structure
        self._kept[at] = value
        self._memory[at] = id(value)
        del before

    def put_words(self, field: str, values: Iterable[int], index: int = 0, skip: int = 0) -> None:
        """Set consecutive words, beginning with a field.

        The slice assignment does not release the GIL, so native code in other threads sees all
        words or none: never a count together with stale addresses.

        Args:
            skip: offset of the first word from the field, in words.
        """
        at, words = self._at(field, index) + skip, [value & (1 << 64) - 1 for value in values]
        self._memory[at : at + len(words)] = words

    def keep(self, field: str, value: Structure, index: int = 0) -> None:
        """Set a field to the address of another structure, and keep that alive."""
        at = self._at(field, index)
        self._kept[at] = value
        self._memory[at] = value.address

    def keep_alive(self, value: Any) -> None:
        """Keep an object alive whose address is in the structure."""
        self._more_kept.append(value)

    def address_of(self, field: str) -> int:
        """Address of a field of the first element."""
        return self.address + self._fields[field].offset

    def _at(self, field: str, index: int) -> int:
        return index * self._words + self._fields[field].offset // WORD

    def words(self) -> list[int]:
        """All words."""
        return list(self._memory)
