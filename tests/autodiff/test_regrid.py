"""Gradients on grids of their own: of matrix products and attention, without atomics."""

from __future__ import annotations

import numpy as np
import pytest

from tests.autodiff.cases import case
from tests.autodiff.harness import (
    check_gradients,
    copied,
    counts,
    forward_module,
    launch_points,
    regrid_vjp,
)
from tilewright.analysis.blocks import BlockFinder
from tilewright.autodiff import regrid, reloads
from tilewright.autodiff.arrays import arrays_of
from tilewright.autodiff.regrid import regrids
from tilewright.autodiff.schedules import Regrid
from tilewright.ir.core import Module
from tilewright.ops.arith import IntDiv
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.control import For, If
from tilewright.ops.dot import Dot
from tilewright.ops.memory import Load, Store
from tilewright.ops.reduce import Reduce

PRODUCTS = ("product", "product with gelu", "grouped product", "grouped product with gelu")
PERSISTENT = ("persistent product", "persistent product with gelu")
GROUPED = ("grouped queries", "grouped heads", "attention in a branch")
VARIABLE = ("variable lengths", "causal variable lengths")
ATTENTION = ("full attention", "causal attention", "windowed attention", *GROUPED, *VARIABLE)
SHARED = {
    **dict.fromkeys(PRODUCTS, ("a_ptr", "b_ptr")),
    **dict.fromkeys(PERSISTENT, ("a_ptr", "b_ptr")),
    **dict.fromkeys(ATTENTION, ("k_ptr", "v_ptr")),
}


def derived(name: str) -> list[Module]:
    text, grid, args, wrt, outputs, constexprs = case(name)
    module = forward_module(text, args, constexprs)
    w = {n: np.ones(args[n].shape) for n in outputs}
    found, kernels = regrid_vjp(module, grid, copied(args), w, wrt)
    assert sorted(found) == sorted(SHARED[name])
    return kernels


def of_kind(module: Module, kind: type) -> int:
    return sum(isinstance(op, kind) for op in module.walk())


def numbers(module: Module) -> tuple[int, int, int, int]:
    """Products, loops, loads and stores."""
    return (
        of_kind(module, Dot), of_kind(module, For), of_kind(module, Load), of_kind(module, Store)
    )  # fmt: skip


# Of each kernel: products, loops, loads, stores. The kernel on the forward grid comes first if it
# saves something.
KERNELS = {
    "product": [(1, 1, 2, 1), (1, 1, 2, 1)],
    "grouped product": [(1, 1, 2, 1), (1, 1, 2, 1)],
    "product with gelu": [(1, 1, 4, 1), (1, 1, 2, 1), (1, 1, 2, 1)],
    "grouped product with gelu": [(1, 1, 4, 1), (1, 1, 2, 1), (1, 1, 2, 1)],
    "persistent product": [(1, 1, 2, 1), (1, 1, 2, 1)],
    "persistent product with gelu": [(1, 2, 3, 1), (1, 1, 2, 1), (1, 1, 2, 1)],
    **{
        name: [(4, 1, 7, 2)]  # the results of the kernel are among the loads
        for name in ("full attention", *GROUPED)
    },
    # Also the first program and the end, and starts of sequences.
    "windowed attention": [(4, 1, 9, 2)],
    "causal attention": [(8, 2, 16, 2)],  # a tile has queries of both loops
    **{name: [(2, 1, 6, 3), (4, 1, 11, 2)] for name in VARIABLE},
}


@pytest.mark.parametrize("name", KERNELS)
def test_each_tile_of_a_shared_array_is_stored_once(name: str) -> None:
    kernels = derived(name)
    assert [numbers(kernel) for kernel in kernels] == KERNELS[name]
    assert all(of_kind(kernel, AtomicRMW) == 0 for kernel in kernels)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name in ATTENTION if name not in VARIABLE])
def test_rows_of_adjoints_are_saved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over tiles as large as these are saved, and sums over small ones computed again."""
    monkeypatch.setattr(reloads, "FEWER", 2)
    first, *others = derived(name)
    kernels = derived_without_change(name, monkeypatch)
    assert len(others) == len([k for k in kernels if of_kind(k, Dot) >= 4]) == 1
    # The row of adjoints, of each loop's results, is stored and loaded; the results are not.
    assert of_kind(first, Store) == of_kind(others[0], Dot) // 4
    for kernel in others:
        assert of_kind(kernel, Reduce) == 0
    text, grid, args, wrt, outputs, constexprs = case(name)
    check_gradients(forward_module(text, args, constexprs), grid, args, wrt, outputs)


def derived_without_change(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Module]:
    with monkeypatch.context() as patch:
        patch.setattr(reloads, "FEWER", 1 << 30)
        return derived(name)


def schedules(name: str) -> tuple[Module, list[Regrid]]:
    text, grid, args, _, _, constexprs = case(name)
    module = forward_module(text, args, constexprs)
    arrays = [a for a in arrays_of(module.entry).values() if a.name in SHARED[name]]
    points = launch_points(module, grid, args)
    return module, regrids(module.entry, arrays, points, BlockFinder())


@pytest.mark.parametrize("name", SHARED)
def test_tiles_have_the_elements_that_are_loaded(name: str) -> None:
    _, grid, args, _, _, _ = case(name)
    module, found = schedules(name)
    for array in SHARED[name]:
        loaded = (counts(module, array, grid, args) > 0).sum()
        stored = sum(s.verdicts[array].elements or 0 for s in found if array in s.verdicts)
        assert stored == loaded


def test_a_box_of_coordinates_is_recognised_after_a_grouped_order() -> None:
    _, (one, other) = schedules("grouped product")
    assert sorted(one.coordinates.extents) == [3, 4]
    assert all(digits == (i,) for i, digits in enumerate(one.coordinates.digits.values()))
    assert {one.programs, other.programs} == {12, 9}


def test_programs_that_lack_an_iteration_are_left_out() -> None:
    """The loops of causal attention end at the diagonal."""
    causal, full = schedules("causal attention")[1], schedules("full attention")[1]
    assert not any(part.uniform for s in causal for part in s.parts)
    assert all(part.uniform for s in full for part in s.parts)
    assert all(part.bounds is not None for s in causal for part in s.parts)
    assert all(of_kind(kernel, If) == 0 for kernel in derived("causal attention"))
    assert all(of_kind(kernel, If) == 0 for kernel in derived("full attention"))


def test_programs_that_are_not_consecutive_are_left_out_one_by_one() -> None:
    text = """
