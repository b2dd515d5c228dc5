"""Transforms that split one bit of the index after the other exchange each lane bit once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.lowering.simt.harness import assert_same, laid_out
from tests.targets.nvidia.lowered import ptx_of
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ops.gpu import ConvertLayout
from tilewright.ops.shape import Split
from tilewright.tools.signature import source_of


@tw.jit
def hadamard_kernel(x, y, R: tl.constexpr, N: tl.constexpr, LOG: tl.constexpr):
    at = tl.arange(0, R)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + at)
    for _ in tl.static_range(LOG):
        a, b = tl.split(tl.permute(tl.reshape(v, (R, 2, N // 2)), (0, 2, 1)))
        v = tl.reshape(tl.join(a + b, a - b), (R, N))
    tl.store(y + at, v)


def module_of(rows: int, columns: int) -> Module:
    constants = {"R": rows, "N": columns, "LOG": columns.bit_length() - 1}
    return source_of(hadamard_kernel, "*fp32:16, *fp32:16", constants).module(FrontendOptions())


@pytest.mark.parametrize("machine", [{"lanes": 8, "warps": 1}, {"lanes": 32, "warps": 2}])
@pytest.mark.parametrize("extents", [(1, 128), (8, 16), (4, 64)])
def test_results(machine: dict[str, Any], extents: tuple[int, int]) -> None:
    rows, columns = extents
    x = np.random.default_rng(0).integers(-9, 9, rows * columns).astype(np.float32)
    assert_same(module_of(rows, columns), (1, 1, 1), [x, 0 * x], **machine)


def test_each_lane_bit_is_exchanged_once() -> None:
    """Of 128 elements of a row, 4 are in a thread: 5 bits are exchanged. The selects are three for
    each exchange of two registers."""
    module = module_of(16, 128)
    ready = laid_out(module, lanes=32, warps=4)
    splits = [op for op in ready.entry.walk() if isinstance(op, Split)]
    assert sum(isinstance(op.src.op, ConvertLayout) for op in splits) == 5
    text = ptx_of(module, num_warps=4)
    assert text.count("shfl.sync") == 5 * 8 + 2 * 8  # the last ones are for the store
    assert text.count("selp") == 3 * 5 * 8 + 4 * 2 * 8
