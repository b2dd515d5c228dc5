"""What a pointer consists of, and which pointers may meet."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir.core import Function, Value
from tilewright.ir.types import Tile
from tilewright.ops import arith, memory, shape
from tilewright.ops.view import View


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

    Any of the three ops may be missing, and there may be a hint around all. A pointer in another
    form is its own base.
    """
    varying: Value | None = None
    op = pointer.op
    if isinstance(op, arith.Hint) and isinstance(pointer.type, Tile):
        pointer = op.src
        op = pointer.op
    if isinstance(pointer.type, Tile):
        if isinstance(op, memory.AddPtr):
            pointer, varying = op.ptr, op.offset
            op = pointer.op
        if not isinstance(op, shape.Splat):
            return PointerParts(pointer, None, varying)
        pointer = op.src
        op = pointer.op
    if isinstance(op, memory.AddPtr):
        return PointerParts(op.ptr, op.offset, varying)
    return PointerParts(pointer, None, varying)


def base_of(pointer: Value) -> Value:
    """The value that the pointer was computed from, in whatever form, by changes of offset and
    shape alone."""
    op = pointer.op
    while isinstance(op, memory.AddPtr | View):
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
