"""Instructions of reductions."""

from __future__ import annotations

import pytest

from tests.frontend.kernels import build, kernel_from
from tests.targets.nvidia.lowered import ptx_of

COUNTS = """
def kernel(p, q, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)
    found = tl.load(p + tl.arange(0, 1024))[:, None] == column[None, :]
    tl.store(q + column, tl.sum(found.to(tl.int32), 0))
"""


@pytest.mark.parametrize(("columns", "shuffles"), [(1, 5), (2, 1 + 4), (64, 32 + 16 + 8 + 4 + 2)])
def test_lanes_deal_out_the_sums_that_warps_exchange(columns: int, shuffles: int) -> None:
    types = {"p": "*i32", "q": "*i32", "COLUMNS": "constexpr"}
    module = build(kernel_from(COUNTS), types, {"COLUMNS": columns})
    assert ptx_of(module, num_warps=4).count("shfl.sync.bfly") == shuffles


SUMS = """
def kernel(p, q):
    at = tl.arange(0, 64)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(q + at, tl.cumsum(tl.load(p + at), 0))
"""


def test_scans_of_single_elements_need_no_prefix_of_lanes() -> None:
    """Two steps for each of the eight elements of a thread: four of a row's lanes are along the
    axis."""
    module = build(kernel_from(SUMS), {"p": "*fp32", "q": "*fp32"}, {})
    assert ptx_of(module, num_warps=2).count("shfl.sync") == 16
