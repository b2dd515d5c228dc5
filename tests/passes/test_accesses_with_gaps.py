"""A thread has one element of a tile that is stored with gaps: warps then write whole sectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.lowering.simt.harness import assert_same, laid_out
from tilewright.frontend.options import FrontendOptions
from tilewright.layout.linear import LANE, REGISTER
from tilewright.ops.memory import Store
from tilewright.tools.signature import source_of


@tw.jit
def spaced_kernel(x, out, n, GAP: tl.constexpr, OWN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    gap = n if OWN else GAP
    tl.store(out + i * gap, v + 1, mask=i < n)


BLOCK = 128
MACHINE: dict[str, Any] = {"lanes": 8, "warps": 2}


@pytest.mark.parametrize(
    ("type", "gap", "lanes"),
    [
        ("fp32", 1, 4),
        ("fp32", 2, 1),
        ("fp32", 7, 1),
        ("fp32", 8, 4),  # each element has a sector of its own
        ("fp16", 3, 1),
        ("fp16", 16, 8),
        ("fp64", 3, 1),
        ("fp64", 4, 2),
    ],
)
def test_stores(type: str, gap: int, lanes: int) -> None:
    signature = f"*{type}:16, *{type}:16, i32:16"
    constants = {"GAP": gap, "OWN": False, "BLOCK": BLOCK}
    module = source_of(spaced_kernel, signature, constants).module(FrontendOptions())
    (store,) = (op for op in laid_out(module, **MACHINE).entry.walk() if isinstance(op, Store))
    layout = store.ptr.layout
    assert layout is not None
    assert layout.bases(LANE)[0] == lanes
    assert layout.bases(REGISTER)[0] == (1 if lanes > 1 else 16)
    dtype = np.dtype({"fp16": "float16", "fp32": "float32", "fp64": "float64"}[type])
    x = np.arange(BLOCK).astype(dtype)
    for n in (BLOCK, 96):
        assert_same(module, (1, 1, 1), [x, np.zeros(gap * BLOCK, dtype), n], **MACHINE)


def test_gaps_that_are_not_known() -> None:
    constants = {"GAP": 1, "OWN": True, "BLOCK": BLOCK}
    source = source_of(spaced_kernel, "*fp32:16, *fp32:16, i32:16", constants)
    ready = laid_out(source.module(FrontendOptions()), **MACHINE)
    (store,) = (op for op in ready.entry.walk() if isinstance(op, Store))
    assert store.ptr.layout is not None
    assert store.ptr.layout.bases(LANE)[0] == 4
