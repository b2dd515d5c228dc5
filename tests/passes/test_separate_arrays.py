"""Arrays that are chosen at run time are accessed in branches, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import Arrays, cleaned, count, forward_module, run_forward
from tilewright.analysis.pointers import base_of
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext
from tilewright.ops.memory import Load, Store
from tilewright.passes.separate_arrays import MOST, separate_arrays

HEAD = """
def kernel(x_ptr, z_ptr, w_ptr, y_ptr, n):
    p, i = tl.program_id(0), tl.arange(0, 8)
    a, h = x_ptr, tl.load(w_ptr + i)
"""
SEPARATED = {
    "two": "if p == n: a = z_ptr + 3",
    "three": "if p == n: a = z_ptr + 3\nelif p > 1: a = w_ptr + p",
    "selected": "a = z_ptr if p == n else x_ptr + p",
    "with what differs": "if p == n:\n    a = z_ptr\n    h = h * h\nelse:\n    i = 7 - i",
    "in a loop": "for k in range(n):\n    if k % 2 == 0: b = x_ptr + k\n    else: b = z_ptr + p\n"
    "    h = h * 0.5 + tl.load(b + i)\n    tl.store(y_ptr + 64 + (p * 4 + k) * 8 + i, h)",
    "then in branches": "if p == n: a = z_ptr + 3\nif p < 2:\n    h = tl.sin(h)\nh = h + p",
}
OTHERS = {
    "one array": "if p == n: a = x_ptr + 5",
    "carried": "for k in range(n):\n    if k == p: a = z_ptr\n    h += tl.load(a + i)",
    "of each element": "a = tl.where(i < n, x_ptr + i, z_ptr + i)\ni = i * 0",
}


def _module(body: str) -> Module:
    lines = [*body.split("\n"), "tl.store(y_ptr + p * 8 + i, tl.load(a + i) * h)"]
    return forward_module(HEAD + "\n".join(f"    {line}" for line in lines), _arguments(2), {})


def _arguments(n: int) -> Arrays:
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {f"{name}_ptr": rng.standard_normal(32) for name in "xzw"}
    return {**inputs, "y_ptr": np.zeros(256), "n": n}


def _chosen(module: Module) -> int:
    """How many accesses are of no argument."""
    accesses = [op for op in module.walk() if isinstance(op, Load | Store)]
    return sum(base_of(op.ptr) not in module.entry.args for op in accesses)


@pytest.mark.parametrize("body", SEPARATED.values(), ids=SEPARATED)
def test_each_access_is_of_one_array(body: str) -> None:
    before, after = _module(body), _module(body)
    assert _chosen(before)
    assert separate_arrays(after.entry, PassContext())
    cleaned(after)
    assert not _chosen(after)
    for n in (0, 1, 3):
        expected, found = _arguments(n), _arguments(n)
        run_forward(before, 4, expected)
        run_forward(after, 4, found)
        np.testing.assert_array_equal(found["y_ptr"], expected["y_ptr"])


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_other_kernels_stay(body: str) -> None:
    assert not separate_arrays(_module(body).entry, PassContext())


def test_there_are_few_copies() -> None:
    choices = [f"if p == {k}: b = z_ptr\nelse: b = x_ptr\nh *= tl.load(b + i)" for k in range(6)]
    module = _module("\n".join(choices))
    loads = count(module, Load)
    assert separate_arrays(module.entry, PassContext())
    assert count(module, Load) <= (MOST + 1) * loads
