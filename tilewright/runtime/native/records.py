"""The structure Record, with which native code starts a loaded kernel."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.source import runtime_arguments
from tilewright.runtime.native.layout import FIELDS, MAX_SLOTS, TO_FP32, WORD
from tilewright.runtime.native.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a loaded kernel by native code: the contents of its structure Record.

    Attributes:
        fields: values of fields by name; several of an array.
        objects: values of the fields that are Python objects, by name.
        slots: for each of the kernel's arguments, in order, the index of its slot, and TO_FP32 if
            it must be rounded.
    """

    fields: Mapping[str, int | Sequence[int]]
    objects: dict[str, Any]
    slots: list[int]

    def record(self, kernel: CompiledKernel) -> bytes:
        """The structure as bytes, truncated after its last slot."""
        fields = FIELDS["Record"]
        words = [0] * (fields["slots"].offset // WORD)
        addresses = {name: id(value) for name, value in self.objects.items()}
        common = {"kernel": id(kernel), "count": len(self.slots)}
        for name, value in {**self.fields, **addresses, **common}.items():
            at, values = fields[name].offset // WORD, [value] if isinstance(value, int) else value
            words[at : at + len(values)] = values
        return struct.pack(f"={len(words) + len(self.slots)}Q", *words, *self.slots)


NativeStart: TypeAlias = Callable[[Runtime], Start | None]
"""The method `native_start` of a loaded kernel; returns None if native code cannot start it."""


def slots_of(arguments: Sequence[Any], types: Sequence[Any]) -> list[int] | None:
    """`Start.slots` of a variant; None if only Python can pack its arguments: floats narrower than
    fp32, or more than MAX_SLOTS slots.

    Args:
        arguments: path and type string of each argument that is passed at run time.
        types: types of all parameters; nested tuples for tuples.
    """
    numbers: dict[tuple[int, ...], int] = {}
    used = len(types)
    for i, kind in enumerate(types):
        used = _number((i,), kind, i, used, numbers)
    if used > MAX_SLOTS or any(k.startswith(("fp16", "bf", "fp8")) for _, k in arguments):
        return None
    return [numbers[tuple(path)] | (TO_FP32 if kind == "fp32" else 0) for path, kind in arguments]


def _number(
    path: tuple[int, ...], kind: Any, slot: int, used: int, numbers: dict[tuple[int, ...], int]
) -> int:
    """Assign the slots of an argument, in the order in which `read_any` allocates them.

    Each item of a tuple gets a slot, followed by the slots of its own items. A tensor descriptor
    has its base in its own slot, and its extents and strides in newly allocated ones.

    Returns:
        the number of slots used so far.
    """
    if isinstance(kind, tuple | list):
        for i, item in enumerate(kind):
            used = _number((*path, i), item, used, used + 1, numbers)
    elif kind.startswith("tensordesc"):
        parts = [part for part, _ in runtime_arguments([kind])]
        rank = kind.partition("[")[2].partition("]")[0].count(",") + 1
        for _, place in parts:
            numbers[*path, place] = slot if place == 0 else used + place - 1
        used += 2 * rank
    else:
        numbers[path] = slot
    return used
