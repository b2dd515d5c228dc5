"""Factors of a loop's products leave the loop, and products are ordered, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import copied, forward_module, run_forward
from tilewright.ir.core import Module
from tilewright.ir.passes import Pass, PassContext, Step, run
from tilewright.ir.verify import verify_module
from tilewright.ops.arith import Mul
from tilewright.ops.control import For
from tilewright.ops.dot import Dot
from tilewright.ops.math import Exp
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import merge_equal_values
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.factor_products import factor_products
from tilewright.passes.order_products import order_products

CLEAN = (Step(canonicalize), Step(remove_dead_code))
KERNEL = """
def kernel(x_ptr, w_ptr, y_ptr, c, n):
    i, j = tl.arange(0, 8)[:, None], tl.arange(0, 8)[None, :]
    w = tl.load(w_ptr + i * 8 + j)
    acc = tl.full([8, 8], {start}, tl.float64)
    for k in range(n):
        x = tl.load(x_ptr + k * 64 + i * 8 + j)
        {body}
    {after}
    tl.store(y_ptr + i * 8 + j, acc)
"""
FACTORED = {
    "a number": ("acc = tl.dot(x * c, w, acc)", ""),
    "a constant": ("acc = tl.dot(x * 0.7, w, acc)", ""),
    "the other operand": ("acc = tl.dot(x, w * x * c, acc)", ""),
    "both operands": ("acc = tl.dot(x * 3.0, (w + x) * c, acc)", ""),
    "several": ("acc = tl.dot(x * x * c * 0.5, w, acc)", ""),
    "before a cast": ("acc = tl.dot((c * x).to(tl.float32).to(tl.float64), w, acc)", ""),
    "before a select": ("acc = tl.dot(tl.where(i > j, x * c, 0.0), w, acc)", ""),
    "transposed": ("acc = tl.dot(tl.trans(x * c), w, acc)", ""),
    "of two loops": (
        "acc = tl.dot(x * c, w, acc)",
        "for k in range(n): acc = tl.dot(tl.sin(tl.load(x_ptr + k * 64 + i * 8 + j)) * c, w, acc)",
    ),
}
KEPT = {
    "of a row": ("acc = tl.dot(x * i, w, acc)", ""),
    "that changes": ("acc = tl.dot(x * (c * k), w, acc)", ""),
    "with another use": ("z = x * c\n        acc = tl.dot(z, w * z, acc)", ""),
    "of a sum that is used": ("acc = tl.dot(x * c, w + acc, acc)", ""),
    "of a sum that is used later": ("acc = tl.dot(x * c, w, acc)\n        w += acc", ""),
    "before a select with ones": ("acc = tl.dot(tl.where(i > j, x * c, 1.0), w, acc)", ""),
    "of one of two terms": ("acc = tl.dot(x * c + x, w, acc)", ""),
}


def arguments() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x_ptr": rng.uniform(-1, 1, (3, 8, 8)), "w_ptr": rng.uniform(-1, 1, (8, 8)),
        "y_ptr": np.zeros((8, 8)), "c": 1.7, "n": 3,
    }  # fmt: skip


def clean_module(body: str, after: str = "", start: str = "0.0") -> Module:
    text = KERNEL.format(body=body, after=after, start=start)
    module = forward_module(text, arguments(), {})
    run(module, CLEAN, PassContext())
    return module


def in_loops(module: Module, kind: type) -> list[Any]:
    loops = [op for op in module.walk() if isinstance(op, For)]
    return [op for loop in loops for op in loop.body.walk() if isinstance(op, kind)]


def is_changed(module: Module, made: Pass) -> bool:
    """Whether a pass changes the module; it computes the same."""
    before, after = arguments(), arguments()
    run_forward(module, 1, before)
    changed = made(module.entry, PassContext())
    run(module, CLEAN, PassContext())
    run_forward(module, 1, after)
    np.testing.assert_allclose(after["y_ptr"], before["y_ptr"], rtol=1e-6)
    return changed


@pytest.mark.parametrize("case", FACTORED)
def test_factors_are_applied_to_the_sum(case: str) -> None:
    module = clean_module(*FACTORED[case])
    scalars = [op for op in in_loops(module, Mul) if op.result.type.shape == (8, 8)]
    assert is_changed(module, factor_products)
    left = [op for op in in_loops(module, Mul) if op.result.type.shape == (8, 8)]
    assert len(left) < len(scalars)


OF_AN_OPERAND = """
def kernel(x_ptr, w_ptr, y_ptr, z_ptr, c, n):
    i, j = tl.arange(0, 8)[:, None], tl.arange(0, 8)[None, :]
    w = tl.load(w_ptr + i * 8 + j)
    acc = tl.full([8, 8], 0.0, tl.float64)
    for k in range(n):
        z = (tl.load(x_ptr + k * 64 + i * 8 + j) * c).to(tl.float32) * 0.7
        acc = tl.dot(tl.trans(z.to(tl.float64)), w, acc)
        tl.store(z_ptr + k * 64 + i * 8 + j, {other})
    tl.store(y_ptr + i * 8 + j, acc)
