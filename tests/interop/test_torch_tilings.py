"""Which elementwise kernels have an axis for columns on the CPU: `interop/torch_tilings.py`."""

from __future__ import annotations

import pytest

from tests.interop.forked import output

KERNELS = """
import tilewright, torch
tilewright.torch.enable()
from torch._inductor import config
from torch._inductor.codegen import simd
config.compile_threads = 1
config.force_disable_caches = True  # so that kernels are generated
choose = simd.SIMDScheduling.get_tiling_and_scores.__func__
def chosen(*rest):
    found = choose(*rest)
    print(*found[0], end=" ")
    return found
simd.SIMDScheduling.get_tiling_and_scores = classmethod(chosen)
f = lambda x, y: x * y
for columns, dynamic in ((33, False), (32, False), (40, True)):
    torch.compiler.reset()
    x, y = torch.randn(5, columns), torch.randn(columns)
    print(torch.equal(torch.compile(f, dynamic=dynamic)(x, y), f(x, y)))
"""


def test_rows_that_vectors_do_not_fill_are_an_axis() -> None:
    pytest.importorskip("torch", minversion="2.13")
    flat, rows = "x r0_ True", "y x r0_ True"
    assert output(KERNELS).splitlines() == [rows, flat, rows]
