"""Into how many kernels Inductor divides reductions on the CPU: `interop/torch_reductions.py`."""

from __future__ import annotations

import pytest

from tests.interop.forked import output
from tilewright.interop.torch_reductions import LEAST_PART, parts_of


@pytest.mark.parametrize(
    ("reduced", "results", "adjacent", "threads", "parts"),
    [
        (1 << 30, 1, False, 1, 1),  # one thread
        (1 << 14, 1, False, 8, 1),  # too short
        (4 * LEAST_PART, 1, False, 8, 4),  # enough for a few threads
        (1 << 30, 1, False, 8, 8),
        (1 << 30, 3, False, 8, 3),  # 9 programs
        (1 << 20, 16, False, 8, 1),  # results for all threads
        (1 << 20, 16, True, 8, 8),  # one vector of results
        (1 << 20, 64, True, 8, 2),
        (1 << 20, 256, True, 8, 1),
    ],
)
def test_parts_are_for_threads(
    reduced: int, results: int, adjacent: bool, threads: int, parts: int
) -> None:
    assert parts_of(reduced, results, adjacent, threads) == parts


KERNELS = """
import tilewright, torch
tilewright.torch.enable()
from torch._inductor import config, metrics
config.compile_threads = 1
config.force_disable_caches = True  # so that kernels are generated
long, wide = torch.randn(16384), torch.randn(512, 64)
for threads in (1, 2):
    torch.set_num_threads(threads)
    torch.compiler.reset()
    for axis, x in ((None, long), (0, wide)):
        f = lambda x: x.sum(axis)
        before = metrics.generated_kernel_count
        found = torch.compile(f, dynamic=False)(x)
        print(metrics.generated_kernel_count - before, torch.allclose(found, f(x), atol=1e-3))
"""


def test_short_reductions_are_one_kernel() -> None:
    pytest.importorskip("torch", minversion="2.13")
    assert output(KERNELS).splitlines() == ["1 True"] * 4
