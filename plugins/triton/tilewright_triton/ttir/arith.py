"""Arithmetic. Integers of MLIR have no signedness, so that the names of ops have it; `arith` leaves
shifts by the width or more and divisions by zero undefined: selects surround those that ranges do
not exclude."""

from __future__ import annotations

from typing import Any

from tilewright.analysis.ranges import value_range
from tilewright.ir.types import U8, U64, DType, dtype_of, is_pointer
from tilewright.ops import arith, marks
from tilewright_triton.ttir.casts import WITHOUT_MINUS_ZERO, converted, narrowed
from tilewright_triton.ttir.numbers import (
    binary,
    bitcast,
    both,
    compare,
    compare_unsigned,
    either,
    inverted,
    is_narrow,
    select,
    widened,
)
from tilewright_triton.ttir.writer import EMITTERS, Ref, Writer


def _bits(element: DType) -> int:
    return element.primitive_bitwidth


# -- sums and products ----------------------------------------------------------------------------

_SIMPLE = {
    arith.Add: ("arith.addi", "arith.addf"),
    arith.Sub: ("arith.subi", "arith.subf"),
    arith.Mul: ("arith.muli", "arith.mulf"),
}


@EMITTERS.of(*_SIMPLE)
def emit_simple(w: Writer, op: Any) -> None:
    element, (of_ints, of_floats) = dtype_of(op.lhs.type), _SIMPLE[type(op)]
    a, b = w.use(op.lhs), w.use(op.rhs)
    if element.is_fp8():
        wide = binary(w, of_floats, widened(w, a), widened(w, b))
        w.bind(op.result, converted(w, wide, element))
    else:
        w.bind(op.result, binary(w, of_floats if element.is_floating() else of_ints, a, b))


@EMITTERS.of(arith.And, arith.Or, arith.Xor)
def emit_bitwise(w: Writer, op: Any) -> None:
    name = {arith.And: "arith.andi", arith.Or: "arith.ori", arith.Xor: "arith.xori"}[type(op)]
    w.bind(op.result, binary(w, name, w.use(op.lhs), w.use(op.rhs)))


@EMITTERS.of(arith.MulHi)
def emit_mulhi(w: Writer, op: arith.MulHi) -> None:
    w.bind(op.result, binary(w, "tt.mulhiui", w.use(op.lhs), w.use(op.rhs)))


@EMITTERS.of(arith.Fma)
def emit_fma(w: Writer, op: arith.Fma) -> None:
    element = dtype_of(op.x.type)
    x, y, z = w.uses(op.operands)
    if element.is_fp8():
        wide = w.op("math.fma", [widened(w, x), widened(w, y), widened(w, z)])
        w.bind(op.result, converted(w, wide, element))
    else:
        w.bind(op.result, w.op("math.fma", [x, y, z]))


# -- quotients ------------------------------------------------------------------------------------


@EMITTERS.of(arith.Div)
def emit_div(w: Writer, op: arith.Div) -> None:
    """In fp32 for narrower types: of their quotients, the second rounding changes none."""
    element = dtype_of(op.lhs.type)
    a, b = widened(w, w.use(op.lhs)), widened(w, w.use(op.rhs))
    exact = op.ieee or is_narrow(element)
    name = "tt.precise_divf" if exact and _bits(element) <= 32 else "arith.divf"
    w.bind(op.result, converted(w, binary(w, name, a, b), element))


@EMITTERS.of(arith.IntDiv)
def emit_int_div(w: Writer, op: arith.IntDiv) -> None:
    a, b = w.use(op.lhs), w.use(op.rhs)
    element = dtype_of(a.type)
    if element.is_bool():
        w.bind(op.result, both(w, a, b))
        return
    name = "arith.divsi" if element.is_int_signed() else "arith.divui"
    zero = w.constant(0, a.type)
    by_zero, by_minus_one = _special_divisors(op)
    divisor = _safe_divisor(w, b, by_zero, by_minus_one)
    found = binary(w, name, a, divisor)
    if by_minus_one:
        is_minus_one = compare(w, "eq", b, w.constant(-1, b.type))
        found = select(w, is_minus_one, binary(w, "arith.subi", zero, a), found)
    if by_zero:
        found = select(w, compare(w, "eq", b, zero), zero, found)
    w.bind(op.result, found)


