"""Warnings are given at the line of the kernel that they are about."""

import warnings

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl


@tw.jit
def deprecated_uses(x, WHICH: tl.constexpr):
    v = tl.load(x + tl.arange(0, 4))
    if WHICH == "where":
        v = tl.where(v, v, 1)  # where
    if WHICH == "shift":
        v = v << 40  # shift
    if WHICH == "and":
        v = ((v > 1) and (v < 3)).to(tl.int32)  # and
    if WHICH == "max":
        v = max(v, 1)  # max
    if WHICH == "view":
        v = tl.view(v, (2, 2)).reshape((4,))  # view
    if WHICH == "condition":  # noqa: SIM102 (`and` of a tile is another warning)
        if tl.max(v, 0)[None] > 0:  # condition
            v += 1
    tl.store(x + tl.arange(0, 4), v)


@pytest.mark.parametrize("which", ["where", "shift", "and", "max", "view", "condition"])
def test_warning_is_at_the_line_of_the_kernel(which: str) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        deprecated_uses.warmup(np.int32, which, grid=(1,))
    (found,) = seen
    assert found.filename == __file__
    with open(__file__, encoding="utf-8") as file:
        assert file.readlines()[found.lineno - 1].rstrip().endswith(f"# {which}")
