"""Atomic operations, and waits.

Triton's dialect has read-modify-write operations, with a mask, and a compare-and-swap without one.
Other operations are errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.types import (
    I32,
    I64,
    DType,
    Pointer,
    dtype_of,
    element_of,
    int_type,
    shape_of,
    with_element,
)
from tilewright.ops.atomic import AtomicCAS, AtomicLoad, AtomicPoll, AtomicRMW, AtomicStore
from tilewright_triton.ttir.casts import converted
from tilewright_triton.ttir.memory import zero_of
from tilewright_triton.ttir.numbers import (
    binary,
    bitcast,
    both,
    compare,
    inverted,
    select,
)
from tilewright_triton.ttir.reduce import folded
from tilewright_triton.ttir.shape import arange
from tilewright_triton.ttir.types import quoted
from tilewright_triton.ttir.writer import EMITTERS, Ref, Writer

WORD = 4  # bytes of the narrowest atomic operation
ALL_THREADS = 1024  # elements of a tile of which every thread of a program has some


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
    return select(w, mask, old, w.constant(zero_of(old.type), old.type))


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
        raise w.unsupported(f"Triton's back ends have no atomics of {bits} bits")


def _bits_of(w: Writer, value: Ref) -> Ref:
    element = element_of(value.type)
    return bitcast(w, value, int_type(element.primitive_bitwidth, True))


def _as_pointer_to(w: Writer, ptr: Ref, value: Ref) -> Ref:
    return w.cast(
        "tt.bitcast", ptr, with_element(ptr.type, Pointer(dtype_of(value.type))), arrow="->"
    )


def _float_extremum(w: Writer, op: AtomicRMW, ptr: Ref, value: Ref, mask: Ref | None) -> Ref:
    """As integers: the order of non-negative floats is that of their bits, that of negative ones
    the reverse order of their magnitude bits. The identity replaces a NaN, which is ignored."""
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
        raise w.unsupported("Triton's back ends have no compare-and-swap with a mask")
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
    mask = None if op.mask is None else w.use(op.mask)
    w.bind(op.result, _masked(w, _read(w, op, dtype_of(op.result.type), mask), mask))


def _read(w: Writer, op: AtomicLoad | AtomicPoll, element: DType, mask: Ref | None) -> Ref:
    """An `or` with 0; of narrow elements, of the aligned word that contains them."""
    if element.is_bool():
        raise w.unsupported("Triton's back ends have no atomics of bools")
    ptr = w.use(op.ptr)
    bits = element.primitive_bitwidth
    whole = int_type(max(bits, 8 * WORD), True)
    zero = w.constant(0, with_element(op.ptr.type, whole))
    if bits == whole.primitive_bitwidth:
        found = _rmw(w, "or", op.sem, op.scope, _as_pointer_to(w, ptr, zero), zero, mask)
        return bitcast(w, found, element)
    address = w.cast("tt.ptr_to_int", ptr, with_element(ptr.type, I64), arrow="->")
    place = binary(w, "arith.andi", address, w.constant(WORD - 1, address.type))
    word = w.cast(
        "tt.int_to_ptr",
        binary(w, "arith.subi", address, place),
        with_element(ptr.type, Pointer(I32)),
        arrow="->",
    )
    found = _rmw(w, "or", op.sem, op.scope, word, zero, mask)
    place = converted(w, place, I32)
    shift = binary(w, "arith.muli", place, w.constant(8, place.type))
    found = converted(w, binary(w, "arith.shrui", found, shift), int_type(bits, True))
    return bitcast(w, found, element)


@EMITTERS.of(AtomicStore)
def emit_atomic_store(w: Writer, op: AtomicStore) -> None:
    """An exchange."""
    mask = None if op.mask is None else w.use(op.mask)
    _require_width(w, element_of(op.value.type), (32, 64))
    bits = _bits_of(w, w.use(op.value))
    address = _as_pointer_to(w, w.use(op.ptr), bits)
    _rmw(w, "exch", op.sem, op.scope, address, bits, mask)


# -- waits ----------------------------------------------------------------------------------------


@EMITTERS.of(AtomicPoll)
def emit_poll(w: Writer, op: AtomicPoll) -> None:
    """A loop until no lane waits, or the timeout has passed. Its exit condition is uniform."""
    expected = w.use(op.expected)
    lanes = op.result.type
    acts = w.constant(True, lanes) if op.mask is None else w.use(op.mask)
    timeout = None if op.timeout is None else w.use(op.timeout)
    start = None if timeout is None else _clock(w)
    text = w.type(lanes)
    before = Ref(w.new_name("a"), lanes)
    (late,) = w.results(
        [lanes], f"scf.while ({before.name} = {acts.name}) : ({text}) -> ({text}) {{", ""
    )
    with w.region():
        found = _read(w, op, dtype_of(expected.type), before)
        waiting = both(w, before, compare(w, "ne", found, expected))
        goes_on = _any(w, waiting)
        if timeout is not None and start is not None:
            goes_on = both(w, goes_on, compare(w, "lt", _since(w, start), timeout))
        w.effect(f"scf.condition({goes_on.name}) {waiting.name}", text)
    w.line("} do {")
    with w.region():
        after = Ref(w.new_name("a"), lanes)
        w.line(f"^bb0({after.name}: {text}):")
        w.effect(f"scf.yield {after.name}", text)
    w.line("}")
    w.bind(op.result, both(w, acts, inverted(w, late)))


def _any(w: Writer, lanes: Ref) -> Ref:
    """Whether any element is true."""
    if not shape_of(lanes.type):
        return lanes
    found = converted(w, lanes, I32)
    while shape_of(found.type):
        found = folded(w, "arith.ori", found, 0)
    return compare(w, "ne", found, w.constant(0, found.type))


def _clock(w: Writer) -> Ref:
    """The nanoseconds on a clock, as read by each thread."""
    if not w.vendor.clock:
        raise w.unsupported("Triton's back ends have no clock for the timeout of a wait")
    every = arange(w, 0, ALL_THREADS)
    to = with_element(every.type, I64)
    code, constraints = quoted(w.vendor.clock), quoted("=l,r")
    attributes = f"{{constraints = {constraints}, packed_element = 1 : i32, pure = false}}"
    return w.op(
        f"tt.elementwise_inline_asm {code} {attributes}", [every], to,
        types=f"{w.type(every.type)} -> {w.type(to)}",
    )  # fmt: skip


def _since(w: Writer, start: Ref) -> Ref:
    """The least time of a thread since a reading of the clock."""
    return folded(w, "arith.minsi", binary(w, "arith.subi", _clock(w), start), 0)
