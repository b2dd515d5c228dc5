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
product = lambda x, y: x * y
rolled = lambda x, y: torch.roll(x, (1, 3), (0, 1)) * y
padded = lambda x, y: torch.nn.functional.pad(x, (2, 2), mode="replicate") + y[0]
cases = (product, 33, False), (product, 32, False), (product, 40, True)
for f, columns, dynamic in (*cases, (rolled, 64, False), (padded, 60, False)):
    torch.compiler.reset()
    x, y = torch.randn(5, columns), torch.randn(columns)
    print(torch.equal(torch.compile(f, dynamic=dynamic)(x, y), f(x, y)))
"""


def test_rows_that_vectors_do_not_fill_are_an_axis() -> None:
    pytest.importorskip("torch", minversion="2.13")
    flat, rows = "x r0_ True", "y x r0_ True"
    assert output(KERNELS).splitlines() == [rows, flat, rows, rows, rows]


SUMS = """
import tilewright, torch
tilewright.torch.enable()
from torch._inductor import config
config.compile_threads = 1
config.force_disable_caches = True
def f(x, y):
    index = torch.arange(5) % 3
    return torch.zeros(3, 40).index_put((index,), x, accumulate=True) * y
x, y = torch.randn(5, 40), torch.randn(40)
print(torch.allclose(torch.compile(f)(x, y), f(x, y), atol=1e-6))
"""


def test_kernels_that_depend_on_a_whole_array() -> None:
    pytest.importorskip("torch", minversion="2.13")
    assert output(SUMS).split() == ["True"]
