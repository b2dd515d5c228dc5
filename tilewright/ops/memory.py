"""Pointers, loads and stores. Offsets count elements; masked-off lanes do not access memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, optional, require
from tilewright.ir.index_map import IndexMap, broadcast
from tilewright.ir.traits import ELEMENTWISE, READS, WRITES
from tilewright.ir.types import (
    I1,
    Pointer,
    Scalar,
    Type,
    element_of,
    is_int,
    is_pointer,
    shape_of,
    with_element,
)
from tilewright.ops.numeric import Array


def pointee_of(type: Type) -> Scalar:
    """The pointee type of a pointer or a tile of pointers."""
    element = element_of(type)
    assert isinstance(element, Pointer)
    return element.element_ty


class AddPtr(Op, name="mem.addptr", traits=ELEMENTWISE):
    """A pointer offset by `offset` elements. Signed offsets are sign-extended to 64 bits.

    %2 = mem.addptr %0, %1 : (4xptr<fp32>, 4xi32) -> 4xptr<fp32>
    """

    ptr: Value = operand()
    offset: Value = operand()

    def result_type(self) -> Type:
        return self.ptr.type

    def verify(self) -> None:
        require(
            is_pointer(self.ptr.type),
            self,
            "operand-types",
            "{t} is not a pointer",
            t=self.ptr.type,
        )
        require(
            is_int(self.offset.type) and shape_of(self.ptr.type) == shape_of(self.offset.type),
            self,
            "operand-types",
            "the offset {b} must be integers in the shape of the pointer {a}",
            a=self.ptr.type,
            b=self.offset.type,
        )

    def evaluate(self, ptr: Array, offset: Array) -> Array:
        size = pointee_of(self.ptr.type).nbytes_in_memory
        wide = offset.astype(np.int64 if offset.dtype.kind == "i" else np.uint64)
        return ptr + wide.astype(np.uint64) * np.uint64(size)


def verify_mask(op: Op, ptr: Value, mask: Value | None) -> None:
    """Verify that the mask of a memory op is i1 in the shape of the pointer."""
    expected = with_element(ptr.type, I1)
    require(
        mask is None or mask.type == expected,
        op,
        "mask-type",
        "the mask is {m}, it must be {w}",
        m=mask.type if mask else "",
        w=expected,
    )


def verify_pointer(op: Op, ptr: Value) -> None:
    require(is_pointer(ptr.type), op, "operand-types", "{t} is not a pointer", t=ptr.type)


def verify_writable(op: Op, ptr: Value) -> None:
    """Verify that a memory op that writes does not take a const pointer."""
    element = element_of(ptr.type)
    require(
        not (isinstance(element, Pointer) and element.const),
        op,
        "const-pointer",
        "stores through a constant pointer",
    )


def verify_stored(op: Op, ptr: Value, value: Value) -> None:
    """Verify that a value has the pointee type."""
    expected = pointed_type(ptr)
    require(
        value.type == expected,
        op,
        "operand-types",
        "stores {v}, it must be {w}",
        v=value.type,
        w=expected,
    )


def pointed_type(ptr: Value) -> Type:
    """The type of a loaded value: a scalar, or a tile of the pointer's shape."""
    return with_element(ptr.type, pointee_of(ptr.type))


class Access(Op):
    """Base class of ops that read or write memory through each element of `ptr`."""

    ptr: Value = operand()

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        shape = shape_of(self.ptr.type)
        return tuple(broadcast(shape_of(v.type), shape) for v in self.operands)


class Load(Access, name="mem.load", traits=READS):
    """Loads from `ptr`. Masked-off lanes return `other`, or 0 if it is absent.

    `cache`, `evict`: caching hints. `volatile`: must not be removed, duplicated or merged, and
    counts as a write: no other access moves past it.

        %3 = mem.load %0, %1, %2, cache="", evict="", volatile=False
          : (4xptr<fp32>, 4xi1, 4xfp32) -> 4xfp32
    """

    mask: Value | None = optional()
    other: Value | None = optional()
    cache: str = attr("")
    evict: str = attr("")
    volatile: bool = attr(False)

    def result_type(self) -> Type:
        verify_pointer(self, self.ptr)
        return pointed_type(self.ptr)

    def is_write(self) -> bool:
        return self.volatile

    def verify(self) -> None:
        verify_mask(self, self.ptr, self.mask)
        if self.other is not None:
            require(self.mask is not None, self, "other-without-mask", "`other` needs a mask")
            require(
                self.other.type == self.result_type(),
                self,
                "operand-types",
                "`other` is {o}, it must be {w}",
                o=self.other.type,
                w=self.result_type(),
            )

    no_evaluate = "it accesses memory; see execute"

    def execute(self, state: Any, *args: Any) -> Array:
        ptr, mask, other = split_optional(self, args)
        return state.memory.load(self, ptr, mask, other)


class Store(Access, name="mem.store", traits=WRITES):
    """Stores `value` to `ptr` in lanes whose `mask` is true. If lanes have the same address, the
    last one in row-major order wins.

        mem.store %0, %1, %2, cache="", evict="" : (4xptr<fp32>, 4xfp32, 4xi1) -> ()
    """

    value: Value = operand()
    mask: Value | None = optional()
    cache: str = attr("")
    evict: str = attr("")

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        verify_pointer(self, self.ptr)
        verify_mask(self, self.ptr, self.mask)
        verify_stored(self, self.ptr, self.value)
        verify_writable(self, self.ptr)

    no_evaluate = "it accesses memory; see execute"

    def execute(self, state: Any, *args: Any) -> tuple[()]:
        ptr, value, mask = split_optional(self, args)
        state.memory.store(self, ptr, value, mask)
        return ()


def split_optional(op: Op, args: tuple[Any, ...]) -> list[Any]:
    """The arrays of the operands, one for each operand field; None for absent optional operands."""
    remaining = iter(args)
    return [next(remaining) if count else None for count in op.spans]
