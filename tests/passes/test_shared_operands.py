"""Passes over values whose operands are shared, `c = c & (c | d)`: there are 2^n paths through n of
them."""

from __future__ import annotations

from tests.frontend.kernels import build, kernel_from
from tilewright.analysis.axis_info import axis_info
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext, Step, run
from tilewright.ops.arith import Hint
from tilewright.ops.memory import AddPtr, Store
from tilewright.passes.access_reasons import Reasons
from tilewright.passes.apply_assumptions import apply_assumptions

LINKS = 60


def _kernel(start: str, link: str, end: str) -> Module:
    links = "\n".join(f"            c = {link.format(k=k)}" for k in range(LINKS))
    kernel = kernel_from(f"""
        def kernel(o, n):
            i = tl.arange(0, 64)
            c = {start}
{links}
            {end}
    """)
    return build(kernel, {"o": "*i32", "n": "i32"})


def test_assumptions() -> None:
    module = _kernel("n > 0", "c & ((n > {k}) & c)", "tl.assume(c); tl.store(o + i, n)")
    run(module, [Step(apply_assumptions)], PassContext())
    lowest = {op.low for op in module.entry.walk() if isinstance(op, Hint)}
    assert lowest == {k + 1 for k in range(LINKS)}


def test_masks() -> None:
    module = _kernel("i < n", "c & ((i < n - {k}) | c)", "tl.store(o + i, n, mask=c)")
    run(module, STEPS, PassContext())
    (store,) = (op for op in module.entry.walk() if isinstance(op, Store))
    assert store.mask is not None
    reason = Reasons(module.entry, axis_info(module.entry)).why_mask_varies(store.mask, 0, 4)
    assert reason.startswith("the mask may end within a vector: `n`")


def test_offsets() -> None:
    """A sum of 2^60 terms is not split into them; the sums of its first links are."""
    module = _kernel("i.to(tl.int64) + n", "c + (c + {k})", "tl.store(o + c, 1)")
    run(module, STEPS, PassContext())
    (store,) = (op for op in module.entry.walk() if isinstance(op, Store))
    assert isinstance(store.ptr.op, AddPtr)
    assert sum(1 for _ in module.entry.walk()) < 20 * LINKS
