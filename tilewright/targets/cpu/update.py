"""Read-modify-write of one element in memory."""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.lowering.arith import lower_add, lower_extremum
from tilewright.lowering.emit import Builder, V, const, int_type, vector
from tilewright.lowering.types import memory_type
from tilewright.ops import arith, atomic
from tilewright.targets.cpu.kernel import Kernel

ORDER = {
    "relaxed": "monotonic",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
}
_INT_OPS = {"add": "add", "and": "and", "or": "or", "xor": "xor", "xchg": "xchg"}


def is_plain(kernel: Kernel, op: atomic.AtomicRMW) -> bool:
    """Whether an update is an ordinary addition, as no other thread accesses the memory."""
    return kernel.single_threaded and op.kind == "add" and op.sem == "relaxed"


def update(kernel: Kernel, op: atomic.AtomicRMW, ptr: V, value: V) -> V:
    """Emit an update of the element at an address. Returns its old value."""
    b, element = kernel.b, ir.dtype_of(op.value.type)
    order = ORDER[op.sem]
    if is_plain(kernel, op):
        return _add(b, op, ptr, value)
    if op.kind == "xchg":
        bits = int_type(value.type.bits)
        return b.bitcast(b.atomicrmw("xchg", ptr, b.bitcast(value, bits), order), value.type)
    if not element.is_floating():
        name = _INT_OPS.get(op.kind) or ("" if element.is_int_signed() else "u") + op.kind
        return b.atomicrmw(name, ptr, value, order)
    if op.kind == "add" and element.primitive_bitwidth >= 32:
        return b.atomicrmw("fadd", ptr, value, order)
    return _compare_loop(b, op, ptr, value, order)


def _add(b: Builder, op: atomic.AtomicRMW, ptr: V, value: V) -> V:
    """An addition in memory that no other thread accesses."""
    bits = int_type(memory_type(op.value.type).bits)
    old = b.bitcast(b.load(bits, ptr), value.type)
    b.store(b.bitcast(_combined(b, op, old, value), bits), ptr)
    return old


def add_adjacent(b: Builder, op: atomic.AtomicRMW, ptr: V, values: V, mask: V | None) -> None:
    """Add a vector to adjacent elements of memory that no other thread accesses."""
    assert values.type.lanes
    element = int_type(memory_type(op.value.type).bits)
    type = vector(element, values.type.lanes)
    old = b.load(type, ptr) if mask is None else b.masked_load(type, ptr, mask, const(type, 0))
    new = b.bitcast(_combined(b, op, b.bitcast(old, values.type), values), type)
    if mask is None:
        b.store(new, ptr)
    else:
        b.masked_store(new, ptr, mask)


def _compare_loop(b: Builder, op: atomic.AtomicRMW, ptr: V, value: V, order: str) -> V:
    """A compare-and-swap loop, for operations without an instruction."""
    bits = int_type(memory_type(op.value.type).bits)
    first = b.load(bits, ptr)
    before, retry, done = b.current, b.block("try"), b.block("swapped")
    b.br(retry)
    b.at(retry)
    old = b.phi(bits)
    old.add(first, before)
    current = b.bitcast(old.value, value.type)
    new = b.bitcast(_combined(b, op, current, value), bits)
    found, ok = b.cmpxchg(ptr, old.value, new, order)
    old.add(found, b.current)
    b.cond_br(ok, done, retry)
    b.at(done)
    return current


def _combined(b: Builder, op: atomic.AtomicRMW, old: V, value: V) -> V:
    if op.kind == "add":
        like = arith.Add(op.value, op.value)
        result = lower_add(b, like, old, value)
    else:
        extremum = arith.Max if op.kind == "max" else arith.Min
        like = extremum(op.value, op.value, propagate_nan=False)
        result = lower_extremum(b, like, old, value)
    like.drop_operands()
    return result
