"""Atomic instructions, as inline PTX: LLVM's own lose the order and the scope.

PTX ISA, "Parallel Synchronization and Communication Instructions: atom" and "red". An addition of
fp32 in global memory flushes subnormal operands and results to zero, which nothing else here does.
"""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.lowering.emit import VOID, Builder, V, int_type, zero
from tilewright.lowering.simt.hardware import Atomic

# Constraint letters of inline assembly, by bits of the register.
_LETTERS = {16: "h", 32: "r", 64: "l"}


def instruction(what: Atomic, features: frozenset[str]) -> str | None:
    """The operation and the type, such as ``add.u32``; None where there is no such instruction."""
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


def emit_atomic(b: Builder, what: Atomic, name: str, place: V, value: V, mask: V | None) -> V:
    """The instruction `name` on global memory; see `Hardware.atomic`."""
    bits = int_type(value.type.bits)
    operand = b.bitcast(value, bits)
    guard = "" if mask is None else "@$MASK "
    args = [place, operand, *([mask] if mask is not None else [])]
    # `red` can neither acquire nor exchange.
    reduces = what.order in ("relaxed", "release") and what.kind != "xchg"
    if reduces and not what.wanted:
        code = f"{guard}red.{what.order}.{what.scope}.global.{name} [$0], $1;"
        constraints = ["l", _LETTERS[bits.bits], *(["b"] if mask is not None else [])]
        b.inline_asm(code.replace("$MASK", "$2"), _listed(constraints), VOID, args, True)
        return value
    code = f"{guard}atom.{what.order}.{what.scope}.global.{name} $0, [$1], $2;"
    constraints = [f"={_LETTERS[bits.bits]}", "l", _LETTERS[bits.bits]]
    if mask is not None:
        constraints += ["b", "0"]  # the result is 0 before, and stays so without the mask
        args.append(zero(bits))
    asm = b.inline_asm(code.replace("$MASK", "$3"), _listed(constraints), bits, args, True)
    return b.bitcast(asm, value.type)


def _listed(constraints: list[str]) -> str:
    return ",".join([*constraints, "~{memory}"])
