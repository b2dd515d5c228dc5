"""Questions about scalars that share operands, `x = f(x, g(x))`, end: there are 2^n paths through n
of them."""

from __future__ import annotations

from tests.frontend.kernels import build, kernel_from
from tilewright.analysis.signs import not_negative
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
