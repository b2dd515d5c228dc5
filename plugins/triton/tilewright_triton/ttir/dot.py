"""Matrix products."""

from __future__ import annotations

from tilewright.ir.types import I8, I32, U8, dtype_of, shape_of
from tilewright.ops.dot import Dot
from tilewright_triton.ttir.casts import converted
from tilewright_triton.ttir.numbers import binary, retyped
from tilewright_triton.ttir.reduce import summed
from tilewright_triton.ttir.shape import broadcast, expanded
from tilewright_triton.ttir.writer import EMITTERS, Ref, Writer


@EMITTERS.of(Dot)
def emit_dot(w: Writer, op: Dot) -> None:
    lhs, rhs, acc = w.uses(op.operands)
    if dtype_of(lhs.type) == U8:
        lhs, rhs, acc = _signed(w, lhs, rhs, acc)
    words = f", inputPrecision = {op.precision}"
    attributes: dict[str, str] = {}
    if op.max_imprecise:
        attributes["maxNumImpreciseAcc"] = f"{op.max_imprecise} : i32"
    types = f"{w.type(lhs.type)} * {w.type(rhs.type)} -> {w.type(acc.type)}"
    w.bind(
        op.result,
        w.op("tt.dot", [lhs, rhs, acc], acc.type, types=types, words=words, attributes=attributes),
    )


def _signed(w: Writer, lhs: Ref, rhs: Ref, acc: Ref) -> tuple[Ref, Ref, Ref]:
    """The operands of a signed product with the result of an unsigned one, which Triton lacks.

    With a = s + 128 and b = t + 128, the sum of a * b over K elements is that of s * t + 128 s +
    128 t, plus 128 * 128 * K.
    """
    offset = w.constant(128, lhs.type), w.constant(128, rhs.type)
    s, t = (
        retyped(binary(w, "arith.xori", operand, number), I8)
        for operand, number in zip((lhs, rhs), offset, strict=True)
    )
    rank = len(shape_of(acc.type))
    rows = expanded(w, summed(w, converted(w, s, I32), rank - 1), rank - 1)
    columns = expanded(w, summed(w, converted(w, t, I32), rank - 2), rank - 2)
    total = binary(w, "arith.addi", *(broadcast(w, part, acc.type) for part in (rows, columns)))
    total = binary(w, "arith.muli", total, w.constant(128, acc.type))
    total = binary(w, "arith.addi", total, w.constant(128 * 128 * shape_of(lhs.type)[-1], acc.type))
    return s, t, binary(w, "arith.addi", acc, total)
