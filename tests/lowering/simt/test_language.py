"""Reductions, scans, sorts and shapes of the language, on every type: on the emulated GPU and
compiled for the CPU they give what the interpreter gives, and the code for a GPU assembles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import expression_module, function_from
from tests.ir_values import random_array, same_bits
from tests.lowering.simt.harness import run_emulated
from tests.lowering.simt.tiles import Threads
from tests.targets.cpu.harness import run_compiled
from tests.targets.nvidia.lowered import ptx_of
from tilewright.ir.interpret import interpret
from tilewright.ir.types import BF16, FP8E4NV, FP8E5, FP16, FP32, FP64, SCALARS, DType, Tile
from tilewright.targets.nvidia.assemble import find_assembler

INTS = [t for t in SCALARS if t.is_int()]
FLOATS = [FP16, BF16, FP32, FP64]
ALL = [*INTS, *FLOATS, FP8E5, FP8E4NV]
SHAPES = [(4, 16), (3, 20)]

LARGER = function_from("""
    @jit
    def larger(v, i, w, j):
        first = (v > w) | ((v == w) & (i < j))
        return tl.where(first, v, w), tl.where(first, i, j)
""")
CLASSIFY = function_from("""
    @jit
    def classify(x, y):
        kind = 0
        if x < y:
            kind = 1
            while kind < 100 and kind < y:
                kind *= 2
        elif x == y:
            kind = -1
        return kind, x
