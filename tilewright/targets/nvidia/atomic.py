"""Atomic instructions, as inline PTX: LLVM's NVPTX back end drops order and scope.

See the PTX ISA, "Parallel Synchronization and Communication Instructions: atom" and "red". The
addition of fp32 in global memory is the only operation of this target that flushes subnormal
operands and results to zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import types as ir
from tilewright.lowering.emit import Builder, V, int_type, zero
from tilewright.lowering.simt.hardware import Atomic
from tilewright.targets.nvidia.code import Code, row

VECTOR_BITS = 128


def instruction(what: Atomic, features: frozenset[str]) -> str | None:
    """Operation and type, such as ``add.u32``; None if there is no such instruction."""
    element, bits = what.element, what.element.primitive_bitwidth
    if what.kind == "add" and element.is_floating():
        return _float_add(element, features)
    if bits not in (32, 64) or (element.is_floating() and what.kind != "xchg"):
        return None
    match what.kind:
        case "and" | "or" | "xor":
            return f"{what.kind}.b{bits}"
        case "xchg":
            return f"exch.b{bits}"
        case "add":
            return f"add.u{bits}"
        case kind:
            return f"{kind}.{'s' if element.is_int_signed() else 'u'}{bits}"


def _float_add(element: ir.DType, features: frozenset[str]) -> str | None:
    if element == ir.BF16 and "atom_bf16" not in features:
        return None
    known = {ir.FP16: "noftz.f16", ir.BF16: "noftz.bf16", ir.FP32: "f32", ir.FP64: "f64"}
    return f"add.{known[element]}" if element in known else None


def longest(what: Atomic, features: frozenset[str]) -> int:
    """The most adjacent elements of one instruction: 16 bytes for additions of floats, else one."""
    if instruction(what, features) is None:
        return 0
    bits = what.element.primitive_bitwidth
    if what.kind == "add" and what.element.is_floating() and bits < 64 and "atom_vec" in features:
        return VECTOR_BITS // bits
    return 1


def emit_atomic(
    b: Builder, what: Atomic, name: str, place: V, values: Sequence[V], mask: V | None
) -> Sequence[V]:
    """The instruction `name` on global memory; see `Hardware.atomic`."""
    bits, count = int_type(values[0].type.bits), len(values)
    if count > 1:
        operation, _, type = name.rpartition(".")
        name = f"{operation}.v{count}.{type}"
    # `red` can neither acquire nor exchange.
    reduces = what.order in ("relaxed", "release") and what.kind != "xchg" and not what.returns
    code = Code([] if reduces else [bits] * count)
    at = code.input(place)
    source = row([code.input(b.bitcast(v, bits)) for v in values])
    guard = "" if mask is None else f"@{code.input(mask)} "
    where = f"{what.order}.{what.scope}.global.{name}"
    if reduces:
        code.emit(b, f"{guard}red.{where} [{at}], {source}")
        return values
    if mask is not None:
        code.tie([zero(bits)] * count)  # the results if masked off
    found = code.emit(b, f"{guard}atom.{where} {code.outputs()}, [{at}], {source}")
    return [b.bitcast(v, values[0].type) for v in found]
