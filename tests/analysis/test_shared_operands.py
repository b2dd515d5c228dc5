"""Questions about scalars that share operands, `x = f(x, g(x))`, end: there are 2^n paths through n
of them. So do those about loops in loops."""

from __future__ import annotations

import pytest

from tests.frontend.kernels import build, kernel_from
from tilewright.analysis.axis_info import axis_info
from tilewright.analysis.signs import not_negative
from tilewright.ir.parser import parse_module
from tilewright.ops.control import For

LINKS = 60


def test_signs_of_indices_below_a_minimum() -> None:
    """Each operand of the minimum might be what proves that the loop has no iterations where its
    start is negative; none is."""
    links = "\n".join(
        f"            stop = tl.minimum(stop, tl.minimum(stop, length * {k}))" for k in range(LINKS)
    )
    kernel = kernel_from(f"""
        def kernel(o, n, length):
            start = tl.program_id(0) * length
            stop = tl.minimum(n, n + length)
{links}
            for k in range(start, stop):
                tl.store(o + k, k)
    """)
    module = build(kernel, {"o": "*i32", "n": "i32", "length": "i32"})
    (loop,) = (op for op in module.entry.walk() if isinstance(op, For))
    assert not not_negative(loop.body.args[0])


LOOPS = {
    "for": """
%r{k} = control.for %zero, %n, %four, [%zeros], num_stages=0, unroll=0, hints=()
  : (i32, i32, i32, 4xi32) -> 4xi32 {{
  (%i{k}: i32, %v{k}: 4xi32)
  {inner}
  %s{k} = arith.add %v{k}, {result} : (4xi32, 4xi32) -> 4xi32
  %w{k} = arith.add %s{k}, %fours : (4xi32, 4xi32) -> 4xi32
  control.yield [%w{k}] : 4xi32 -> ()
}}""",
    "while": """
%r{k} = control.while [%zeros] : 4xi32 -> 4xi32 {{
  (%u{k}: 4xi32)
  control.condition %go, [%u{k}] : (i1, 4xi32) -> ()
}} {{
  (%v{k}: 4xi32)
  {inner}
  %s{k} = arith.add %v{k}, {result} : (4xi32, 4xi32) -> 4xi32
  %w{k} = arith.add %s{k}, %fours : (4xi32, 4xi32) -> 4xi32
  control.yield [%w{k}] : 4xi32 -> ()
}}""",
}


@pytest.mark.parametrize("kind", LOOPS)
def test_axes_in_nested_loops(kind: str) -> None:
    """Each of the loops, of which each is in the one before, needs two rounds over its body: what
    it carries is 0 at first, then a multiple of 4."""
    text, result = "", f"%v{LINKS - 1}"
    for k in reversed(range(LINKS)):
        text = LOOPS[kind].format(k=k, inner=text, result=result)
        result = f"%r{k}"
    module = parse_module(f"""
func @nested(%n: i32, %go: i1) -> 4xi32 {{
  %zero = arith.constant value=0, type=i32 : () -> i32
  %four = arith.constant value=4, type=i32 : () -> i32
  %fours = arith.constant value=4, type=4xi32 : () -> 4xi32
  %zeros = arith.constant value=0, type=4xi32 : () -> 4xi32
  {text}
  control.return [%r0] : 4xi32 -> ()
}}""")
    info = axis_info(module.entry)[module.entry.body.terminator.operands[0]]
    assert (info.constancy, info.divisibility) == ((4,), (4,))
