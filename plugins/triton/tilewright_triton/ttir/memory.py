"""Pointers, loads and stores, and atomics.

A bool in memory is a byte, and a pointer there 64 bits: they are loaded as `i8` and `i64`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.types import (
    I32,
    I64,
    DType,
    Pointer,
    Type,
    dtype_of,
    element_of,
    int_type,
    shape_of,
    with_element,
)
from tilewright.ops import memory
from tilewright.ops.atomic import AtomicCAS, AtomicLoad, AtomicPoll, AtomicRMW, AtomicStore
from tilewright.ops.memory import pointee_of
from tilewright_triton.ttir.casts import converted
from tilewright_triton.ttir.numbers import bitcast, both, compare, inverted, select
from tilewright_triton.ttir.writer import EMITTERS, Ref, Writer


@EMITTERS.of(memory.AddPtr)
def emit_addptr(w: Writer, op: memory.AddPtr) -> None:
    """`tt.addptr` extends its offset by the sign: an unsigned one is extended before."""
    ptr, offset = w.use(op.ptr), w.use(op.offset)
    element = dtype_of(offset.type)
    if element.is_int_unsigned() and element.primitive_bitwidth < 64:
        offset = converted(w, offset, I64 if element.primitive_bitwidth == 32 else I32)
    types = f"{w.type(ptr.type)}, {w.type(offset.type)}"
    w.bind(op.result, w.op("tt.addptr", [ptr, offset], types=types))


def _in_memory(w: Writer, value: Ref) -> Ref:
    """A value as it is stored."""
    element = element_of(value.type)
    if isinstance(element, Pointer):
        return bitcast(w, value, I64)
    return converted(w, value, int_type(8, False)) if element.is_bool() else value


def _from_memory(w: Writer, stored: Ref, type: Type) -> Ref:
    """A value of a type, from what is stored."""
    element = element_of(type)
    return (
        bitcast(w, stored, element)
        if isinstance(element, Pointer)
        else converted(w, stored, element)
    )


def _stored_type(type: Type) -> Type:
    element = element_of(type)
    if isinstance(element, Pointer):
        return with_element(type, I64)
    return with_element(type, int_type(8, False)) if element.is_bool() else type


def _advice(cache: str, evict: str, *, volatile: bool = False) -> str:
    """At most one of the hints: PTX permits no two of them, and none for volatile accesses."""
    if volatile:
        return ""
    if cache:
        return f" cacheModifier = {cache}"
    return f" evictionPolicy = {evict}" if evict else ""


@EMITTERS.of(memory.Load)
def emit_load(w: Writer, op: memory.Load) -> None:
    ptr, mask, other = (None if v is None else w.use(v) for v in (op.ptr, op.mask, op.other))
    assert ptr is not None
    stored = _stored_type(op.result.type)
    operands = [ptr]
    if mask is not None:
        missing = w.constant(_zero(stored), stored) if other is None else _in_memory(w, other)
        operands += [mask, missing]
    words = _advice(op.cache, op.evict, volatile=op.volatile)
    attributes = {"isVolatile": "true"} if op.volatile else {}
    found = w.op(
        "tt.load", operands, stored, types=w.type(ptr.type), words=words, attributes=attributes
    )
    w.bind(op.result, _from_memory(w, found, op.result.type))


def _zero(type: Type) -> int | float:
    return 0.0 if element_of(type).is_floating() else 0


@EMITTERS.of(memory.Store)
def emit_store(w: Writer, op: memory.Store) -> None:
    operands = [w.use(op.ptr), _in_memory(w, w.use(op.value))]
    if op.mask is not None:
        operands.append(w.use(op.mask))
    names = ", ".join(v.name for v in operands)
    w.effect(f"tt.store {names}{_advice(op.cache, op.evict)}", w.type(op.ptr.type))


# -- atomics --------------------------------------------------------------------------------------


def _rmw(w: Writer, kind: str, sem: str, scope: str, ptr: Ref, value: Ref, mask: Ref | None) -> Ref:
    # A scope of all devices is `sys`, as in tile IR.
    operands = [ptr, value] if mask is None else [ptr, value, mask]
    first = Ref(f"{kind}, {sem}, {scope}, {ptr.name}", ptr.type)
    types = ", ".join(w.type(v.type) for v in operands)
    return w.op(
        "tt.atomic_rmw", [first, *operands[1:]], value.type,
        types=f"({types}) -> {w.type(value.type)}",
    )  # fmt: skip


def _masked(w: Writer, old: Ref, mask: Ref | None) -> Ref:
    """The old value, 0 in lanes that do not act."""
    if mask is None:
        return old
    return select(w, mask, old, w.constant(_zero(old.type), old.type))


def _kind(kind: str, element: DType) -> str:
    if kind in ("max", "min"):
        return kind if element.is_int_signed() else f"u{kind}"
    if kind == "add":
        return "fadd" if element.is_floating() else "add"
    return {"xchg": "exch"}.get(kind, kind)


@EMITTERS.of(AtomicRMW)
def emit_rmw(w: Writer, op: AtomicRMW) -> None:
    ptr, value = w.use(op.ptr), w.use(op.value)
    mask = None if op.mask is None else w.use(op.mask)
    element = element_of(value.type)
    _require_width(w, element)
    assert isinstance(element, DType)
    if element.is_floating() and op.kind in ("max", "min"):
        old = _float_extremum(w, op, ptr, value, mask)
    elif element.is_floating() and op.kind == "xchg":
        bits = _bits_of(w, value)
        old = _rmw(w, "exch", op.sem, op.scope, _as_pointer_to(w, ptr, bits), bits, mask)
        old = bitcast(w, old, element)
    else:
        old = _rmw(w, _kind(op.kind, element), op.sem, op.scope, ptr, value, mask)
    w.bind(op.result, _masked(w, old, mask) if op.result.users else old)


def _require_width(w: Writer, element: object, widths: Sequence[int] = (16, 32, 64)) -> None:
    bits = element.primitive_bitwidth if isinstance(element, DType) else 64
    if bits not in widths or (isinstance(element, DType) and element.is_int() and bits < 32):
        raise w.refuse(f"Triton's back ends have no atomics of {bits} bits")


def _bits_of(w: Writer, value: Ref) -> Ref:
    element = element_of(value.type)
    return bitcast(w, value, int_type(element.primitive_bitwidth, True))


def _as_pointer_to(w: Writer, ptr: Ref, value: Ref) -> Ref:
    return w.cast(
        "tt.bitcast", ptr, with_element(ptr.type, Pointer(dtype_of(value.type))), arrow="->"
    )


def _float_extremum(w: Writer, op: AtomicRMW, ptr: Ref, value: Ref, mask: Ref | None) -> Ref:
    """As integers: the order of floats without the sign bit is that of their bits, of those with it
    the reverse order of the bits without sign. The identity stands for a NaN, which is no
    candidate."""
    least = op.kind == "min"
    identity = w.constant(float("inf") if least else float("-inf"), value.type)
    value = select(w, compare(w, "eq", value, value), value, identity)
    bits = _bits_of(w, value)
    address = _as_pointer_to(w, ptr, bits)
    positive = compare(w, "ge", bits, w.constant(0, bits.type))
    negative = inverted(w, positive)
    above, below = ("min", "umax") if least else ("max", "umin")
    upper = _rmw(w, above, op.sem, op.scope, address, bits, _all(w, mask, positive))
    lower = _rmw(w, below, op.sem, op.scope, address, bits, _all(w, mask, negative))
    return bitcast(w, select(w, positive, upper, lower), element_of(value.type))


def _all(w: Writer, mask: Ref | None, condition: Ref) -> Ref:
    return condition if mask is None else both(w, mask, condition)


@EMITTERS.of(AtomicCAS)
def emit_cas(w: Writer, op: AtomicCAS) -> None:
    if op.mask is not None:
        raise w.refuse("Triton's back ends have no compare-and-swap with a mask")
    element = element_of(op.value.type)
    ptr, expected, value = w.use(op.ptr), w.use(op.expected), w.use(op.value)
    if not element.is_int():
        expected, value = _bits_of(w, expected), _bits_of(w, value)
        ptr = _as_pointer_to(w, ptr, value)
    types = ", ".join(w.type(v.type) for v in (ptr, expected, value))
    first = Ref(f"{op.sem}, {op.scope}, {ptr.name}", ptr.type)
    old = w.op(
        "tt.atomic_cas", [first, expected, value], value.type,
        types=f"({types}) -> {w.type(value.type)}",
    )  # fmt: skip
    w.bind(op.result, bitcast(w, old, element))


@EMITTERS.of(AtomicLoad)
def emit_atomic_load(w: Writer, op: AtomicLoad) -> None:
    """An `or` with 0."""
    mask = None if op.mask is None else w.use(op.mask)
    w.bind(op.result, _masked(w, _read(w, op, mask), mask))


def _read(w: Writer, op: AtomicLoad | AtomicPoll, mask: Ref | None) -> Ref:
    element = pointee_of(op.ptr.type)
    _require_width(w, element, (32, 64))
    bits = int_type(element.primitive_bitwidth, True)
    zero = w.constant(0, with_element(op.ptr.type, bits))
    address = _as_pointer_to(w, w.use(op.ptr), zero)
    return bitcast(w, _rmw(w, "or", op.sem, op.scope, address, zero, mask), element)


@EMITTERS.of(AtomicStore)
def emit_atomic_store(w: Writer, op: AtomicStore) -> None:
    """An exchange."""
    mask = None if op.mask is None else w.use(op.mask)
    _require_width(w, element_of(op.value.type), (32, 64))
    bits = _bits_of(w, w.use(op.value))
    address = _as_pointer_to(w, w.use(op.ptr), bits)
    _rmw(w, "exch", op.sem, op.scope, address, bits, mask)


@EMITTERS.of(AtomicPoll)
def emit_poll(w: Writer, op: AtomicPoll) -> None:
    """A loop until memory is as expected; of a tile, until all lanes have been at some time."""
    if op.timeout is not None:
        raise w.refuse("Triton's back ends have no clock for the timeout of a wait")
    if shape_of(op.ptr.type) or op.mask is not None:
        raise w.refuse("Triton's back ends wait for one address, without a mask")
    expected = w.use(op.expected)
    w.results([], "scf.while : () -> () {", "")
    with w.region():
        waits = compare(w, "ne", _read(w, op, None), expected)
        w.effect(f"scf.condition({waits.name})")
    w.line("} do {")
    with w.region():
        w.line("scf.yield")
    w.line("}")
    w.bind(op.result, w.constant(True, op.result.type))
