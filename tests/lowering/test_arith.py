"""Operands that the sweep of `tests/targets/cpu/test_elementwise.py` is unlikely to meet."""

import ml_dtypes
import numpy as np

from tests.targets.cpu.harness import both

FMA = """func @f(%p: ptr<bf16>, %q: ptr<bf16>, %r: ptr<bf16>, %out: ptr<bf16>) {
  %x = mem.load %p, _, _ : ptr<bf16> -> bf16
  %y = mem.load %q, _, _ : ptr<bf16> -> bf16
  %z = mem.load %r, _, _ : ptr<bf16> -> bf16
  %s = arith.fma %x, %y, %z : (bf16, bf16, bf16) -> bf16
  mem.store %out, %s, _ : (ptr<bf16>, bf16) -> ()
  control.return [] : () -> ()
}"""


def test_fma_of_bf16_rounds_once_where_the_sum_is_inexact_in_fp64() -> None:
    """3 * 129 = 387 lies midway between 386 and 388; 2^-80 more or less decides, and fp64, which
    has no room for it, would leave a tie."""
    tiny = 2.0**-80
    for x, z, expected in [(3, -tiny, 386), (3, 0, 388), (-3, tiny, -386), (-3, -tiny, -388)]:
        args = [np.array([v], ml_dtypes.bfloat16) for v in (x, 129, z, 0)]
        for outcome in both(FMA, (1, 1, 1), args):
            assert outcome[-1].astype(np.float64) == [expected]


def test_fma_of_bf16_with_infinities() -> None:
    inf = np.inf
    for x, y, z, expected in [(inf, 1, 1, inf), (1, 1, -inf, -inf), (2.0**127, 2, -1, inf)]:
        args = [np.array([v], ml_dtypes.bfloat16) for v in (x, y, z, 0)]
        for outcome in both(FMA, (1, 1, 1), args):
            assert outcome[-1].astype(np.float64) == [expected]