""")
NAMES = {"larger": LARGER, "classify": CLASSIFY}


def data(dtype: DType, shape: tuple[int, ...], small: bool) -> Any:
    """Anything at all; or small whole numbers, whose sums are exact in any order."""
    rng = np.random.default_rng(8)
    if not small or dtype.is_bool():
        return random_array(Tile(shape, dtype), rng)
    low = 0 if dtype.is_int_unsigned() else -2
    return rng.integers(low, 3, shape).astype(dtype.numpy)


GPUS = {"GPU": Threads(4, 8), "small GPU": Threads(2, 32), "GPU of wide warps": Threads(1, 64)}


def check(text: str, *inputs: Any, turn: int | None = None, assemble: bool = True) -> None:
    """Compare all targets.

    Args:
        turn: which text of a test it is. It runs on one GPU and with one of the shapes for each
            type, so that each type meets all of them in some texts, and each text in some types.
            By default it runs on all.
    """
    chosen = [*GPUS]
    if turn is not None:
        place = [t.numpy for t in ALL].index(inputs[0].dtype) + turn
        chosen = [chosen[place % len(chosen)]]
        if inputs[0].shape != SHAPES[place % len(SHAPES)]:
            return
    module, args = expression_module(text, *inputs, **NAMES)
    expected = [a.copy() for a in args]
    interpret(module, (1, 1, 1), expected)
    for name in (*chosen, "CPU"):
        found = [a.copy() for a in args]
        if name == "CPU":
            run_compiled(module, (1, 1, 1), found)
        else:
            warps, lanes = GPUS[name]
            run_emulated(module, (1, 1, 1), found, warps=warps, lanes=lanes)
        assert same_bits(found[0], expected[0]), f"{name}: {found[0]} is not {expected[0]}"
    if assemble and find_assembler() is not None:
        ptx_of(module)


shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))


def of(types: list[DType]) -> Any:
    return pytest.mark.parametrize("dtype", types, ids=lambda t: t.short)


@pytest.mark.sampled(2)
@of([*INTS, *FLOATS])
@shapes
def test_sums(dtype: DType, shape: tuple[int, ...]) -> None:
    a = data(dtype, shape, small=True)
    check("tl.sum(a, 1, keep_dims=True) + tl.sum(a, 0) + tl.sum(a)", a, turn=0)
    check("tl.cumsum(a, 0, reverse=True) + tl.cumsum(a, 1)", a, turn=1, assemble=False)
    check("tl.cumprod(a, 1, reverse=True)", a, turn=2, assemble=False)


@pytest.mark.sampled(2)
@of([*INTS, *FLOATS])
@shapes
def test_extrema(dtype: DType, shape: tuple[int, ...]) -> None:
    a = data(dtype, shape, small=False)
    check("tl.max(a, 1)[:, None] + tl.min(a, 0)[None, :]", a, turn=0)
    check("tl.min(a) + tl.max(a, keep_dims=True)", a, turn=1, assemble=False)


@pytest.mark.sampled(2)
@of([*INTS, *FLOATS])
@shapes
def test_extrema_with_their_places(dtype: DType, shape: tuple[int, ...]) -> None:
    a = data(dtype, shape, small=True)
    check("tl.argmax(a, 1, keep_dims=True) + tl.argmin(a, 0)[None]", a, turn=0)
    check("tl.max(a, 0, return_indices=True)[0]", a, turn=1, assemble=False)
    check("tl.reduce((a, tl.zeros_like(a) + 3), 1, larger)[0]", a, turn=2, assemble=False)


@of(INTS)
@shapes
def test_bitwise_reductions(dtype: DType, shape: tuple[int, ...]) -> None:
    a = data(dtype, shape, small=False)
    check("tl.xor_sum(a, 1, keep_dims=True) | tl.reduce_or(a, 0)[None] ^ tl.xor_sum(a)", a, turn=0)


@pytest.mark.sampled(2)
@of(ALL)
@shapes
def test_sorts(dtype: DType, shape: tuple[int, ...]) -> None:
    a = data(dtype, shape, small=False)
    check("tl.sort(a)", a, turn=0)
    check("tl.sort(a.T, descending=True)", a, turn=1, assemble=False)


@pytest.mark.sampled(2)
@of(ALL)
@shapes
def test_selections(dtype: DType, shape: tuple[int, ...]) -> None:
    a = data(dtype, shape, small=False)
    check("tl.topk(a, 4)", a, turn=0)
    check("tl.topk(a, 1, descending=False)", a, turn=1, assemble=False)
    check("tl.bitonic_merge(tl.sort(a))", a, turn=2, assemble=False)


@pytest.mark.sampled(2)
@of([*INTS, *FLOATS])
@shapes
def test_functions_of_elements(dtype: DType, shape: tuple[int, ...]) -> None:
    a, b = data(dtype, shape, small=True), data(dtype, shape[1:], small=True)
    check("tl.map_elementwise(classify, a, b)[0]", a, b, turn=0)
    check("tl.map_elementwise(classify, a, b)[1]", a, b, turn=1, assemble=False)


@pytest.mark.parametrize("length", [64, 100])
@pytest.mark.parametrize("bins", [16, 10])
def test_histograms(length: int, bins: int) -> None:
    a = np.random.default_rng(5).integers(-1, bins + 1, length).astype(np.int32)
    check(f"tl.histogram(a, {bins}) + tl.histogram(a, {bins}, mask=a > 3) * 100", a)


MOVES = [
    "a.reshape(5, 12)", "tl.ravel(a)", "a.T", "tl.flip(a, 0)", "tl.flip(a)", "tl.cat(a, a)",
    "tl.cat(a, a, dim=1)", "tl.join(a, a)", "tl.interleave(a, a)", "a[:, None]",
    "tl.split(a.reshape(3, 10, 2))[1]", "tl.broadcast_to(a[None], 3, 3, 20)",
    "tl.gather(a, tl.arange(0, 5)[None] + tl.arange(0, 3)[:, None], 1)", "tl.permute(a, 1, 0)",
    "tl.where(tl.arange(0, 20) < 9, a, a + a)", "a.reshape(20, 3).T",
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", MOVES)
def test_shapes_of_any_extents(text: str) -> None:
    for dtype in (FP32, INTS[0]):
        if not (dtype.is_bool() and "+" in text):
            check(text, data(dtype, (3, 20), small=False))
