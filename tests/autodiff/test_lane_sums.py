"""Gradients of elements that several lanes of a tile load: each program adds their sum, once."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.autodiff.harness import cleaned, copied, forward_module, launch_points, run_derived
from tests.frontend.kernels import function_from
from tests.lowering.simt.harness import run_emulated
from tilewright.autodiff import enumerated, lane_sums
from tilewright.autodiff.arrays import arrays_of
from tilewright.autodiff.enumerated import sharing
from tilewright.autodiff.reverse import reverse_mode
from tilewright.base.diagnostics import CompilationError
from tilewright.compiler.driver import compile
from tilewright.compiler.source import IRSource

KERNEL = """
def kernel(x_ptr, w_ptr, i_ptr, y_ptr, n, l, c):
    at = tl.program_id(0) * 16 + tl.arange(0, 16)
    keep = at < n
    {index}
    w = tl.load(w_ptr + j, mask=keep)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=keep) * tl.exp(w), mask=keep)
"""
WINDOWS = """
def kernel(x_ptr, w_ptr, i_ptr, y_ptr, n, l, c):
    i, k = tl.program_id(0) * 4 + tl.arange(0, 4), tl.arange(0, 4)
    at = (i[:, None] * 4 + k[None, :])
    w = tl.load(w_ptr + i[:, None] // l + k[None, :])
    tl.store(y_ptr + at, tl.load(x_ptr + at) * tl.exp(w), mask=at < n)
"""
PRIVATE = """
def kernel(x_ptr, w_ptr, i_ptr, y_ptr, n, l, c):
    row, at = tl.program_id(0), tl.arange(0, 16)
    total = tl.zeros([16], tl.float64)
    for k in range(2):
        total += tl.exp(tl.load(w_ptr + row * 4 + (at + k) // l % 4, mask=at < 14))
    at += row * 16
    tl.store(y_ptr + at, tl.load(x_ptr + at) * total, mask=at < n)
"""
KEYS = """
def kernel(x_ptr, w_ptr, i_ptr, y_ptr, n, l, c):
    at = tl.program_id(0) * 4 + tl.arange(0, 4)
    keys = tl.make_block_ptr(w_ptr, (4, 8), (0, 1), (0, 0), (4, 4), (1, 0))
    total = tl.zeros([4], tl.float64)
    for k in range(2):
        total += tl.sum(tl.exp(tl.load(keys)), 1)
        keys = tl.advance(keys, (0, 4))
    tl.store(y_ptr + at, tl.load(x_ptr + at) * total, mask=at < n)
"""
PIECES = """
def kernel(x_ptr, w_ptr, i_ptr, y_ptr, n, l, c):
    row, piece, i = tl.program_id(0) // 2, tl.program_id(0) % 2 * 4, tl.arange(0, 4)
    column = tl.arange(0, 4)[:, None]
    at = (row * c + piece + i)[None, :] * l + column
    keep = (column < l) & (i[None, :] < tl.minimum(4, c - piece))
    w = tl.load(w_ptr + at, mask=keep)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=keep) * tl.exp(w), mask=keep)
"""
INDICES = {
    "channels": "j = at // l % c",
    "channels last": "j = at % c",
    "pairs": "j = at // 2",
    "one element": "j = at * 0 + 3",
    "from the end": "j = 20 - at % c - 2",
    "parts of a tile": "j = tl.where(at % 16 < 9, at % 3, at % 5 + 4)",
    "with a mask": "j = at // l % c\n    keep = keep & (at % 7 != 2)",
}
KERNELS = {
    **{name: KERNEL.format(index=index) for name, index in INDICES.items()},
    "windows": WINDOWS,
    "one row": PRIVATE,
    "keys that queries share": KEYS,
    "pieces of rows": PIECES,
}


def arguments() -> dict[str, Any]:
    """x is NaN behind the mask, and so is the gradient of results that are not stored."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(64)
    x[61:] = np.nan
    return {
        "x_ptr": x, "w_ptr": rng.standard_normal(64), "y_ptr": np.zeros(64), "n": 61, "l": 3,
        "i_ptr": rng.integers(0, 9, 64), "c": 5,
    }  # fmt: skip


def differences(text: str, dy: Any) -> Any:
    """The gradient of w, by the kernel itself: results are linear in exp(w)."""
    kernel, found = tw.jit(function_from(text)), np.zeros(64)
    for place in range(32):
        ends: list[Any] = []
        for step in (1e-6, -1e-6):
            args = arguments()
            args["w_ptr"][place] += step
            kernel[4,](**args)
            ends.append(args["y_ptr"])
        found[place] = np.vdot(ends[0] - ends[1], dy) / 2e-6
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_without_atomics(name: str) -> None:
    """They are right, and two launches give the same bits."""
    backward = tw.grad(tw.jit(function_from(KERNELS[name])), ("w_ptr",), deterministic=True)
    dy = np.random.default_rng(1).standard_normal(64)
    grads, once, again = np.where(np.arange(64) < 61, dy, np.nan), np.ones(64), np.ones(64)
    for into in (once, again):
        backward[4,](**arguments(), grads={"y_ptr": grads}, into={"w_ptr": into})
    np.testing.assert_allclose(once, differences(KERNELS[name], dy), rtol=1e-7, atol=1e-8)
    np.testing.assert_array_equal(once, again)
    assert "atomic" not in backward.explain()
    assert "tl.store(" in backward.source()


def test_lanes_that_differ_are_gone_through_for_other_programs() -> None:
    """Those of the next row are excluded by a mask that is no bound of a tile."""
    backward = tw.grad(tw.jit(function_from(PIECES)), ("w_ptr",))
    backward[4,](**arguments(), grads={"y_ptr": np.ones(64)}, into={"w_ptr": np.ones(64)})
    assert "w_ptr: stored" in backward.explain()


def interpreted(text: str, repeated: bool) -> Any:
    """The gradient of w in one program, by the interpreter."""
    args = arguments()
    module = forward_module(text, args, {})
    (array,) = (a for a in arrays_of(module.entry).values() if a.name == "w_ptr")
    derived = reverse_mode(
        module, ("w_ptr",), ("y_ptr",), private=("w_ptr",), repeated=array.loads if repeated else ()
    )
    cleaned(derived.module)
    found = {"w_ptr": np.zeros(64)}
    more = {"cotangent": {"y_ptr": np.ones(64)}, "gradient": found}
    run_derived(derived, 1, copied(args), more)
    return found["w_ptr"]


@pytest.mark.parametrize("name", ["channels", "with a mask", "windows"])
def test_a_program_adds_once_for_each_element(name: str) -> None:
    args = arguments()
    text = KERNELS[name]
    found = interpreted(text, repeated=True)
    shares = tw.grad(tw.jit(function_from(text)), ("w_ptr",))
    expected = np.zeros(64)
    shares[1,](**args, grads={"y_ptr": np.ones(64)}, into={"w_ptr": expected})
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert not np.allclose(interpreted(text, repeated=False), expected)


def test_on_an_emulated_gpu() -> None:
    args = arguments()
    module = forward_module(KERNELS["channels"], args, {})
    (array,) = (a for a in arrays_of(module.entry).values() if a.name == "w_ptr")
    derived = reverse_mode(module, ("w_ptr",), ("y_ptr",), private=("w_ptr",), repeated=array.loads)
    found = np.zeros(64)
    of = {"argument": args, "cotangent": {"y_ptr": np.ones(64)}, "gradient": {"w_ptr": found}}
    values = [of[role.kind][role.name] for role in derived.roles]
    run_emulated(cleaned(derived.module), (1, 1, 1), values, warps=2, lanes=4)
    np.testing.assert_allclose(found, interpreted(KERNELS["channels"], True), rtol=1e-13)


def test_loaded_indices_and_large_tiles_are_added_atomically(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grads, into = {"y_ptr": np.ones(64)}, {"w_ptr": np.zeros(64)}

    def explained(index: str) -> str:
        backward = tw.grad(tw.jit(function_from(KERNEL.format(index=index))), ("w_ptr",))
        backward[4,](**arguments(), grads=grads, into=into)
        return backward.explain()

    assert "w_ptr: added atomically" in explained("j = tl.load(i_ptr + at, mask=keep)")
    monkeypatch.setattr(lane_sums, "MOST_LANES", 8)
    assert "w_ptr: added atomically" in explained("j = at // l % c")


def common(text: str, most: int = 1000) -> tuple[bool, bool, int]:
    args = arguments()
    module = forward_module(text, args, {})
    (array,) = (a for a in arrays_of(module.entry).values() if a.name == "w_ptr")
    found = sharing(array.loads, launch_points(module, 4, args), most)
    assert found is not None
    return found.distinct, found.private, len(found.repeated)


def test_what_loads_have_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether elements, programs' elements and those of lanes are distinct."""
    expected = {
        "channels": (False, False, 1),
        "pairs": (False, True, 1),
        "windows": (False, False, 1),
        "one row": (False, True, 1),
    }
    for size in (enumerated.AT_ONCE, 8):
        monkeypatch.setattr(enumerated, "AT_ONCE", size)
        assert {name: common(KERNELS[name]) for name in expected} == expected
        assert common(KERNEL.format(index="j = (at + 1) % 64")) == (True, True, 0)
        assert common(KERNEL.format(index="j = at % 16")) == (False, False, 0)
    assert common(KERNEL.format(index="j = at // 2"), most=63) == (False, False, 1)


def test_it_compiles_for_hopper() -> None:
    module = forward_module(KERNELS["channels"], arguments(), {})
    (array,) = (a for a in arrays_of(module.entry).values() if a.name == "w_ptr")
    derived = reverse_mode(module, ("w_ptr",), ("y_ptr",), private=("w_ptr",), repeated=array.loads)
    made = compile(IRSource.of_module(cleaned(derived.module)), target="cuda:90")
    assert not re.search(r"\b(red|atom)\.", str(made.asm["ptx"]))


def test_an_unknown_result_of_two_lanes_is_still_an_error() -> None:
    """Lanes of a store are not added up: which of them is stored is not known."""
    text = KERNEL.replace("y_ptr + at,", "y_ptr + at // 2,")
    backward = tw.grad(tw.jit(function_from(text.format(index="j = at"))), ("w_ptr",))
    grads: Collection[Any] = {"y_ptr": np.ones(64)}
    with pytest.raises(CompilationError, match="may be stored more than once"):
        backward[4,](**arguments(), grads=grads, into={"w_ptr": np.zeros(64)})