"""


@pytest.mark.parametrize(
    ("other", "factored"),
    [
        ("tl.dot(z.to(tl.float64), w)", True),
        ("tl.exp(tl.dot(w, z.to(tl.float64)))", True),
        ("tl.dot(z.to(tl.float64), w, w)", False),
        ("z.to(tl.float64)", False),
    ],
)
def test_another_product_of_the_operand_is_multiplied(other: str, factored: bool) -> None:
    """It is not summed, so that it takes the factors in each iteration."""
    args = {**arguments(), "z_ptr": np.zeros((3, 8, 8))}
    module = forward_module(OF_AN_OPERAND.format(other=other), args, {})
    run(module, (*CLEAN, Step(merge_equal_values)), PassContext())
    before, after = copied(args), copied(args)
    run_forward(module, 1, before)
    assert factor_products(module.entry, PassContext()) == factored
    verify_module(module)
    run_forward(module, 1, after)
    for name in ("y_ptr", "z_ptr"):
        np.testing.assert_allclose(after[name], before[name], rtol=1e-5, atol=1e-6)
    users = [user for op in in_loops(module, Dot) for user in op.result.users]
    assert any(isinstance(user, Mul) for user in users) == factored


def test_a_product_of_constants_is_rounded() -> None:
    text = KERNEL.replace("float64", "float32").format(
        body="acc = tl.dot(x * 0.6931471805599453, w * 1.4426950408889634, acc)",
        after="", start="0.0",
    )  # fmt: skip
    args = {k: v.astype(np.float32) if k.endswith("ptr") else v for k, v in arguments().items()}
    module = forward_module(text, args, {})
    run(module, CLEAN, PassContext())
    assert factor_products(module.entry, PassContext())
    verify_module(module)


@pytest.mark.parametrize("case", KEPT)
def test_other_factors_stay(case: str) -> None:
    assert not is_changed(clean_module(*KEPT[case]), factor_products)


def test_a_sum_that_starts_with_a_number_stays() -> None:
    body, after = FACTORED["a number"]
    assert not is_changed(clean_module(body, after, "1.0"), factor_products)
    body, after = FACTORED["of two loops"]
    module = clean_module(body, after.replace("* c", "* (c + 1.0)"))
    assert is_changed(module, factor_products)
    (second,) = [op for op in module.walk() if isinstance(op, For)][1:]
    assert any(isinstance(op, Mul) for op in second.body.walk())


def test_a_product_from_whose_result_more_is_computed_is_first() -> None:
    body = """d = tl.dot(x, w)
        s = tl.dot(w, x)
        acc = tl.dot(tl.exp(s) * d, w, acc)"""
    module = clean_module(body)
    assert is_changed(module, order_products)
    ops = list(next(op for op in module.walk() if isinstance(op, For)).body)
    products = [op for op in ops if isinstance(op, Dot)]
    (exp,) = (op for op in ops if isinstance(op, Exp))
    assert exp.src is products[0].result
    assert ops.index(products[1]) < ops.index(exp) < ops.index(products[2])
    assert not is_changed(module, order_products)


def test_products_that_no_other_needs_follow_in_the_order_of_their_operands() -> None:
    """Although more is computed from the last one."""
    body = """s = tl.dot(x, w)
        p = tl.exp(s)
        t = tl.trans(p * (s - c))
        q = tl.dot(tl.trans(t), x)
        r = tl.dot(t, w) * c
        acc = tl.dot(p, w, acc) + tl.exp(r) * q"""
    module = clean_module(body)
    assert is_changed(module, order_products)
    ops = list(next(op for op in module.walk() if isinstance(op, For)).body)
    products = [op for op in ops if isinstance(op, Dot)]
    assert isinstance(products[1].lhs.op, Exp)
    assert any(isinstance(user, Mul) for user in products[2].result.users)
    assert not is_changed(module, order_products)


def test_products_do_not_pass_writes() -> None:
    body = """d = tl.dot(x, w)
        tl.store(y_ptr + i * 8 + j, d)
        s = tl.dot(w, tl.load(y_ptr + i * 8 + j))
        acc = tl.dot(tl.exp(s) * d, w, acc)"""
    assert not is_changed(clean_module(body), order_products)
