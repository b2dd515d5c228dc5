"""Slots: the arguments of kernels, with addresses in place of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.runtime.descriptors import is_descriptor, parts_of
from tilewright.runtime.tensors import find_reader


def slot_of(value: Any) -> Any:
    """The slot of an argument: the address of a tensor, or the parts of a descriptor."""
    if isinstance(value, tuple):
        return tuple(map(slot_of, value))
    if is_descriptor(value):
        return tuple(map(slot_of, parts_of(value)))
    reader = find_reader(value)
    return value if reader is None else reader(value)[0]


def at_path(values: Any, path: Sequence[int]) -> Any:
    """The value at a path: parameter index, then index in the tuple or descriptor, …"""
    for index in path:
        values = (parts_of(values) if is_descriptor(values) else values)[index]
    return values
