"""Indices that are consecutive except at a few places: lanes whose ends are as far apart as those
of a run are accessed at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.fence import fenced_copy
from tests.targets.cpu.harness import host
from tests.targets.cpu.test_kernels import module_of
from tilewright.targets.cpu.codegen import generate

BLOCK = 128


@tw.jit
def index(i, by, n: tl.constexpr, KIND: tl.constexpr):
    if KIND == "rolled":
        j = (i + by) % n
    elif KIND == "replicated":
        j = tl.minimum(tl.maximum(i - by, 0), n - 1)
    elif KIND == "replicated by products":  # as torch.compile writes it
        low = 0 * (i - by <= 0) + (i - by) * ((i - by) > 0)
        j = (n - 1) * ((n - 1) <= low) + low * (low < (n - 1))
    elif KIND == "reflected":
        j = tl.maximum(n - 1 - tl.abs(n - 1 - tl.abs(i - by)), 0)
    elif KIND == "chosen":
        j = tl.where(i < n, i, n - 1)
    else:  # of which the ends of a run may be as far apart, though it is none
        j = tl.minimum(2 * i, i + by % 16) % n
    return j


@tw.jit
def gathered(
    x, y, by, n: tl.constexpr, KIND: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = index(i, by, n, KIND)
    found = tl.load(x + j, mask=i % 3 != 0, other=-1) if MASKED else tl.load(x + j)
    tl.store(y + i, found)


@tw.jit
def scattered(x, y, by, n: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + index(i, by, n, "rolled"), tl.load(x + i), mask=i < n)


@tw.jit
def in_rows(x, y, by, n: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    row, i = tl.arange(0, 4)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(y + row * BLOCK + i, tl.load(x + (row * n + index(i, by, n, KIND))))


KINDS = ["rolled", "replicated", "replicated by products", "reflected", "chosen", "other"]


def expected_index(i: Any, by: int, n: int, kind: str) -> Any:
    if kind == "rolled":
        return np.fmod(i + by, n)
    if kind.startswith("replicated"):
        return np.clip(i - by, 0, n - 1)
    if kind == "reflected":
        return np.maximum(n - 1 - abs(n - 1 - abs(i - by)), 0)
    if kind == "chosen":
        return np.minimum(i, n - 1)
    return np.minimum(2 * i, i + by % 16) % n


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "by"), [(128, 3), (256, 16), (100, 0), (64, 45), (37, 5)])
def test_loads(n: int, by: int, kind: str, masked: bool) -> None:
    x, y = fenced_copy(np.arange(n, dtype=np.float32)), np.zeros(2 * BLOCK, np.float32)
    gathered[(2,)](x, y, by, n, KIND=kind, MASKED=masked, BLOCK=BLOCK)
    expected = x[expected_index(np.arange(2 * BLOCK), by, n, kind)]
    if masked:
        expected[::3] = -1
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(("n", "by"), [(128, 3), (100, 17), (64, 64)])
def test_stores(n: int, by: int) -> None:
    x = np.arange(1, BLOCK + 1, dtype=np.float32)
    y = fenced_copy(np.zeros(n, np.float32))
    scattered[(1,)](x, y, by, n, BLOCK=BLOCK)
    expected = np.zeros(n, np.float32)
    expected[(np.arange(n) + by) % n] = x[:n]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_rows(kind: str) -> None:
    n, by = 64, 5
    x, y = fenced_copy(np.arange(4 * n, dtype=np.float32)), np.zeros((4, BLOCK), np.float32)
    in_rows[(1,)](x, y, by, n, KIND=kind, BLOCK=BLOCK)
    at = expected_index(np.arange(BLOCK), by, n, kind)
    np.testing.assert_array_equal(y, x.reshape(4, n)[:, at])


def test_which_indices_are_checked() -> None:
    x = np.zeros(2 * BLOCK, np.float32)
    checked: list[str] = []
    for kind in KINDS:
        constexprs: Any = {"n": 128, "KIND": kind, "MASKED": False, "BLOCK": BLOCK}
        module = module_of(gathered, [x, x, 3], "*fp32 *fp32 i32", **constexprs)
        if "runs" in generate(module, host())[0]:
            checked.append(kind)
    assert checked == ["rolled", "replicated", "replicated by products", "reflected"]
