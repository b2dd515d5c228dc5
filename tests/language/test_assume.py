"""`tl.assume`: what it lets the compiler do, and that the option `debug` checks it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.targets.nvidia.lowered import ptx_of
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.tools.signature import source_of


@tw.jit
def copy_kernel(x, y, n, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * stride
    tl.store(y + row + i, tl.load(x + row + i, mask=i < n), mask=i < n)
    if n < 4:
        tl.store(y, 0.0)


@tw.jit
def full_rows(n, BLOCK: tl.constexpr):
    tl.assume(n >= BLOCK)


@tw.jit
def assuming_kernel(x, y, n, stride, BLOCK: tl.constexpr):
    """The same; what a called function assumes of its parameter holds for the argument."""
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * stride
    tl.store(y + row + i, tl.load(x + row + i, mask=i < n), mask=i < n)
    if n < 4:
        tl.store(y, 0.0)
    full_rows(n, BLOCK)
    tl.assume(stride % 4 == 0)


@tw.jit
def returning_kernel(x, y, n, stride, BLOCK: tl.constexpr):
    """The assumption holds behind the return only."""
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n, other=5.0))
    if n <= 0:
        return
    tl.assume(n > 0)
    if n > 0:
        tl.store(y, 7.0)


def module_of(kernel: Any, *, debug: bool = False) -> Module:
    source = source_of(kernel, "*fp32:16, *fp32:16, i32, i32", {"BLOCK": 512})
    return source.module(FrontendOptions(debug=debug))


def count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text))


def test_masks_branches_and_narrow_accesses_vanish() -> None:
    plain, assuming = (ptx_of(module_of(k)) for k in (copy_kernel, assuming_kernel))
    assert count("setp", plain) > 0
    assert count("setp|bra", assuming) == 0
    assert count(r"ld\.global\.b32", plain) == 4
    assert count(r"ld\.global\.v4", assuming) == count("ld", assuming) - count(
        r"ld\.param", assuming
    )


def args_of(n: int) -> list[Any]:
    x = np.arange(512, dtype=np.float32)
    return [x, np.full(512, -1, np.float32), n, 4]


@pytest.mark.parametrize("n", [0, 1, 600])
def test_assumption_after_a_return(n: int) -> None:
    plain, final = args_of(n), args_of(n)
    interpret(module_of(returning_kernel), 1, plain)
    tw.jit(returning_kernel.fn)[(1,)](*final, BLOCK=512)
    np.testing.assert_array_equal(final[1], plain[1])
    assert final[1][0] == (7 if n > 0 else 5)


def _interpreted(*args: Any) -> None:
    interpret(module_of(assuming_kernel, debug=True), 1, args)


def _on_the_cpu(*args: Any) -> None:
    assuming_kernel[(1,)](*args, BLOCK=512, debug=True)


@pytest.mark.parametrize("launch", [_interpreted, _on_the_cpu])
def test_debug_checks_it(launch: Callable[..., None]) -> None:
    launch(*args_of(512))
    with pytest.raises(RuntimeError, match="the assumption does not hold"):
        launch(*args_of(511))