@EMITTERS.of(arith.Rem)
def emit_rem(w: Writer, op: arith.Rem) -> None:
    a, b = w.use(op.lhs), w.use(op.rhs)
    element = dtype_of(a.type)
    if element.is_floating():
        w.bind(op.result, _float_remainder(w, a, b))
        return
    zero = w.constant(0, a.type)
    if element.is_bool():
        w.bind(op.result, zero)
        return
    name = "arith.remsi" if element.is_int_signed() else "arith.remui"
    by_zero, by_minus_one = _special_divisors(op)
    found = binary(w, name, a, _safe_divisor(w, b, by_zero, by_minus_one))
    # The divisor 1, which stands for both special ones, has the remainder 0 of both.
    w.bind(op.result, found)


def _float_remainder(w: Writer, a: Ref, b: Ref) -> Ref:
    element = dtype_of(a.type)
    a, b = widened(w, a), widened(w, b)
    function = w.vendor.functions.get((arith.Rem.name, dtype_of(a.type).short))
    if function is None:
        return converted(w, binary(w, "arith.remf", a, b), element)
    return converted(w, library_call(w, function, [a, b]), element)


def library_call(w: Writer, function: str, operands: list[Ref]) -> Ref:
    """A call of a function of the back end's library on each element."""
    types = ", ".join(w.type(r.type) for r in operands)
    attributes = {"libname": '""', "libpath": '""', "pure": "true", "symbol": f'"{function}"'}
    return w.op(
        "tt.extern_elementwise",
        operands,
        types=f"({types}) -> {w.type(operands[0].type)}",
        attributes=attributes,
    )


def _special_divisors(op: arith.IntDiv | arith.Rem) -> tuple[bool, bool]:
    """Whether the divisor may be 0, and whether it may be -1 and the quotient overflow."""
    low, high = value_range(op.rhs)
    by_zero = low <= 0 <= high
    signed = dtype_of(op.rhs.type).is_int_signed()
    least = dtype_of(op.lhs.type).get_int_min_value()
    return by_zero, signed and low <= -1 <= high and value_range(op.lhs)[0] == least


def _safe_divisor(w: Writer, b: Ref, by_zero: bool, by_minus_one: bool) -> Ref:
    """The divisor, 1 where its quotient would be undefined."""
    special: list[Ref] = []
    if by_zero:
        special.append(compare(w, "eq", b, w.constant(0, b.type)))
    if by_minus_one:
        special.append(compare(w, "eq", b, w.constant(-1, b.type)))
    if not special:
        return b
    condition = special[0] if len(special) == 1 else either(w, *special)
    return select(w, condition, w.constant(1, b.type), b)


# -- shifts ---------------------------------------------------------------------------------------


@EMITTERS.of(arith.Shl, arith.Shr)
def emit_shift(w: Writer, op: arith.Shl | arith.Shr) -> None:
    x, count = w.use(op.lhs), w.use(op.rhs)
    element = dtype_of(x.type)
    if element.is_bool():
        w.bind(op.result, both(w, x, inverted(w, count)))
        return
    low, high = value_range(op.rhs)
    inside = low >= 0 and high < _bits(element)
    if isinstance(op, arith.Shr) and element.is_int_signed():
        if not inside:  # the sign bit alone is left by a shift of all other bits out
            last = w.constant(_bits(element) - 1, count.type)
            count = binary(w, "arith.minui", count, last)
        w.bind(op.result, binary(w, "arith.shrsi", x, count))
        return
    name = "arith.shli" if isinstance(op, arith.Shl) else "arith.shrui"
    found = binary(w, name, x, count)
    if not inside:
        fits = compare_unsigned(w, "ult", count, w.constant(_bits(element), count.type))
        found = select(w, fits, found, w.constant(0, x.type))
    w.bind(op.result, found)


# -- extrema, comparison, selection ---------------------------------------------------------------


@EMITTERS.of(arith.Min, arith.Max)
def emit_extremum(w: Writer, op: arith.Min | arith.Max) -> None:
    a, b = w.use(op.lhs), w.use(op.rhs)
    element, least = dtype_of(a.type), isinstance(op, arith.Min)
    kind = "min" if least else "max"
    if element.is_bool():
        found = both(w, a, b) if least else either(w, a, b)
    elif element.is_int():
        found = binary(w, f"arith.{kind}{'s' if element.is_int_signed() else 'u'}i", a, b)
    else:
        name = f"arith.{kind}imumf" if op.propagate_nan else f"arith.{kind}numf"
        if element.is_fp8():
            found = narrowed(w, binary(w, name, widened(w, a), widened(w, b)), element)
        else:
            found = binary(w, name, a, b)
    w.bind(op.result, found)


