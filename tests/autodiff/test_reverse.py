"""Reverse mode of whole kernels: gradients, schedules, and masked lanes."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.autodiff.cases import NAMES, NORMS, OVERLAPPING, SEVERAL_TIMES, SHARED, case
from tests.autodiff.harness import (
    Arrays,
    check_gradients,
    cleaned,
    copied,
    count,
    counts,
    forward_module,
    launch_points,
    launch_verdicts,
    run_forward,
    vjp,
)
from tests.frontend.kernels import function_from
from tilewright.analysis.blocks import BlockFinder
from tilewright.autodiff.arrays import arrays_of
from tilewright.autodiff.coarsen import coarsening
from tilewright.autodiff.reverse import reverse_mode
from tilewright.ir.core import Module
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.control import For
from tilewright.ops.math import Exp
from tilewright.ops.memory import Load, Store


@pytest.mark.parametrize("name", [*NAMES, OVERLAPPING])
def test_gradients(name: str) -> None:
    text, grid, args, wrt, outputs, constexprs = case(name)
    check_gradients(text, grid, args, wrt, outputs, constexprs)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_is_loaded_once(name: str) -> None:
    """The proof agrees with the kernel that counts; it is complete for these kernels."""
    text, grid, args, wrt, outputs, constexprs = case(name)
    module = forward_module(text, args, constexprs)
    loads, stores = launch_verdicts(module, grid, args)
    for array in wrt:
        often = counts(module, array, grid, args)
        shared, again = SHARED.get(name, set[str]()), SEVERAL_TIMES.get(name, set[str]())
        assert loads[array].private == (array not in shared)
        assert loads[array].distinct == (often.max() <= 1) == (array not in shared | again)
        if loads[array].elements is not None:
            assert loads[array].elements == often.sum()
    for array in outputs:
        assert stores[array].distinct
        assert counts(module, array, grid, args, stores=True).max() == 1


@pytest.mark.parametrize("name", [n for n in NAMES if n not in SHARED])
def test_gradients_of_unshared_arrays_need_no_atomics(name: str) -> None:
    text, _, args, wrt, outputs, constexprs = case(name)
    module = cleaned(reverse_mode(forward_module(text, args, constexprs), wrt, outputs).module)
    assert count(module, AtomicRMW) == 0


@pytest.mark.parametrize("name", [n for n in NAMES if n in SHARED])
def test_no_gradient_needs_atomics(name: str) -> None:
    """What is not added up in registers is in a worker's row, or in the gradient itself."""
    text, grid, args, wrt, outputs, constexprs = case(name)
    module = forward_module(text, args, constexprs)
    arrays = [a for a in arrays_of(module.entry).values() if a.name in SHARED[name]]
    points = launch_points(module, grid, args)
    coarse = coarsening(module.entry, arrays, points, BlockFinder(), SHARED[name])
    assert coarse is not None
    assert set(coarse.arrays) == SHARED[name].intersection(wrt)
    private = tuple(SEVERAL_TIMES.get(name, ()))
    made = cleaned(reverse_mode(module, wrt, outputs, private=private, coarse=coarse).module)
    assert count(made, AtomicRMW) == 0


@pytest.mark.parametrize("name", NORMS)
def test_norms_need_no_atomics(name: str) -> None:
    """Workers add up the gradients of weights, and store all of a row in one pass over it."""
    text, grid, args, wrt, outputs, constexprs = case(name)
    module = forward_module(text, args, constexprs)
    points = launch_points(module, grid, args)
    shared = [a for a in arrays_of(module.entry).values() if a.name in SHARED[name]]
    coarse = coarsening(module.entry, shared, points, BlockFinder())
    assert coarse is not None
    assert set(coarse.arrays) == SHARED[name].intersection(wrt)
    assert coarse.axes == ((1,) if name == "group norm" else (0,))
    made = cleaned(reverse_mode(module, wrt, outputs, coarse=coarse).module)
    assert count(made, AtomicRMW) == 0
    assert count(made, For) == 1
    assert count(made, Store) == len(wrt)
    assert count(made, Load) == 3  # x, the weights, and the gradient of y
    (loop,) = (op for op in made.entry.body if isinstance(op, For))
    assert sum(isinstance(op, Load) for op in loop.body) == 2  # the weights are loaded once


def test_boxes_are_stored_field_by_field() -> None:
    text, grid, args, wrt, outputs, constexprs = case("boxes")
    forward = forward_module(text, args, constexprs)
    assert launch_verdicts(forward, grid, args)[0]["a_ptr"].elements == 52
    module = cleaned(reverse_mode(forward, wrt, outputs).module)
    assert (count(module, Store), count(module, Load)) == (4, 5)


