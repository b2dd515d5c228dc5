"""Assertions of tiles are checked in the loop nest of what follows, before that at each point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.base.diagnostics import DeviceAssertionError
from tilewright.ir.parser import parse_module
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.debug import Assert
from tilewright.ops.memory import Store
from tilewright.targets.cpu.plan import Group, Run
from tilewright.targets.cpu.plan_loops import plan_function

FAR = 1 << 44
"""An index beyond any mapped memory: a load there ends the process."""


@tw.jit
def scatter(x, at, values, n, N: tl.constexpr):
    i = tl.arange(0, N)
    place = tl.load(at + i)
    tl.device_assert((place >= 0) & (place < n), "place")
    tl.atomic_add(x + place, tl.load(values + i), sem="relaxed")


@tw.jit
def gather(x, at, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    place = tl.load(at + i)
    tl.device_assert((place >= 0) & (place < n), "place")
    tl.store(out + i, tl.load(x + place))


@tw.jit
def gather_rows(x, at, out, n, N: tl.constexpr):
    """What is loaded for a row does not vary along the inner loop."""
    i, j = tl.arange(0, N)[:, None], tl.arange(0, 16)[None, :]
    place = tl.load(at + i)
    tl.device_assert(((place >= 0) & (place < n)).broadcast_to(N, 16), "place")
    tl.store(out + i * 16 + j, tl.load(x + place) + j)


@tw.jit
def masked_by_loaded(x, at, out, n, N: tl.constexpr):
    """The mask of the store is a comparison with what is loaded."""
    i = tl.arange(0, N)
    place = tl.load(at + i)
    tl.device_assert((place >= 0) & (place < n), "place")
    tl.store(out + i, i, mask=i < tl.load(x + place))


@tw.jit
def gather_twice(x, at, out, n, N: tl.constexpr):
    """The loaded values are kept, since two points of each nest need them."""
    i = tl.arange(0, N)
    place = tl.load(at + i)
    tl.device_assert((place >= 0) & (place < n), "place")
    found = tl.exp(tl.load(x + place))
    tl.store(out + i, found + tl.flip(found))


@tw.jit
def gather_transposed(x, at, out, n, N: tl.constexpr):
    """The loaded values are transposed before the nest of the store."""
    i, j = tl.arange(0, N)[:, None], tl.arange(0, 16)[None, :]
    place = (tl.load(at + i) + j * 0).to(tl.int64)
    tl.device_assert((place >= 0) & (place < n), "place")
    start = tl.load(at).to(tl.int64)
    tl.store(out + i * 16 + j, tl.load(x + start + j * N + i))


@tw.jit
def add_in_place(x, at, out, n, N: tl.constexpr):
    """What is loaded must be loaded before the store, which overwrites it."""
    i = tl.arange(0, N)
    place = tl.load(at + i)
    tl.device_assert((place >= 0) & (place < n), "place")
    found = tl.load(x + place)
    tl.store(x + i, found + 1)
    tl.store(out + i, found)


@tw.jit
def store_before(x, at, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    place = tl.load(at + i)
    tl.store(out + i, i + 1.0)
    tl.device_assert((place >= 0) & (place < n), "place")
    tl.store(x + i, i + 2.0)


GATHERS = [
    gather, gather_rows, masked_by_loaded, gather_twice, gather_transposed, add_in_place,
]  # fmt: skip


def arguments(n: int = 32) -> list[Any]:
    at = np.random.default_rng(0).integers(0, n, n)
    return [np.arange(n * 64, dtype=np.float32) / n, at, np.zeros(n * 16, np.float32), n, n]


@pytest.mark.parametrize("kernel", GATHERS, ids=lambda k: k.__name__)
def test_results_are_those_without_assertions(kernel: Any) -> None:
    results = []
    for debug in (False, True):
        args = arguments()
        kernel[(1,)](*args, debug=debug)
        results.append(args)
    for plain, checked in zip(results[0][:3], results[1][:3], strict=True):
        np.testing.assert_array_equal(plain, checked)


@pytest.mark.parametrize("kernel", [scatter, *GATHERS], ids=lambda k: k.__name__)
@pytest.mark.parametrize("where", [0, 7, 31])
@pytest.mark.parametrize("index", [FAR, -FAR])
def test_nothing_that_follows_a_failure_is_loaded(kernel: Any, where: int, index: int) -> None:
    args = arguments()
    args[1][where] = index
    with pytest.raises(DeviceAssertionError, match="place"):
        kernel[(1,)](*args, debug=True)


def test_a_store_before_a_failure_is_done() -> None:
    args = arguments()
    before = args[0].copy()
    args[1][3] = -1
    with pytest.raises(DeviceAssertionError, match="place"):
        store_before[(1,)](*args, debug=True)
    np.testing.assert_array_equal(args[2][:32], np.arange(32) + 1.0)
    np.testing.assert_array_equal(args[0], before)


def nests(kernel: Any) -> list[list[type]]:
    """The kinds of roots of each loop nest that has any."""
    compiled = kernel[(1,)](*arguments(), debug=True)
    fn = parse_module(compiled.asm["ttir"]).entry
    (steps,) = plan_function(fn).steps.values()
    assert not any(isinstance(s, Run) and isinstance(s.op, Assert) for s in steps)
    groups = [[type(op) for op in s.roots] for s in steps if isinstance(s, Group)]
    return [roots for roots in groups if roots]


def test_assertions_share_the_nest_of_what_follows() -> None:
    assert nests(scatter) == [[Assert, AtomicRMW]]
    assert nests(gather) == [[Assert, Store]]


def test_assertions_precede_what_is_loaded_early() -> None:
    assert nests(gather_rows) == [[Assert], [Store]]
    assert nests(masked_by_loaded) == [[Assert], [Store]]
    assert nests(gather_twice) == [[Assert], [Store]]
    assert nests(store_before) == [[Store], [Assert, Store]]
