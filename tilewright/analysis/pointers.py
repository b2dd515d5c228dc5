"""Decomposition of canonical pointers, and alias analysis of pointers.

Input: tile IR after `passes/canonicalize_pointers.py` for `split_pointer`; any IR for `base_of` and
the others. Each query follows one chain of definitions. The IR is not modified.
"""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import Pointer, Tile, element_of
from tilewright.ops import arith, atomic, memory, shape
from tilewright.ops.view import View


class PointerParts(NamedTuple):
    """A pointer as base + uniform + varying, in elements.

    Attributes:
        base: a scalar pointer, such as a function's argument; or a tile of pointers of unknown
            origin.
        uniform: a scalar i64 that is added to all elements; None for 0.
        varying: a tile of integers, each sign-extended (zero-extended when unsigned); None for 0.
    """

    base: Value
    uniform: Value | None
    varying: Value | None


def split_pointer(pointer: Value) -> PointerParts:
    """The parts of a pointer in the canonical form of `passes/canonicalize_pointers.py`.

        addptr(splat(addptr(base, uniform)), varying)

    Each of the three ops is optional, and a hint may wrap the whole form. A pointer in any other
    form is its own base. Casts between pointers to elements of the same size are ignored: bools are
    accessed as bytes, through such casts.
    """
    varying: Value | None = None
    if isinstance(pointer.op, arith.Hint) and isinstance(pointer.type, Tile):
        pointer = pointer.op.src
    pointer = _uncast(pointer)
    if isinstance(pointer.type, Tile):
        if isinstance(pointer.op, memory.AddPtr):
            varying = pointer.op.offset
            pointer = _uncast(pointer.op.ptr)
        if not isinstance(pointer.op, shape.Splat):
            return PointerParts(pointer, None, varying)
        pointer = _uncast(pointer.op.src)
    if isinstance(pointer.op, memory.AddPtr):
        return PointerParts(_uncast(pointer.op.ptr), pointer.op.offset, varying)
    return PointerParts(pointer, None, varying)


def _uncast(pointer: Value) -> Value:
    """The pointer without casts that preserve the element size."""
    op = pointer.op
    while _is_pointer_cast(op) and _element_bytes(op.operands[0]) == _element_bytes(pointer):
        pointer = op.operands[0]
        op = pointer.op
    return pointer


def _is_pointer_cast(op: Op | None) -> TypeGuard[arith.Bitcast]:
    if not isinstance(op, arith.Bitcast):
        return False
    return all(isinstance(element_of(v.type), Pointer) for v in (op.src, op.result))


def _element_bytes(pointer: Value) -> int:
    return memory.pointee_of(pointer.type).nbytes_in_memory


def base_of(pointer: Value) -> Value:
    """The pointer from which this one is computed by offsets, views and casts, in any form."""
    op = pointer.op
    while isinstance(op, memory.AddPtr | View) or _is_pointer_cast(op):
        pointer = op.operands[0]
        op = pointer.op
    return pointer


def may_overlap(fn: Function, a: Value, b: Value) -> bool:
    """Whether the memory of two pointers, or tiles of pointers, may overlap.

    It does not if their bases are arguments with different ``alias`` classes.
    """
    classes = [_alias_class(fn, base_of(pointer)) for pointer in (a, b)]
    return None in classes or classes[0] == classes[1]


def may_write(fn: Function, op: Op, pointer: Value) -> bool:
    """Whether an op itself may write memory of a pointer, or of a tile of pointers."""
    if isinstance(op, memory.Store | atomic.Writing):
        return may_overlap(fn, pointer, op.ptr)
    return op.is_write() and not op.local


def may_change(fn: Function, op: Op, pointer: Value) -> bool:
    """Whether a load of a pointer, or of a tile of pointers, may differ before and after an op,
    which may write there, or order the load and writes of other threads or programs."""
    return may_write(fn, op, pointer) or op.local or atomic.synchronizes(op)


def _alias_class(fn: Function, base: Value) -> int | None:
    if base.owner is not fn.body:
        return None
    return fn.arg_attrs[base.index].get("alias")
