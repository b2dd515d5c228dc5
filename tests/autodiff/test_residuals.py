"""Results of loops that are loaded instead of running the loops again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import (
    check_gradients,
    copied,
    count,
    forward_module,
    launch_points,
    regrid_vjp,
    run_forward,
    stored_once,
    vjp,
)
from tilewright.autodiff.arrays import arrays_of
from tilewright.autodiff.equivariance import Equivariances
from tilewright.autodiff.reverse import reverse_mode
from tilewright.ir.core import Module
from tilewright.ops.control import For

KERNEL = """
def kernel(x_ptr, v_ptr, y_ptr, lse_ptr, n):
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    m = tl.full([4], -float("inf"), tl.float64)
    l = tl.zeros([4], tl.float64)
    acc = tl.zeros([4], tl.float64)
    for k in range(n):
        s = tl.load(x_ptr + i * 8 + k, mask=i < 10, other=0.0)
        largest = tl.maximum(m, s)
        w, a = tl.{exp}(s - largest), tl.{exp}(m - largest)
        l = l * a + w
        acc = acc * a + w * tl.load(v_ptr + k)
        m = largest
    tl.store(y_ptr + i, {y}, mask=i < 10)
    tl.store(lse_ptr + {place}, {lse}, mask={mask})
"""
GIVEN = {"exp": "exp", "y": "acc / l", "lse": "m + tl.log(l)", "place": "i", "mask": "i < 10"}
LOADED = (
    {},
    {"lse": "(m + tl.log(l)) * 0.5"},
    {"lse": "-tl.log(l) - m"},
    {"y": "acc * (1.0 / l)"},
    {"exp": "exp2", "lse": "m + tl.log2(l)"},
    {"exp": "exp2", "lse": "(m + tl.log2(l)) * 0.6931471805599453"},
)
COMPUTED = (
    {"lse": "m + 2 * tl.log(l)"},
    {"lse": "m"},
    {"lse": "tl.log(l)"},
    {"lse": "m + tl.log(l) + 1.0"},
    {"lse": "m + tl.log2(l)"},
    {"lse": "(m + tl.log(l)).to(tl.float16).to(tl.float64)"},
    {"exp": "exp2", "lse": "m + tl.log(l)"},
    {"y": "acc / l * 2.0"},
    {"y": "tl.sin(acc / l)"},
    {"place": "i // 2"},
    {"lse": "tl.flip(m + tl.log(l))"},
    {"lse": "tl.flip(m) + tl.log(l)"},
    {"mask": "i < 8"},
    {"mask": "(i < 10) & (i % 2 == 0)"},
)


def kernel_of(change: dict[str, str]) -> tuple[Module, dict[str, Any]]:
    rng = np.random.default_rng(0)
    args: dict[str, Any] = {"x_ptr": rng.uniform(-2, 2, (12, 8)), "v_ptr": rng.uniform(-1, 1, 8)}
    args |= {"y_ptr": np.zeros(12), "lse_ptr": np.zeros(12), "n": 8}
    return forward_module(KERNEL.format(**{**GIVEN, **change}), args, {}), args


def _loops(module: Module, args: dict[str, Any]) -> int:
    """The loops of the kernel that computes the gradient of x."""
    stored = stored_once(module, 3, args)
    derived = reverse_mode(module, ("x_ptr",), ("y_ptr",), ("lse_ptr",), stored=stored)
    return count(derived.module, For)


@pytest.mark.parametrize("change", LOADED, ids=str)
def test_what_is_stored_is_loaded(change: dict[str, str]) -> None:
    module, args = kernel_of(change)
    assert _loops(module, args) == 1
    check_gradients(
        module, 3, args, ("x_ptr", "v_ptr"), ("y_ptr",), aux=("lse_ptr",), schedules=(found := {})
    )
    assert found["v_ptr"]
    # The results of the kernel's own launch are read.
    after = copied(args)
    run_forward(module, 3, after)
    after["lse_ptr"][...] = np.nan
    gradient = vjp(module, 3, after, {"y_ptr": np.ones(12)}, ("x_ptr",), aux=("lse_ptr",))
    assert np.isnan(gradient["x_ptr"]).any()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", COMPUTED, ids=str)
def test_what_is_not_stored_is_recomputed(change: dict[str, str]) -> None:
    module, args = kernel_of(change)
    assert _loops(module, args) == 2
    check_gradients(module, 3, args, ("x_ptr", "v_ptr"), ("y_ptr",), aux=("lse_ptr",))


def test_a_quotient_of_few_bits_is_recomputed() -> None:
    for element, loops in (("bfloat16", 1), ("float8e5", 2)):
        module, args = kernel_of({"y": f"(acc / l).to(tl.{element}).to(tl.float64)"})
        assert _loops(module, args) == loops


COLUMNS = """
def kernel(x_ptr, v_ptr, y_ptr, lse_ptr, z_ptr, n):
    i, d = tl.arange(0, 4), tl.arange(0, 4)
    m = tl.full([4], -float("inf"), tl.float64)
    l = tl.zeros([4], tl.float64)
    acc = tl.zeros([4, 4], tl.float64)
    for k in range(n):
        s = tl.load(x_ptr + i * 8 + k)
        largest = tl.maximum(m, s)
        w, a = tl.exp(s - largest), tl.exp(m - largest)
        l = l * a + w
        acc = acc * a[:, None] + w[:, None] * tl.load(v_ptr + k * 4 + d)[None, :]
        m = largest
    y = acc / l[:, None]
    at = i[:, None] * 4 + d[None, :]
    tl.store(y_ptr + at, y, mask=(d < 3)[None, :])
    tl.store(lse_ptr + i, m + tl.log(l))
    {store}
