"""Values that are loaded with another rounding than the kernel's, where something is chosen by
them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import check_gradients, count, forward_module, stored_once
from tilewright.autodiff.reverse import reverse_mode
from tilewright.ir.core import Module
from tilewright.ops.reduce import Reduce

ROWS = 24  # of which the reciprocal of the reciprocal differs in some

RECIPROCAL = """
def kernel(x_ptr, y_ptr, r_ptr):
    row, at = tl.program_id(0), tl.arange(0, 32)
    x = tl.load(x_ptr + row * 32 + at)
    m = {m}
    r = 1.0 / m
    tl.store(r_ptr + row, r)
    tl.store(y_ptr + row * 32 + at, {y})
"""
ROOT = "tl.sqrt(tl.sum(x * x, 0) + 1.0)"


def _module(text: str) -> tuple[Module, dict[str, Any]]:
    rng = np.random.default_rng(0)
    args: dict[str, Any] = {"x_ptr": rng.standard_normal((ROWS, 32))}
    args |= {"y_ptr": np.zeros((ROWS, 32)), "r_ptr": np.zeros(ROWS)}
    return forward_module(text, args, {}), args


@pytest.mark.parametrize(
    ("m", "y", "reduced"),
    [
        (ROOT, "x * r", 1),
        (ROOT, "tl.exp(x / m)", 1),
        ("tl.maximum(tl.sqrt(tl.sum(x * x, 0)), 0.001)", "x * r", 2),
        ("tl.max(tl.abs(x), 0)", "tl.where(tl.abs(x) == m, 0.0, x * r)", 4),
        ("tl.max(tl.abs(x), 0)", "(x / m - tl.floor(tl.abs(x) / m)) * x", 4),
        ("tl.max(tl.abs(x), 0)", "tl.where(tl.abs(x) - m == 0.0, x * x, x * r)", 4),
    ],
)
def test_a_divisor_is_not_loaded_as_a_reciprocal_where_something_is_chosen_by_it(
    m: str, y: str, reduced: int
) -> None:
    module, args = _module(RECIPROCAL.format(m=m, y=y))
    stored = stored_once(module, ROWS, args)
    derived = reverse_mode(module, ("x_ptr",), ("y_ptr",), ("r_ptr",), stored=stored)
    assert count(derived.module, Reduce) == reduced
    check_gradients(module, ROWS, args, ("x_ptr",), ("y_ptr",), aux=("r_ptr",))


SOFTMAX = """
def kernel(x_ptr, y_ptr, r_ptr):
    row, at = tl.program_id(0), tl.arange(0, 32)
    x = tl.load(x_ptr + row * 32 + at)
    e = tl.exp(x - tl.max(x, 0))
    y = e / tl.sum(e, 0)
    tl.store(y_ptr + row * 32 + at, y{cast}.to(tl.float64))
    tl.store(r_ptr + row, tl.sum({z}, 0))
"""


@pytest.mark.parametrize(
    ("cast", "z", "is_loaded"),
    [
        ("", "y * y", True),
        ("", "tl.where(y > 0.03, y, 0.0)", True),
        (".to(tl.float16)", "y * y", True),
        (".to(tl.float16)", "tl.where(y > 0.03, y, 0.0)", False),
        (".to(tl.float8e5)", "y * y", False),
    ],
)
def test_a_rounded_share_is_not_loaded_where_something_is_chosen_by_it(
    cast: str, z: str, is_loaded: bool
) -> None:
    module, args = _module(SOFTMAX.format(cast=cast, z=z))
    stored = stored_once(module, ROWS, args)
    derived = reverse_mode(module, ("x_ptr",), ("y_ptr", "r_ptr"), stored=stored)
    maxima = [op for op in derived.module.walk() if isinstance(op, Reduce)]
    assert (len(maxima) == 1) == is_loaded
