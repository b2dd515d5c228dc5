"""Matrix products."""

from __future__ import annotations

from tilewright.ops.dot import Dot
from tilewright_triton.ttir.writer import EMITTERS, Writer


@EMITTERS.of(Dot)
def emit_dot(w: Writer, op: Dot) -> None:
    lhs, rhs, acc = w.uses(op.operands)
    if lhs.type.scalar.is_int_unsigned():
        raise w.refuse("Triton's back ends have no products of unsigned integers")
    words = f", inputPrecision = {op.precision}"
    attributes: dict[str, str] = {}
    if op.max_imprecise:
        attributes["maxNumImpreciseAcc"] = f"{op.max_imprecise} : i32"
    types = f"{w.type(lhs.type)} * {w.type(rhs.type)} -> {w.type(acc.type)}"
    w.bind(
        op.result,
        w.op("tt.dot", [lhs, rhs, acc], acc.type, types=types, words=words, attributes=attributes),
    )