def test_elementwise_kernels_load_once() -> None:
    text, _, args, wrt, outputs, constexprs = case("swiglu")
    module = cleaned(reverse_mode(forward_module(text, args, constexprs), wrt, outputs).module)
    assert (count(module, Load), count(module, Store), count(module, Exp)) == (3, 2, 1)


def test_accumulation_adds_to_what_is_there() -> None:
    text, grid, args, wrt, outputs, constexprs = case("gelu")
    module = forward_module(text, args, constexprs)
    w = {"y_ptr": np.random.default_rng(1).standard_normal(39)}
    once = vjp(module, grid, args, w, wrt)["x_ptr"]
    derived = reverse_mode(module, wrt, outputs, accumulate=True)
    assert count(derived.module, Load) == 3
    again = vjp(module, grid, args, w, wrt, accumulate=True)["x_ptr"]
    np.testing.assert_array_equal(once, again)


# -- masked lanes ---------------------------------------------------------------------------------

SPREADING = """
def kernel(x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    w = tl.load(w_ptr + tl.program_id(0))
    y = tl.log(x) * w + w * (1.0 / x)
    tl.store(y_ptr + at, y, mask=at < n)
"""


def test_masked_infinities_do_not_spread() -> None:
    """log 0 and 1/0 in the lanes that are not stored; their adjoints are summed for w."""
    rng = np.random.default_rng(2)
    args = {"x_ptr": rng.uniform(0.5, 2, 13), "y_ptr": np.zeros(13), "n": 13}
    args["w_ptr"] = rng.uniform(0.5, 2, 2)
    check_gradients(SPREADING, 2, args, ("x_ptr", "w_ptr"), ("y_ptr",), {"BLOCK": 8})


def test_masked_memory_is_not_touched() -> None:
    """Cotangents and inputs hold NaN where nothing is stored, and gradients stay as they are."""
    text, grid, args, wrt, _, constexprs = case("softmax")
    wide = {
        k: np.full((3, 16), np.nan) if isinstance(v, np.ndarray) else v for k, v in args.items()
    }
    wide["x_ptr"][:, :13] = args["x_ptr"]
    wide["stride"] = 16
    module = forward_module(text, wide, constexprs)
    w = np.full((3, 16), np.nan)
    w[:, :13] = np.random.default_rng(1).standard_normal((3, 13))
    after = copied(wide)
    run_forward(module, grid, after)
    found = vjp(module, grid, after, {"y_ptr": w}, wrt)["x_ptr"]
    y = after["y_ptr"][:, :13]
    expected = y * (w[:, :13] - (y * w[:, :13]).sum(1, keepdims=True))
    np.testing.assert_allclose(found[:, :13], expected, rtol=1e-12)
    assert (found[:, 13:] == 0).all()


# -- the gradient of a gradient -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gelu", "softmax", "swiglu"])
def test_a_gradient_has_a_gradient(name: str) -> None:
    text, grid, args, wrt, outputs, constexprs = case(name)
    first = cleaned(reverse_mode(forward_module(text, args, constexprs), wrt, outputs).module)
    more: Arrays = {}
    for arg in first.entry.arg_names[len(args) :]:
        array = args[arg.removesuffix("_cotangent").removesuffix("_gradient")]
        more[arg] = np.random.default_rng(9).standard_normal(array.shape)
    inputs = (*wrt, *[n for n in more if n.endswith("_cotangent")])
    results = tuple(n for n in more if n.endswith("_gradient"))
    after = {**args, **more}
    fixed = Module([first.entry])
    check_gradients(fixed, grid, after, inputs, results, rtol=1e-8)


BRANCHES = {
    "of an argument": "if n > 5:\n        s, b = 8, n\n    else:\n        s, b = 1, 0",
    "of programs": "if p == 1:\n        s, b = 8, 39\n    else:\n        s, b = 16, n",
}


@pytest.mark.parametrize("branch", BRANCHES)
def test_indices_that_a_branch_chooses_are_known(branch: str) -> None:
    text = f"""
def kernel(x_ptr, y_ptr, n):
    p, i = tl.program_id(0), tl.arange(0, 8)
    {BRANCHES[branch]}
    tl.store(y_ptr + p * 8 + i, tl.sin(tl.load(x_ptr + p * s + b + i)))
"""
    args = {"x_ptr": np.linspace(0, 1, 99), "y_ptr": np.zeros(32), "n": 7}
    module = check_gradients(text, 4, args, ("x_ptr",), ("y_ptr",))
    assert launch_verdicts(module, 4, args)[0]["x_ptr"].distinct


