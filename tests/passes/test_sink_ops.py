"""Elementwise ops of loops are computed where their results are used, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import copied, forward_module, run_forward
from tilewright.ir.core import Module, Op
from tilewright.ir.passes import PassContext, Step, run
from tilewright.ops.control import For
from tilewright.ops.math import Cos, Exp, Sin
from tilewright.ops.memory import Load, Store
from tilewright.passes.sink_ops import sink_ops

KERNEL = """
def kernel(x_ptr, z_ptr, y_ptr, n):
    i = tl.arange(0, 8)
    acc = tl.zeros([8], tl.float64)
    for k in range(n):
        x = tl.load(x_ptr + k * 8 + i)
        {body}
        acc += x + late
    tl.store(y_ptr + i, acc)
"""
STORE = "tl.store(z_ptr + k * 8 + i, z)"


def arguments() -> dict[str, Any]:
    x = np.random.default_rng(0).standard_normal(24)
    return {"x_ptr": x, "z_ptr": np.zeros(24), "y_ptr": np.zeros(8), "n": 3}


def order(module: Module, *kinds: type[Op]) -> list[str]:
    """The ops of these kinds in the loop."""
    (loop,) = (op for op in module.walk() if isinstance(op, For))
    return [type(op).__name__ for op in loop.body if isinstance(op, kinds)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"late = tl.exp(x); z = tl.cos(x); {STORE}", ["Load", "Cos", "Store", "Exp"]),
        # In a chain, each op is as late as the one that uses it.
        (
            f"late = tl.exp(tl.sin(x)); z = tl.cos(x); {STORE}",
            ["Load", "Cos", "Store", "Sin", "Exp"],
        ),
        # It would keep two tiles for one.
        (
            f"late = tl.exp(x) * 1.0 + tl.load(x_ptr + i); z = tl.cos(late); {STORE}",
            ["Load", "Load", "Exp", "Cos", "Store"],
        ),
        # Loads stay before stores.
        (f"late = tl.load(x_ptr + i); z = tl.cos(x); {STORE}", ["Load", "Load", "Cos", "Store"]),
    ],
    ids=["alone", "a chain", "used before", "a load"],
)
def test_ops_are_computed_where_their_results_are_used(body: str, expected: list[str]) -> None:
    args = arguments()
    module = forward_module(KERNEL.format(body=body.replace("; ", "\n        ")), args, {})
    before, after = copied(args), copied(args)
    run_forward(module, 1, before)
    run(module, (Step(sink_ops),), PassContext())
    run_forward(module, 1, after)
    for name in ("y_ptr", "z_ptr"):
        np.testing.assert_array_equal(before[name], after[name])
    assert order(module, Exp, Cos, Sin, Load, Store) == expected


def test_operands_that_are_larger_are_not_kept_longer() -> None:
    """A cast to fewer bits frees registers where it is."""
    text = KERNEL.format(
        body="late = tl.load(z_ptr + k * 8 + i)\n        late = tl.exp(late).to(tl.float32)"
        "\n        tl.store(x_ptr + k * 8 + i, tl.cos(x))"
    )
    module = forward_module(text, arguments(), {})
    run(module, (Step(sink_ops),), PassContext())
    assert order(module, Exp, Cos, Store) == ["Exp", "Cos", "Store"]