@EMITTERS.of(arith.Cmp)
def emit_cmp(w: Writer, op: arith.Cmp) -> None:
    a, b = w.use(op.lhs), w.use(op.rhs)
    if is_pointer(a.type):
        a, b = (bitcast(w, x, U64) for x in (a, b))
    elif dtype_of(a.type).is_fp8():
        a, b = widened(w, a), widened(w, b)
    w.bind(op.result, compare(w, op.predicate, a, b))


@EMITTERS.of(arith.Select)
def emit_select(w: Writer, op: arith.Select) -> None:
    w.bind(op.result, select(w, *w.uses(op.operands)))


# -- signs ----------------------------------------------------------------------------------------


@EMITTERS.of(arith.Neg)
def emit_neg(w: Writer, op: arith.Neg) -> None:
    x = w.use(op.src)
    element = dtype_of(x.type)
    if element.is_bool():
        w.bind(op.result, x)
    elif element.is_fp8():
        w.bind(op.result, _negated_bits(w, x))
    elif element.is_floating():
        w.bind(op.result, _negated(w, x))
    else:
        w.bind(op.result, binary(w, "arith.subi", w.constant(0, x.type), x))


def _negated(w: Writer, x: Ref) -> Ref:
    """-0.0 - x, which is exact; Triton has no lowering of `arith.negf`."""
    return binary(w, "arith.subf", w.constant(-0.0, x.type), x)


def _negated_bits(w: Writer, x: Ref) -> Ref:
    """An 8-bit float with the other sign, also an infinity, to which none is converted."""
    element = dtype_of(x.type)
    bits = bitcast(w, x, U8)
    flipped = binary(w, "arith.xori", bits, w.constant(0x80, bits.type))
    if element in WITHOUT_MINUS_ZERO:
        rest = binary(w, "arith.andi", bits, w.constant(0x7F, bits.type))
        flipped = select(w, compare(w, "eq", rest, w.constant(0, bits.type)), bits, flipped)
    return bitcast(w, flipped, element)


def _without_sign(w: Writer, x: Ref) -> Ref:
    element = dtype_of(x.type)
    bits = bitcast(w, x, U8)
    rest = binary(w, "arith.andi", bits, w.constant(0x7F, bits.type))
    if element in WITHOUT_MINUS_ZERO:
        nan = compare(w, "eq", bits, w.constant(0x80, bits.type))
        rest = select(w, nan, bits, rest)
    return bitcast(w, rest, element)


@EMITTERS.of(arith.Abs)
def emit_abs(w: Writer, op: arith.Abs) -> None:
    x = w.use(op.src)
    element = dtype_of(x.type)
    if element.is_fp8():
        w.bind(op.result, _without_sign(w, x))
    elif element.is_floating():
        w.bind(op.result, w.op("math.absf", [x]))
    elif element.is_int_signed():
        w.bind(op.result, w.op("math.absi", [x]))
    else:
        w.bind(op.result, x)


# -- conversions ----------------------------------------------------------------------------------


@EMITTERS.of(arith.Cast)
def emit_cast(w: Writer, op: arith.Cast) -> None:
    w.bind(op.result, converted(w, w.use(op.src), op.to, op.rounding))


@EMITTERS.of(arith.Bitcast)
def emit_bitcast(w: Writer, op: arith.Bitcast) -> None:
    w.bind(op.result, bitcast(w, w.use(op.src), op.to))


@EMITTERS.of(marks.StopGradient, marks.FunctionResult, marks.Residual)
def emit_for_derivatives(
    w: Writer, op: marks.StopGradient | marks.FunctionResult | marks.Residual
) -> None:
    """Emits nothing: the op differs from its operand for derivatives only."""
    w.bind(op.result, w.use(op.src))


@EMITTERS.of(arith.Hint)
def emit_hint(w: Writer, op: arith.Hint) -> None:
    """An alias of its operand, whose definition gets the properties as attributes."""
    src = w.use(op.src)
    w.bind(op.result, src)
    definition = w.definition(src)
    if definition is None or isinstance(op.src.op, arith.Constant):
        return
    for name in ("divisibility", "contiguity", "constancy"):
        facts = getattr(op, name)
        if any(facts):
            values = ", ".join(str(max(1, n)) for n in facts)
            text = f"dense<[{values}]>" if len(facts) > 1 else f"dense<{values}>"
            definition.attributes[f"tt.{name}"] = f"{text} : tensor<{len(facts)}xi32>"
