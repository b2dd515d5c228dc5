"""Elementary functions, and inline assembly."""

from __future__ import annotations

from tilewright.ir.types import dtype_of
from tilewright.ops import math
from tilewright.ops.asm import InlineAsm, InlineAsmEffect
from tilewright_triton.ttir.arith import library_call
from tilewright_triton.ttir.casts import converted
from tilewright_triton.ttir.numbers import widened
from tilewright_triton.ttir.types import quoted
from tilewright_triton.ttir.writer import EMITTERS, Writer

FUNCTIONS = (
    math.Exp, math.Exp2, math.Expm1, math.Log, math.Log2, math.Log10, math.Log1p, math.Sin,
    math.Cos, math.Tan, math.Tanh, math.Erf, math.Sqrt, math.Rsqrt, math.Floor, math.Ceil,
    math.Trunc, math.Rint,
)  # fmt: skip
_RENAMED = {"math.rint": "math.roundeven"}


@EMITTERS.of(*FUNCTIONS)
def emit_function(w: Writer, op: math.MathFunction) -> None:
    """In fp32 for narrower types, by the dialect `math` or a function of the back end's library."""
    element = dtype_of(op.src.type)
    x = widened(w, w.use(op.src))
    function = w.vendor.functions.get((op.name, dtype_of(x.type).short))
    if function is not None:
        found = library_call(w, function, [x])
    elif isinstance(op, math.Sqrt) and dtype_of(x.type).primitive_bitwidth == 32:
        found = w.op("tt.precise_sqrt", [x])
    else:
        found = w.op(_RENAMED.get(op.name, op.name), [x])
    w.bind(op.result, converted(w, found, element))


@EMITTERS.of(InlineAsm, InlineAsmEffect)
def emit_asm(w: Writer, op: InlineAsm | InlineAsmEffect) -> None:
    args = w.uses(op.args)
    attributes = {
        "constraints": quoted(op.constraints),
        "packed_element": f"{op.pack} : i32",
        "pure": "true" if isinstance(op, InlineAsm) else "false",
    }
    inner = ", ".join(f"{k} = {v}" for k, v in attributes.items())
    names = ", ".join(a.name for a in args)
    takes = f" : {', '.join(w.type(a.type) for a in args)}" if args else ""
    gives = ", ".join(w.type(v.type) for v in op.results)
    head = f"tt.elementwise_inline_asm {quoted(op.code)} {{{inner}}} {names}".rstrip()
    found = w.results([v.type for v in op.results], head, f"{takes} -> {gives}")
    for value, ref in zip(op.results, found, strict=True):
        w.bind(value, ref)
