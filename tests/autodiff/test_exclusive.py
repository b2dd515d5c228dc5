"""Results that are stored in one of several branches, or before an early return."""

from __future__ import annotations

import numpy as np
import pytest

from tests.autodiff.harness import check_gradients, forward_module, launch_verdicts

STORE = "tl.store(y_ptr + p * 8 + i, {})"
FORMS = {
    "elif": f"""
    if f < 1:
        {STORE.format("x * x")}
    elif f < 2:
        {STORE.format("tl.exp(x)")}
    else:
        {STORE.format("3.0 * x")}
""",
    "two early returns": f"""
    if f < 1:
        {STORE.format("x * x")}
        return
    if f < 2:
        {STORE.format("tl.exp(x)")}
        return
    {STORE.format("3.0 * x")}
""",
    "an early return in a branch": f"""
    if f > 0:
        x = tl.sin(x)
        if f > 1:
            {STORE.format("x * x")}
            return
    {STORE.format("3.0 * x")}
""",
    "branches in a branch": f"""
    if f > 0:
        z = 2.0 * x
        if p % 2 == 0:
            {STORE.format("z * x")}
        else:
            {STORE.format("z")}
    else:
        {STORE.format("3.0 * x")}
""",
    "the negation of a condition": f"""
    g = f > 1
    if g | (f == 0):
        {STORE.format("x * x")}
    if not (g | (f == 0)):
        {STORE.format("tl.exp(x)")}
""",
}
REJECTED = {
    "two branches": f"""
    if f > 0:
        {STORE.format("x * x")}
    if f > 1:
        {STORE.format("tl.exp(x)")}
""",
    "before a branch": f"""
    {STORE.format("x * x")}
    if f > 1:
        {STORE.format("tl.exp(x)")}
""",
    "iterations": f"""
    for k in range(2):
        if f + k > 1:
            {STORE.format("x * x")}
        else:
            {STORE.format("tl.exp(x)")}
""",
    "a return in one of two branches": f"""
    if f > 0:
        {STORE.format("x * x")}
        if f > 1:
            return
    {STORE.format("3.0 * x")}
""",
}


def kernel(body: str) -> str:
    return f"""
def kernel(x_ptr, y_ptr, f_ptr):
    p, i = tl.program_id(0), tl.arange(0, 8)
    x, f = tl.load(x_ptr + p * 8 + i), tl.load(f_ptr + p)
{body}
"""


ARGS = {
    "x_ptr": np.random.default_rng(0).standard_normal(48), "y_ptr": np.zeros(48),
    "f_ptr": np.array([0, 1, 2, 2, 1, 0], np.int32),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_an_element_that_one_of_several_branches_stores(form: str) -> None:
    check_gradients(kernel(FORMS[form]), 6, ARGS, ("x_ptr",), ("y_ptr",))


@pytest.mark.parametrize("form", REJECTED)
def test_an_element_that_may_be_stored_twice(form: str) -> None:
    module = forward_module(kernel(REJECTED[form]), ARGS, {})
    _, stores = launch_verdicts(module, 6, ARGS)
    assert not stores["y_ptr"].distinct
