"""Atomic read-modify-write instructions.

LLVM selects them from `atomicrmw`, with fences for order and scope as its memory model of AMD GPUs
defines. The metadata state what programs written for Triton may rely on: memory is local to the
device and coarse-grained, and an addition may flush subnormal numbers. Without them LLVM emits a
compare-and-swap loop for each addition of floats.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import types as ir
from tilewright.lowering.emit import BF16, F16, F32, F64, Builder, V, poison, vector
from tilewright.lowering.simt.hardware import Atomic

ORDERS = {"relaxed": "monotonic"}  # LLVM's names; the others are the same

_ASSUMPTIONS = ("amdgpu.no.fine.grained.memory", "amdgpu.no.remote.memory")
_OF_FLOATS = "amdgpu.ignore.denormal.mode"
_FLOATS = {ir.FP16: F16, ir.BF16: BF16, ir.FP32: F32, ir.FP64: F64}
_PAIRS = (ir.FP16, ir.BF16)


def longest(what: Atomic, features: frozenset[str]) -> int:
    """The most adjacent elements that one instruction updates; 0 if there is none."""
    element, bits = what.element, what.element.primitive_bitwidth
    if element.is_floating() and what.kind == "add":
        if element in _PAIRS:
            return 2 if "atomic_pairs" in features else 0
        return 1 if element == ir.FP32 or (element == ir.FP64 and "atomic_f64" in features) else 0
    return int(bits in (32, 64) and (not element.is_floating() or what.kind == "xchg"))


def emit_atomic(b: Builder, what: Atomic, place: V, values: Sequence[V], scope: str) -> Sequence[V]:
    """The instruction on global memory; see `Hardware.atomic`."""
    floats = what.element.is_floating() and what.kind == "add"
    metadata = [f"!{name} {b.module.metadata('!{}')}" for name in _ASSUMPTIONS]
    if floats:
        metadata.append(f"!{_OF_FLOATS} {b.module.metadata('!{}')}")
    order = ORDERS.get(what.order, what.order)
    operand = _operand(b, what, values)
    old = b.atomicrmw(_name(what), place, operand, order, scope, ", ".join(metadata))
    if not old.type.lanes:
        return [b.bitcast(old, values[0].type)]
    return [b.bitcast(b.extract(old, i), values[0].type) for i in range(old.type.lanes)]


def _name(what: Atomic) -> str:
    """The operation of `atomicrmw`."""
    if what.kind == "add" and what.element.is_floating():
        return "fadd"
    if what.kind in ("min", "max") and not what.element.is_int_signed():
        return f"u{what.kind}"
    return what.kind


def _operand(b: Builder, what: Atomic, values: Sequence[V]) -> V:
    """The values as one operand: pairs of 16-bit floats are a vector."""
    if not (what.element.is_floating() and what.kind == "add"):
        return values[0]
    kind = _FLOATS[what.element]
    natural = [b.bitcast(value, kind) for value in values]
    if len(natural) == 1:
        return natural[0]
    row = poison(vector(kind, len(natural)))
    for i, value in enumerate(natural):
        row = b.insert(row, value, i)
    return row