"""


@pytest.mark.parametrize(
    ("store", "is_loaded"),
    [
        ("tl.store(z_ptr + at, y * y, mask=(d < 3)[None, :])", True),
        ("tl.store(z_ptr + at, y * y, mask=(i < 2)[:, None] & (d < 3)[None, :])", True),
        ("tl.store(z_ptr + at, tl.maximum(y, 0.1), mask=(d < 3)[None, :])", False),
        ("tl.store(z_ptr + at, y * y)", False),
        ("tl.store(z_ptr + at, y * y, mask=(d < 2)[None, :] | (i < 1)[:, None])", False),
        ("tl.store(z_ptr + i, tl.sum(y * y, 1))", False),
    ],
)
def test_columns_that_are_not_stored_are_not_used(store: str, is_loaded: bool) -> None:
    rng = np.random.default_rng(0)
    args: dict[str, Any] = {
        "x_ptr": rng.uniform(-2, 2, (4, 8)),
        "v_ptr": rng.uniform(-1, 1, (8, 4)),
    }
    args |= {"y_ptr": np.zeros((4, 4)), "lse_ptr": np.zeros(4), "z_ptr": np.zeros((4, 4)), "n": 8}
    module = forward_module(COLUMNS.format(store=store), args, {})
    outputs = ("y_ptr", "z_ptr")
    stored = stored_once(module, 1, args)
    derived = reverse_mode(module, ("x_ptr",), outputs, ("lse_ptr",), stored=stored)
    assert (count(derived.module, For) == 1) == is_loaded
    check_gradients(module, 1, args, ("x_ptr", "v_ptr"), outputs, aux=("lse_ptr",))


def test_a_result_with_a_gradient_may_be_loaded_as_well() -> None:
    module, args = kernel_of({})
    check_gradients(module, 3, args, ("x_ptr", "v_ptr"), ("y_ptr", "lse_ptr"))


def test_a_separate_grid_needs_nothing_saved() -> None:
    module, args = kernel_of({})
    after = copied(args)
    run_forward(module, 3, after)
    points = launch_points(module, 3, args)
    assert points.count == 3
    assert {a.name for a in arrays_of(module.entry).values()} >= {"v_ptr"}
    _, kernels = regrid_vjp(module, 3, after, {"y_ptr": np.ones(12)}, ("v_ptr",), aux=("lse_ptr",))
    assert len(kernels) == 1


@pytest.mark.parametrize("lse", ["m + 2 * tl.log(l)", "m + tl.log2(l)"])
def test_results_that_change_with_the_maximum_must_not_be_loaded(
    lse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, args = kernel_of({"lse": lse})
    monkeypatch.setattr(Equivariances, "is_known_fixed", lambda *given: True)
    with pytest.raises(AssertionError):
        check_gradients(module, 3, args, ("x_ptr", "v_ptr"), ("y_ptr",), aux=("lse_ptr",))