def kernel(x_ptr, c_ptr, y_ptr):
    p = tl.program_id(0)
    j = tl.arange(0, 4)
    x = tl.load(x_ptr + p * 4 + j)
    s = tl.zeros([4], tl.float64)
    for k in range(p % 2, 4):
        s += tl.load(c_ptr + k * 4 + j) * x
    tl.store(y_ptr + p * 4 + j, s)
"""
    rng = np.random.default_rng(0)
    args = {"x_ptr": rng.uniform(-1, 1, 16), "c_ptr": rng.uniform(-1, 1, 16), "y_ptr": np.zeros(16)}
    module = forward_module(text, args, {})
    points = launch_points(module, 4, args)
    arrays = [a for a in arrays_of(module.entry).values() if a.name == "c_ptr"]
    (found,) = regrids(module.entry, arrays, points, BlockFinder())
    assert found.parts[0].bounds is None
    assert not found.parts[0].uniform
    check_gradients(module, 4, args, ("x_ptr", "c_ptr"), ("y_ptr",))


def test_without_consecutive_programs_bounds_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regrid, "_are_consecutive", lambda *given: True)
    with pytest.raises(AssertionError):
        test_programs_that_are_not_consecutive_are_left_out_one_by_one()


def test_loads_in_two_loops_have_separate_numbers() -> None:
    """Of each loop other iterations, which begin elsewhere."""
    text = """
def kernel(x_ptr, c_ptr, y_ptr):
    p, q = tl.program_id(0), tl.program_id(1)
    j = tl.arange(0, 8)
    x = tl.load(x_ptr + q * 8 + j)
    s = tl.zeros([8], tl.float64)
    for k in range(0, p):
        s += tl.load(c_ptr + (p * 4 + k) * 8 + j) * x
    for k in range(p, 4):
        s += tl.load(c_ptr + (p * 4 + k) * 8 + j) * tl.sin(x)
    tl.store(y_ptr + (p * 2 + q) * 8 + j, s)
"""
    rng = np.random.default_rng(0)
    args = {
        "x_ptr": rng.uniform(-1, 1, 16),
        "c_ptr": rng.uniform(-1, 1, 128),
        "y_ptr": np.zeros(64),
    }
    taken: dict[str, str] = {}
    check_gradients(text, (4, 2), args, ("x_ptr", "c_ptr"), ("y_ptr",), schedules=taken)
    assert taken["c_ptr"] == "a grid of its own"


BY_QUOTIENT = """
def kernel(a_ptr, b_ptr, c_ptr, k, FIRST: tl.constexpr, WIDE: tl.constexpr):
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    j = tl.program_id(1) * 4 + tl.arange(0, 4)
    acc = tl.zeros([4, 4], tl.float64)
    for start in range(FIRST, k, 4):
        turn = (start.to(tl.int64) - FIRST) // 4 if WIDE else start // 4
        at = turn * 4 + tl.arange(0, 4)
        a = tl.load(a_ptr + i[:, None] * k + at[None, :])
        acc += tl.dot(a, tl.load(b_ptr + at[:, None] * 8 + j[None, :]))
    tl.store(c_ptr + i[:, None] * 8 + j[None, :], acc)
"""


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("first", [0, 4])
def test_the_number_of_an_iteration_is_known(first: int, wide: bool) -> None:
    """`start // 4` is that number only where the loop begins with 0."""
    rng = np.random.default_rng(0)
    args = {"a_ptr": rng.standard_normal((8, 12)), "b_ptr": rng.standard_normal((12, 8))}
    args |= {"c_ptr": np.zeros((8, 8)), "k": 12}
    module = forward_module(BY_QUOTIENT, args, {"FIRST": first, "WIDE": wide})
    check_gradients(module, (2, 2), args, ("a_ptr", "b_ptr"), ("c_ptr",))
    w = {"c_ptr": np.ones((8, 8))}
    _, kernels = regrid_vjp(module, (2, 2), copied(args), w, ("a_ptr", "b_ptr"))
    assert len(kernels) == 2
    for kernel in kernels:
        found = [op for op in kernel.walk() if isinstance(op, IntDiv)]
        assert len(found) == (2 if first and not wide else 1)  # one is of the program
