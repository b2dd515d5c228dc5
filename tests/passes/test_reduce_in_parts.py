"""Reductions in parts have the same results, and only those are in parts that may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.frontend.kernels import build, kernel_from
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.core import Function, Module, Op
from tilewright.ir.interpret import interpret
from tilewright.ir.passes import Pass, PassContext, Step, Verifier, run
from tilewright.ops.control import For
from tilewright.ops.reduce import Reduce
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.reduce_in_parts import reduce_in_parts
from tilewright.passes.strip_mine import mine_strips

PARTS = 4

SUM = """
def kernel(x, out, n):
    i = tl.arange(0, 256)
    tl.store(out, tl.sum(tl.load(x + i, mask=i < n, other=3) * 2, 0))
"""
IN_ORDER = """
def kernel(x, out, n):
    v = tl.load(x + tl.arange(0, 256))
    i = tl.arange(0, 256)
    first, second = tl.reduce((v, i), 0, last_of_run)
    tl.store(out, first)
    tl.store(out + 1, second)
"""
ARGMAX = """
def kernel(x, out, n):
    i = tl.arange(0, 256)
    v = tl.load(x + i * 2)
    tl.store(out, tl.argmax(v, 0))
    tl.store(out + 1, tl.max(v, 0))
"""
ROWS = """
def kernel(x, out, n):
    i, j = tl.arange(0, 8), tl.arange(0, 64)
    v = tl.load(x + i[:, None] * 64 + j[None, :], mask=j[None, :] < n, other=-9)
    tl.store(out + i, tl.max(v + i[:, None], 1))
"""
COLUMNS = """
def kernel(x, out, n):
    i, j = tl.arange(0, 64), tl.arange(0, 8)
    v = tl.load(x + i[:, None] * 8 + j[None, :])
    tl.store(out + j, tl.sum(v * j[None, :], 0))
"""
LOOP = """
def kernel(x, out, n):
    total = 0
    for k in range(3):
        total = total * 3 + tl.sum(tl.load(x + k * 100 + tl.arange(0, 256)), 0).to(tl.int32)
    tl.store(out, total)
"""
SHARES = """
def kernel(x, out, n):
    i = tl.arange(0, 256)
    v = tl.load(x + i, mask=i < n, other=-9)
    e = v - tl.max(v, 0)
    tl.store(out + i, e * tl.sum(e, 0), mask=i < n)
"""
DIVIDED = {
    "sum": (SUM, 1), "in order": (IN_ORDER, 1), "argmax": (ARGMAX, 2), "rows": (ROWS, 1),
    "columns": (COLUMNS, 1), "loop": (LOOP, 1), "shares": (SHARES, 2),
}  # fmt: skip

WRITTEN = """
def kernel(x, out, n):
    i = tl.arange(0, 256)
    v = tl.load(x + i)
    tl.store(x + 255 - i, v + 1)
    tl.store(out, tl.sum(v, 0))
"""
FLAGGED = """
def kernel(x, out, n):
    v = tl.load(x + tl.arange(0, 256))
    tl.store(out + 1, tl.load(out + 2, volatile=True))
    tl.store(out, tl.sum(v, 0))
"""
SORTED = """
def kernel(x, out, n):
    v = tl.sort(tl.load(x + tl.arange(0, 256)))
    tl.store(out, tl.sum(v * tl.arange(0, 256), 0))
"""
CARRIED = """
def kernel(x, out, n):
    v = tl.load(x + tl.arange(0, 256))
    for k in range(2):
        v = v * 2
    tl.store(out, tl.sum(v, 0))
"""
WHOLE = {"written between": WRITTEN, "flag between": FLAGGED, "sorted": SORTED, "carried": CARRIED}


@tw.jit
def last_of_run(v, i, w, j):
    """Associative, not commutative: the right operand, unless it is odd."""
    odd = w % 2 != 0
    return tl.where(odd, v, w), tl.where(odd, i, j)


def decided(ops: Sequence[Op], shape: tuple[int, ...]) -> int:
    assert isinstance(ops[-1], Reduce)
    return PARTS


def _module(text: str) -> Module:
    kernel = kernel_from(text, last_of_run=last_of_run)
    module = build(kernel, {"x": "*i32", "out": "*i32", "n": "i32"})
    for i in range(2):
        module.entry.arg_attrs[i]["alias"] = i
    run(module, STEPS, PassContext(), [Verifier()])
    return module


def _outcome(module: Module) -> list[Any]:
    rng = np.random.default_rng(1)
    args = [rng.integers(-50, 50, 1024).astype(np.int32), np.zeros(512, np.int32), 50]
    interpret(module, (1, 1, 1), args)
    return args[:2]


def _in_parts(module: Module, *, stores: bool = False) -> Module:
    done = module.clone()
    ctx = PassContext()
    steps = [Step(Pass("reduce_in_parts", lambda fn, ctx: reduce_in_parts(fn, ctx, decided)))]
    if stores:
        steps.append(Step(Pass("mine_strips", _mine)))
    run(done, (*steps, Step(remove_dead_code)), ctx, [Verifier()])
    return done


def _mine(fn: Function, ctx: PassContext) -> bool:
    return mine_strips(fn, ctx, lambda _: PARTS, ordered=True)


def _extents(module: Module) -> set[int]:
    """The elements of the tiles that are reduced."""
    return {int(np.prod(op.srcs[0].type.shape)) for op in module.walk() if isinstance(op, Reduce)}


@pytest.mark.parametrize("name", DIVIDED)
def test_reductions_in_parts(name: str) -> None:
    text, loops = DIVIDED[name]
    module = _module(text)
    before = sum(isinstance(op, For) for op in module.walk())
    done = _in_parts(module)
    assert sum(isinstance(op, For) for op in done.walk()) == before + loops
    assert {n * PARTS for n in _extents(done)} == _extents(module)
    for ours, theirs in zip(_outcome(done), _outcome(module), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_stores_of_what_is_reduced_are_in_parts_too() -> None:
    """What the reductions load is loaded again next to the store."""
    module = _module(SHARES)
    done = _in_parts(module, stores=True)
    assert sum(isinstance(op, For) for op in done.walk()) == 3
    assert not any(shape == (256,) for op in done.walk() for shape in _shapes(op))
    for ours, theirs in zip(_outcome(done), _outcome(module), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def _shapes(op: Op) -> list[Any]:
    return [getattr(result.type, "shape", ()) for result in op.results]


@pytest.mark.parametrize("name", WHOLE)
def test_other_reductions_stay(name: str) -> None:
    module = _module(WHOLE[name])
    done = _in_parts(module)
    assert _extents(done) == _extents(module)
    for ours, theirs in zip(_outcome(done), _outcome(module), strict=True):
        np.testing.assert_array_equal(ours, theirs)