ROWS = """
@jit
def times(a, b):
    return a * b
def kernel(x_ptr, w_ptr, y_ptr, m):
    i, j, at = tl.arange(0, 4), tl.arange(0, 4), tl.arange(0, 8)
    wide, inside = tl.arange(0, 16), (i < m)[:, None]
    z = tl.load(x_ptr + i[:, None] * 8 + at[None, :], mask=inside, other=0.0)
    w = tl.load(w_ptr + at)[None, :]
    v = tl.sin(w / z)
    {compute}
    tl.store(y_ptr + i[:, None] * 16 + {column}[None, :], y, mask=inside)
"""
BEYOND_THE_LAST = {
    "a statistic": "r = 1.0 / tl.sqrt(tl.sum(z * w * z * w, 1))\n    y = z * w * r[:, None]",
    "joined": "y = tl.reshape(tl.join(v, tl.sin(v)), [4, 16])",
    "split": "a, b = tl.split(tl.reshape(v, [4, 4, 2]))\n    y = a * b",
    "concatenated": "y = tl.cat(v, tl.sin(v), dim=1)",
    "added up": "y = tl.cumsum(v, 1)",
    "multiplied": "y = v * tl.reduce(v, 1, times)[:, None]",
    "the greatest": "y = v * tl.max(v, 1)[:, None]",
    "the greater": "y = tl.maximum(w, tl.where(inside, v, tl.exp(w) / z))",
    "the size": "y = tl.abs(v + 2.0)",
    "gathered": "y = tl.gather(v, tl.broadcast_to((at % 3)[None, :], [4, 8]), 1)",
}


@pytest.mark.parametrize("kind", BEYOND_THE_LAST)
def test_rows_beyond_the_last_do_not_spread(kind: str) -> None:
    """What rows have in common has a gradient without the NaN of rows that are not stored."""
    column = {"split": "j", "joined": "wide", "concatenated": "wide"}.get(kind, "at")
    text = ROWS.format(compute=BEYOND_THE_LAST[kind], column=column)
    rng = np.random.default_rng(0)
    args = {"x_ptr": rng.uniform(0.5, 1, 64), "w_ptr": rng.uniform(0.5, 1, 8)}
    args |= {"y_ptr": np.zeros(64), "m": 3}
    check_gradients(text, 1, args, ("x_ptr", "w_ptr"), ("y_ptr",))


@pytest.mark.parametrize(
    "compute",
    [
        "g = tl.max(e / tl.sum(e, 0), 0)",
        "g = tl.min(x * 0.3 + tl.sin(x), 0)",
        "v = e / tl.sum(e, 0)\n    g = tl.max(v, 0)\n    y = tl.where(v == g, x, 0.5 * x)",
        "v = e / tl.sum(e, 0)\n    g = tl.max(v, 0)\n    y = tl.where(v >= g, x, 0.5 * x)",
        "v = e / tl.sum(e, 0)\n    g = tl.max(v, 0)\n    y = tl.maximum(v, g) * x",
    ],
)
def test_extrema_that_another_kernel_has_stored(compute: str) -> None:
    """It may have rounded otherwise than the gradient kernel, as `check_gradients` assumes."""
    text = f"""
def kernel(x_ptr, g_ptr, y_ptr):
    row, j = tl.program_id(0), tl.arange(0, 32)
    x = tl.load(x_ptr + row * 32 + j)
    y, e = x, tl.exp(x - tl.max(x, 0))
    {compute}
    tl.store(g_ptr + row, g)
    tl.store(y_ptr + row * 32 + j, y * g)
"""
    x = np.random.default_rng(0).standard_normal((4, 32))
    args = {"x_ptr": x, "g_ptr": np.zeros(4), "y_ptr": np.zeros((4, 32))}
    check_gradients(text, 4, args, ("x_ptr",), ("g_ptr", "y_ptr"))


@pytest.mark.parametrize(("type", "error"), [("float16", 1e-6), ("float8e5", 0.2)])
def test_values_are_taken_as_they_were_before_they_were_rounded(type: str, error: float) -> None:
    """To 16 bits; those of 8 bits are quantised, and multiplied as such."""
    text = f"""
def kernel(x_ptr, w_ptr, y_ptr):
    at = tl.arange(0, 64)
    x = tl.sin(tl.load(x_ptr + at)).to(tl.{type})
    tl.store(y_ptr + at, x * tl.load(w_ptr + at).to(tl.{type}))
"""
    kernel = tw.jit(function_from(text))
    rng = np.random.default_rng(0)
    x, w, y = (rng.uniform(0.5, 1, 64).astype(np.float32) for _ in range(3))
    into = {name: np.zeros(64, np.float32) for name in ("x_ptr", "w_ptr")}
    tw.grad(kernel)[(1,)](x, w, y, grads={"y_ptr": np.ones_like(y)}, into=into)
    differences = np.abs(into["w_ptr"] - np.sin(x)), np.abs(into["x_ptr"] - np.cos(x) * w)
    assert max(map(np.max, differences)) < error
    assert (len(set(into["w_ptr"])) < 8) == (type == "float8e5")
