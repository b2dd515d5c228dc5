"""The arrays of a kernel, by the pointer arguments that its loads and stores access, and the
addresses of their derivatives."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.analysis.pointers import base_of
from tilewright.autodiff.registry import derivative_error
from tilewright.base.record import field, record
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import DType, Pointer, is_pointer
from tilewright.ops import arith, memory
from tilewright.ops.atomic import AnyAtomic, AtomicRMW
from tilewright.ops.control import Barrier
from tilewright.ops.debug import Assert, Print
from tilewright.ops.memory import Access, Load, Store
from tilewright.ops.view import View

_KNOWN = (Access, Barrier, Print, Assert)
"""The ops that write memory, or do nothing to it in spite of their traits."""


@record(frozen=False)
class Array:
    """A pointer argument and its accesses, in the order of the ops."""

    index: int
    name: str
    arg: Value
    loads: list[Load] = field(default_factory=list[Load])
    stores: list[Store] = field(default_factory=list[Store])
    atomics: list[AnyAtomic] = field(default_factory=list[AnyAtomic])

    @property
    def element(self) -> DType | None:
        """The type of its elements; None of an array of pointers."""
        assert isinstance(self.arg.type, Pointer)
        element = self.arg.type.element_ty
        return element if isinstance(element, DType) else None

    @property
    def is_float(self) -> bool:
        return self.element is not None and self.element.is_floating()

    @property
    def writes(self) -> list[Store | AnyAtomic]:
        return [*self.stores, *self.atomics]


def arrays_of(fn: Function) -> dict[Value, Array]:
    """The arrays of a kernel by argument.

    Raises:
        CompilationError: the address of an access is not computed from one argument.
    """
    names = fn.arg_names or [f"arg{i}" for i in range(len(fn.args))]
    found = {a: Array(i, names[i], a) for i, a in enumerate(fn.args) if is_pointer(a.type)}
    for op in fn.walk():
        if op.writes_memory and not isinstance(op, _KNOWN):
            raise derivative_error(
                op, f"no derivative of a kernel with {op.name}: it may write memory"
            )
        if isinstance(op, Access):
            array = found.get(base_of(op.ptr))
            if array is None:
                raise derivative_error(
                    op,
                    "the address is not computed from a single pointer argument",
                    "help: pass each array as an argument: pointers that are loaded, selected "
                    "element by element, or changed to another array by a loop have no derivative",
                )
            _list(array, op)
    return found


def _list(array: Array, op: Access) -> None:
    if isinstance(op, Load):
        array.loads.append(op)
    elif isinstance(op, Store):
        array.stores.append(op)
    else:
        assert isinstance(op, AnyAtomic)
        array.atomics.append(op)


def require_elements(array: Array, op: Access) -> None:
    """Raise unless the op accesses elements of the array's own type, by offsets in elements: the
    address of an element's derivative is computed from the element's number."""
    if memory.pointee_of(op.ptr.type) != array.element or _has_other_offsets(array, op.ptr):
        raise derivative_error(
            op,
            f"{array.name} is accessed through a pointer that was cast to another element type: "
            "its elements have no derivative",
        )


def _has_other_offsets(array: Array, pointer: Value) -> bool:
    """Whether a pointer is moved by elements of another size, as bytes."""
    assert array.element is not None
    while (op := pointer.op) is not None:
        if isinstance(op, memory.AddPtr):
            moved = memory.pointee_of(pointer.type)
            if moved.nbytes_in_memory != array.element.nbytes_in_memory:
                return True
        pointer = op.operands[0]
    return False


def is_sum(op: Op) -> bool:
    """Whether an op adds to memory, atomically."""
    return isinstance(op, AtomicRMW) and op.kind == "add"


class Rebase:
    """Addresses of derivatives: those of a kernel's accesses, from another base.

    Args:
        builder: inserts their computation.
        plain: a value of the forward function, here.
    """

    def __init__(self, builder: Builder, plain: Callable[[Value], Value]) -> None:
        self._builder = builder
        self._plain = plain

    def __call__(self, pointer: Value, base: Value) -> Value:
        """The pointer with its base replaced; elements may have another type."""
        op = pointer.op
        match op:
            case memory.AddPtr(ptr, offset):
                moved = self(ptr, base)
                return self._builder.value(memory.AddPtr(moved, self._plain(offset)))
            case arith.Hint(src):
                return self(src, base)
            case View(src):
                return self._builder.value(type(op)(self(src, base), **op.attributes))
            case arith.Bitcast(src):
                return self(src, base)
            case None:
                return base
            case _:
                raise derivative_error(op, "the address is not an offset from a pointer argument")
