"""The variables that a function captures from enclosing functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import CellType, FunctionType
from typing import Any


class Captured(Mapping[str, Any]):
    """The captured variables of a function, by name, with their present values. Variables that are
    not bound yet are absent.

    Attributes:
        cells: the cells of all captured variables, by name.
    """

    def __init__(self, fn: FunctionType) -> None:
        self.cells: dict[str, CellType] = dict(
            zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        )

    def __getitem__(self, name: str) -> Any:
        try:
            return self.cells[name].cell_contents
        except ValueError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.cells if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
