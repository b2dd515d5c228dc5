"""Expressions of the shapes that simplifiers look for, with the same operand in several places.

Random operands seldom are equal, so that elementwise expressions alone hardly ever have the form
of `x - x`, `(x << k) >> k` or a choice between `x` and `-x`.
"""

from __future__ import annotations

from tests.fuzz.programs.kinds import INTEGERS, Shape, Value, text_of, tl
from tests.fuzz.programs.writer import Writer, expression
from tilewright.ir.types import FP16, FP32, FP64, I1

OF_INTEGERS = (
    "{x} - {x}", "({x} + {y}) - {y}", "({x} - {y}) + {y}", "{x} - ({x} - {y})", "-({x} - {y})",
    "({x} ^ {y}) ^ {y}", "({x} & {y}) + ({x} | {y})", "{x} - ({x} & {y})", "~(~{x} & ~{y})",
    "~{x} + 1", "~(-{x})", "{x} * {c} + {x}", "{x} * {c} + {x} * {d}", "{x} * {y} - {y} * {x}",
    "{x} // {y} * {y} + {x} % {y}", "{x} // {x}", "{x} % {x}", "{x} // {c} * {c}",
    "{x} - {x} // {c} * {c}", "{x} // {c} // {d}", "{x} // {c} % {d}", "{x} % {c} % {d}",
    "({x} % {c}) // {d}", "({x} % {c}) * {d} // {c}", "{x} * {c} // {d}", "{x} * {c} % {d}",
    "({x} * {c} + {d}) // {c}", "({x} << {k}) >> {k}", "({x} >> {k}) << {k}",
    "({x} >> {k}) >> {l}", "({x} << {k}) | ({x} >> {l})", "tl.minimum(tl.maximum({x}, {c}), {d})",
    "tl.maximum(tl.minimum({x}, {y}), {x})", "tl.maximum({x}, {y}) - tl.minimum({x}, {y})",
    "tl.where({x} < {y}, {x}, {y})", "tl.where({x} < 0, -{x}, {x})",
    "tl.where({x} != {y}, {x}, {y})", "tl.where({x} == {c}, {c}, {x})",
    "tl.where({p}, {x}, {y}) - tl.where({p}, {y}, {x})",
    "tl.where({p}, tl.where({q}, {x}, {y}), {y})",
    "tl.where({p} & {q}, {x}, tl.where({p}, {y}, {c}))",
    "{p}.to({t}) * {x}", "{p}.to({t}) + {q}.to({t})", "tl.where({p}, {c}, {d}) + {c}",
    "tl.abs({x} - {y})", "tl.abs(-{x})",
)  # fmt: skip
OF_FLOATS = (
    "{x} - {x}", "{x} + 0.0", "{x} - 0.0", "0.0 - {x}", "(0.0 - {x}) * {y}", "{x} - (0.0 - {y})",
    "{x} * 0.0", "{x} * 1.0", "{x} * (-1.0)", "-({x} - {y})", "-({x} * {y})", "-{x} * -{y}",
    "{x} * {f} * {g}", "{x} + {f} + {g}", "{x} / {f}", "tl.abs(-{x})", "tl.abs({x} * {x})",
    "{x} * {x} - {y} * {y}", "({x} + {y}) - {y}", "tl.maximum({x}, {x})", "tl.minimum({x}, -{x})",
    "tl.where({x} < {y}, {x}, {y})", "tl.where({x} > {y}, {y}, {x})",
    "tl.where({x} < 0.0, -{x}, {x})",
    "tl.where({x} == {y}, {y}, {x})", "tl.where({x} != {x}, {f}, {x})", "tl.where({p}, -{x}, {x})",
    "tl.where({p}, {x} * {y}, {x})", "{x} + tl.where({p}, 0.0, {f})", "{p}.to({t}) * {x}",
    "tl.where({p}, {x}, 0.0) + tl.where({p}, 0.0, {y})",
)  # fmt: skip
OF_BOOLS = (
    "{p} & ({p} | {q})", "~({p} & ~{q})", "{p} ^ (~{p} | {q})", "({p} == {q}) != {p}",
    "({x} + {c}) < ({y} + {c})", "({x} + {c}) >= {d}", "({x} - {y}) == 0", "({x} + {y}) > {x}",
    "({x} * {c}) <= {d}", "({x} >> {k}) > {c}", "({x} << {k}) != {c}", "({x} & {c}) == {d}",
    "({x} // {c}) < {d}", "({x} % {c}) >= {d}", "tl.minimum({x}, {y}) == {x}",
    "({x} < {c}) & ({x} >= {d})", "({x} < {c}) | ({x} > {d})", "~({x} < {y})",
    "(tl.where({p}, {c}, {d}) < {c})",
)  # fmt: skip


@expression(3)
def identity(w: Writer, shape: Shape, depth: int) -> Value | None:
    kind = w.below(3)
    dtype = w.choose((FP16, FP32, FP64)) if kind == 1 else w.choose(INTEGERS)
    form = w.choose((OF_INTEGERS, OF_FLOATS, OF_BOOLS)[kind])
    bits = dtype.primitive_bitwidth
    near = min(depth, 1)  # as an operand is written several times
    operands = {"x": (dtype, near), "y": (dtype, near), "p": (I1, 0), "q": (I1, 0)}
    texts = {
        name: w.typed(type, shape, levels)
        for name, (type, levels) in operands.items()
        if f"{{{name}}}" in form
    }
    if any(" := " in text for text in texts.values()):  # a name is given once
        return None
    limit = min(120, dtype.get_int_max_value()) if dtype.is_int() else 120
    numbers = {n: w.random.randint(1, limit) for n in "cd"} | {n: w.below(bits) for n in "kl"}
    inexact = () if "/" in form and dtype is FP32 else (3.0, 1e-8)  # its quotients may be off
    factors = {n: text_of(w.choose((2.0, 0.5, -1.0, 0.25, *inexact, 1.0))) for n in "fg"}
    text = form.format(**texts, **numbers, **factors, t=tl(dtype))
    return Value(f"({text})", I1) if kind == 2 else Value(f"({text}).to({tl(dtype)})", dtype)
