"""What a pointer consists of, and which pointers may meet.

Ops are told by name, for their classes are a layer above.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir.core import Function, Value
from tilewright.ir.types import Tile

# Ops whose result points into the same object as their first operand.
_SAME_OBJECT = frozenset(
    {
        "mem.addptr",
        "tile.splat",
        "tile.expand_dims",
        "tile.broadcast",
        "tile.reshape",
        "tile.permute",
        "tile.flip",
        "arith.hint",
    }
)


class PointerParts(NamedTuple):
    """A pointer as base + uniform + varying, in elements.

    Attributes:
        base: a scalar pointer, such as a function's argument; or a tile of pointers of which
            nothing is known.
        uniform: a scalar i64 that is added for all elements; None for 0.
        varying: a tile of integers, each sign-extended (zero-extended when unsigned); None for 0.
    """

    base: Value
    uniform: Value | None
    varying: Value | None


def split_pointer(pointer: Value) -> PointerParts:
    """The parts of a pointer in the form that `passes/canonicalize_pointers.py` leaves.

        addptr(splat(addptr(base, uniform)), varying)

    Any of the three ops may be missing. A pointer in another form is its own base.
    """
    varying: Value | None = None
    op = pointer.op
    if isinstance(pointer.type, Tile):
        if op is not None and op.name == "mem.addptr":
            pointer, varying = op.operands
            op = pointer.op
        if op is None or op.name != "tile.splat":
            return PointerParts(pointer, None, varying)
        pointer = op.operands[0]
        op = pointer.op
    if op is not None and op.name == "mem.addptr":
        return PointerParts(op.operands[0], op.operands[1], varying)
    return PointerParts(pointer, None, varying)


def base_of(pointer: Value) -> Value:
    """The value that the pointer was computed from, in whatever form, by changes of offset and
    shape alone."""
    op = pointer.op
    while op is not None and op.name in _SAME_OBJECT:
        pointer = op.operands[0]
        op = pointer.op
    return pointer


def may_overlap(fn: Function, a: Value, b: Value) -> bool:
    """Whether what the two pointers (or tiles of them) point to may share a byte.

    They may not where they come from arguments whose ``alias`` classes differ.
    """
    classes = [_alias_class(fn, base_of(pointer)) for pointer in (a, b)]
    return None in classes or classes[0] == classes[1]


def _alias_class(fn: Function, base: Value) -> int | None:
    if base.owner is not fn.body:
        return None
    return fn.arg_attrs[base.index].get("alias")
