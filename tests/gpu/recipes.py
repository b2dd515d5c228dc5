"""Kernels and inputs for the GPU tests: functions that each make a `Program` from plain values."""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tests import language_programs
from tests.frontend.kernels import kernel_from
from tests.gpu.programs import At, Program
from tests.ir_values import random_array
from tests.language.support_table import batch, taken
from tests.ops import fp8_reference
from tilewright.conformance.uses import USES
from tilewright.frontend.source import SourceFunction
from tilewright.ir.types import SCALARS, DType, Tile
from tilewright.tools.load import find_kernel

ROOT = Path(__file__).parents[2]
TYPES: dict[str, DType] = {t.short: t for t in SCALARS}


@cache
def kernel_at(place: str) -> SourceFunction:
    """The kernel at ``examples/matmul.py::matmul_kernel``."""
    return find_kernel(str(ROOT / place))[0]


def rng_of(*params: Any) -> np.random.Generator:
    """Random numbers that depend on the parameters alone."""
    return np.random.default_rng(zlib.crc32(repr(params).encode()))


def specials(type: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Random values, a third of them extremes, NaN, infinities, zeros of both signs."""
    return random_array(Tile(shape, TYPES[type]) if shape else TYPES[type], rng)


def integral(type: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Small whole numbers, whose sums are exact in any order."""
    low = 0 if type.startswith("u") else -4
    return rng.integers(low, 5, shape).astype(TYPES[type].numpy)


# -- elementwise ----------------------------------------------------------------------------------


@tw.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    x = tl.load(x_ptr + index, mask=inside)
    y = tl.load(y_ptr + index, mask=inside, other=1)
    tl.store(out_ptr + index, x + y, mask=inside)


def add(type: str, n: int, block: int, shifts: tuple[int, int, int] = (0, 0, 0)) -> Program:
    """A sum with a tail, of arrays that begin some elements after an aligned address."""
    rng = rng_of(type, n)
    arrays = [specials(type, (n,), rng) for _ in range(2)] + [specials(type, (n,), rng)]
    args = [At(a, shift) for a, shift in zip(arrays, shifts, strict=True)]
    return Program(add_kernel, [*args, n], {"BLOCK": block}, (tw.cdiv(n, block),))


@tw.jit
def copy2d_kernel(
    x_ptr, out_ptr, rows, columns, x_row, x_column, out_row, out_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * x_row + column * x_column, mask=inside)
    tl.store(out_ptr + row * out_row + column * out_column, x, mask=inside)


def copy2d(type: str, rows: int, columns: int, orders: str, tile: tuple[int, int]) -> Program:
    """A matrix copied between memory orders: ``rc`` from contiguous rows to columns."""
    x = specials(type, (rows * columns,), rng_of(type, rows, columns))
    out = np.zeros_like(x)
    strides = [s for order in orders for s in ((columns, 1) if order == "r" else (1, rows))]
    grid = tw.cdiv(rows, tile[0]), tw.cdiv(columns, tile[1])
    constants = {"ROWS": tile[0], "COLUMNS": tile[1]}
    return Program(copy2d_kernel, [x, out, rows, columns, *strides], constants, grid)


# -- the names of the language -------------------------------------------------------------------


def use(name: str) -> Program:
    """The use of a name in `conformance/uses.py`, on every element type that it takes."""
    found = USES[name]
    kernel, args = batch(found, taken(found, "sm_90"), "sm_90")
    return Program(kernel, args, bound=1e-5 if found.close else None)


# -- expressions on whole tiles -------------------------------------------------------------------


def _offsets(shape: tuple[int, ...]) -> str:
    """The offsets of the elements of a contiguous tile, as an expression."""
    terms: list[str] = []
    for axis, extent in enumerate(shape):
        index = ", ".join(":" if i == axis else "None" for i in range(len(shape)))
        stride = int(np.prod(shape[axis + 1 :]))
        terms.append(f"tl.arange(0, {extent})[{index}] * {stride}")
    return " + ".join(terms) or "0"


def expression(
    text: str, inputs: tuple[tuple[str, tuple[int, ...]], ...],
    result: tuple[str, tuple[int, ...]], kind: str = "specials", bound: float | None = None,
) -> Program:  # fmt: skip
    """An expression of tiles `a`, `b`, …, each loaded as a whole, in one program.

    Args:
        inputs: types and shapes of the tiles.
        result: type and shape of what is stored; it is cast to the type.
        kind: which inputs: "specials", "integral", or "positive" floats.
    """
    rng = rng_of(text, inputs)
    arrays = [_input(kind, *given, rng) for given in inputs]
    letters = "abcdefgh"[: len(inputs)]
    lines = [f"def kernel({', '.join([*letters, 'out'])}):"]
    for letter, (_, shape) in zip(letters, inputs, strict=True):
        lines.append(f"    {letter} = tl.load({letter} + ({_offsets(shape)}))")
    lines.append(f"    result = {text}")
    lines.append(f"    tl.store(out + ({_offsets(result[1])}), result)")
    out = np.zeros(result[1], TYPES[result[0]].numpy)
    return Program(kernel_from("\n".join(lines)), [*arrays, out], bound=bound)


def _input(kind: str, type: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if kind == "integral":
        return integral(type, shape, rng)
    if kind == "positive":
        return np.asarray(np.exp(rng.normal(0, 2, shape)), TYPES[type].numpy)
    return specials(type, shape, rng)


@tw.jit
def cast_kernel(x_ptr, out_ptr, n, ROUNDING: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    tl.store(out_ptr + index, x.to(out_ptr.dtype.element_ty, ROUNDING), mask=index < n)


def to_fp8(source: str, to: str, rounding: str) -> Program:
    """All numbers of a type of 16 bits, or all that are special of a wider one, as fp8."""
    x = fp8_reference.inputs(TYPES[source], TYPES[to])
    args = [x, np.zeros(x.shape, TYPES[to].numpy), x.size]
    constants = {"ROUNDING": rounding, "BLOCK": 1024}
    return Program(cast_kernel, args, constants, (tw.cdiv(x.size, 1024),))


def assembly(
    code: str, constraints: str, type: str, to: str, pack: int, expected: str, n: int = 1024
) -> Program:
    """Inline PTX on one operand; `expected` is an expression of NumPy on it, `x`."""
    x = rng_of(type, n).integers(0, 100, n).astype(TYPES[type].numpy)
    text = f"""
    def kernel(p, out):
        x = tl.load(p + tl.arange(0, {n}))
        y = tl.inline_asm_elementwise("{code}", "{constraints}", [x], out.dtype.element_ty, True, {pack})
        tl.store(out + tl.arange(0, {n}), y)
    """  # noqa: E501
    found = np.asarray(eval(expected, {"x": x, "np": np}), TYPES[to].numpy)
    return Program(kernel_from(text), [x, np.zeros_like(found)], bound=1e-6, expected=[x, found])


# -- control flow ---------------------------------------------------------------------------------


@tw.jit
def collatz_kernel(x_ptr, out_ptr, n):
    """Steps of a scalar loop whose end depends on data; programs beyond `n` return early."""
    program = tl.program_id(0)
    if program >= n:
        return
    x = tl.load(x_ptr + program)
    steps = 0
    while x > 1:
        if x % 2 > 0:  # the next one is even
            x = (3 * x + 1) // 2
            steps += 2
        else:
            x = x // 2
            steps += 1
    tl.store(out_ptr + program, steps)


def collatz(programs: int, n: int) -> Program:
    x = np.arange(1, programs + 1, dtype=np.int32)
    return Program(collatz_kernel, [x, np.zeros_like(x), n], grid=(programs,))


@tw.jit
def nest_kernel(x_ptr, out_ptr, outer, rows, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Loops in loops that carry tiles, with a condition, over rows that begin a row apart."""
    column = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    largest = tl.full((BLOCK,), -1000.0, tl.float32)
    for i in range(outer):
        part = tl.zeros((BLOCK,), tl.float32)
        for row in tl.range(i, rows, num_stages=STAGES):
            x = tl.load(x_ptr + row * BLOCK + column)
            if row % 3 == 1:
                part -= x
            else:
                part += x * (i + 1)
        largest = tl.maximum(largest, part)
        total += part
    tl.store(out_ptr + column, total)
    tl.store(out_ptr + BLOCK + column, largest)


def nest(outer: int, rows: int, block: int, stages: int) -> Program:
    x = integral("fp32", (max(rows, 1), block), rng_of(outer, rows))
    out = np.zeros((2, block), np.float32)
    return Program(nest_kernel, [x, out, outer, rows], {"BLOCK": block, "STAGES": stages})


@tw.jit
def places_kernel(out_ptr, x, y, z):
    i, j, k = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    fits = (tl.num_programs(0) == x) & (tl.num_programs(1) == y) & (tl.num_programs(2) == z)
    tl.store(out_ptr + (k * y + j) * x + i, i + 100 * j + 10000 * k, mask=fits)


def places(x: int, y: int, z: int) -> Program:
    """Each program stores its indices; a grid may be empty."""
    return Program(places_kernel, [np.full(x * y * z + 1, -1, np.int32), x, y, z], grid=(x, y, z))


def streams(size: int, count: int, n: int) -> Program:
    """Aggregates carried by a loop, of which a condition changes one."""
    x, y = (integral("fp32", (count * size,), rng_of(size, count, i)) for i in range(2))
    args = [np.zeros(size, np.float32), x, y, n]
    return Program(tw.jit(language_programs.streams), args, {"size": size})


def first_above(rows: int, columns: int, limit: float) -> Program:
    """A loop that is left by some programs, at iterations of their own."""
    x = rng_of(rows, columns).uniform(-1, 1, (24, rows, columns)).astype(np.float32)
    args = [np.zeros((24, 2, columns), np.float32), x, rows, limit]
    return Program(tw.jit(language_programs.first_above), args, {"N": columns}, grid=(24,))


def cut(size: int, i: int) -> Program:
    """Tiles of numbers and of pointers, indexed and cut."""
    x = np.arange(size * size, dtype=np.int32)
    args = [np.zeros(5 * size, np.int32), x, i]
    return Program(tw.jit(language_programs.cut), args, {"N": size})


# -- memory ---------------------------------------------------------------------------------------


@tw.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    index = tl.load(index_ptr + place, mask=inside, other=0)
    x = tl.load(x_ptr + index, mask=inside & (index >= 0), other=7)
    tl.store(out_ptr + place, x, mask=inside)


def gather(type: str, n: int, block: int) -> Program:
    """Elements from anywhere, none where the index is negative."""
    rng = rng_of(type, n)
    index = rng.integers(-5, n, n).astype(np.int64)
    x = specials(type, (n,), rng)
    args = [x, index, np.zeros_like(x), n]
    return Program(gather_kernel, args, {"BLOCK": block}, (tw.cdiv(n, block),))


@tw.jit
def atomic_kernel(x_ptr, count_ptr, n, KIND: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    x = tl.load(x_ptr + index, mask=inside)
    place = count_ptr + index % BINS
    if KIND == "add":
        tl.atomic_add(place, x, mask=inside)
    elif KIND == "max":
        tl.atomic_max(place, x, mask=inside)
    elif KIND == "min":
        tl.atomic_min(place, x, mask=inside)
    elif KIND == "and":
        tl.atomic_and(place, x, mask=inside)
    elif KIND == "or":
        tl.atomic_or(place, x, mask=inside)
    elif KIND == "xor":
        tl.atomic_xor(place, x, mask=inside)


def atomic(kind: str, type: str, n: int, bins: int) -> Program:
    """Many threads of many programs on few places; the outcome does not depend on their order."""
    rng = rng_of(kind, type)
    make = integral if kind == "add" else specials
    x = make(type, (n,), rng)
    if TYPES[type].is_floating() and kind != "add":
        x = np.where(np.isnan(x.astype(np.float64)) | (x == 0), np.ones_like(x), x)
    count = integral(type, (bins,), rng)
    constants = {"KIND": kind, "BINS": bins, "BLOCK": 256}
    return Program(atomic_kernel, [x, count, n], constants, (tw.cdiv(n, 256),))


@tw.jit
def exchange_kernel(x_ptr, old_ptr, swapped_ptr, n, BLOCK: tl.constexpr):
    """Each element is exchanged once, then swapped where it is even."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    old = tl.atomic_xchg(x_ptr + index, index.to(x_ptr.dtype.element_ty), mask=index < n)
    tl.store(old_ptr + index, old, mask=index < n)
    tl.debug_barrier()
    even = (index & -2).to(x_ptr.dtype.element_ty)
    # All of these are within the array, which is a multiple of the tile.
    swapped = tl.atomic_cas(x_ptr + index, even, -even)
    tl.store(swapped_ptr + index, swapped)


def exchange(type: str, blocks: int, block: int) -> Program:
    x = integral(type, (blocks * block,), rng_of(type))
    args = [x, np.zeros_like(x), np.zeros_like(x), x.size - 3]
    return Program(exchange_kernel, args, {"BLOCK": block}, (blocks,))


# -- the examples ---------------------------------------------------------------------------------


def softmax(type: str, rows: int, columns: int) -> Program:
    fn = kernel_at("examples/fused_softmax.py::softmax_kernel")
    x = rng_of(type, columns).normal(size=(rows, columns)).astype(TYPES[type].numpy)
    args = [x, np.zeros_like(x), columns, columns, columns]
    bound = {"fp32": 1e-6, "fp16": 1e-3, "bf16": 8e-3}[type]
    return Program(fn, args, {"BLOCK": tw.next_power_of_2(columns)}, (rows,), bound)


def vector_add(n: int) -> Program:
    fn = kernel_at("examples/vector_add.py::add_kernel")
    x, y = (specials("fp32", (n,), rng_of(n, i)) for i in range(2))
    return Program(fn, [x, y, np.zeros_like(x), n], {"BLOCK": 1024}, (tw.cdiv(n, 1024),))


def dropout(n: int, p: float, seed: int) -> Program:
    fn = kernel_at("examples/dropout.py::dropout_kernel")
    x = specials("fp32", (n,), rng_of(n))
    args = [x, np.zeros_like(x), n, p, seed]
    return Program(fn, args, {"BLOCK": 1024}, (tw.cdiv(n, 1024),), 1e-6)


def layer_norm_forward(type: str, rows: int, columns: int) -> Program:
    fn = kernel_at("examples/layer_norm.py::forward_kernel")
    rng = rng_of(type, columns)
    x, weight, bias = (
        rng.normal(size=shape).astype(TYPES[type].numpy)
        for shape in ((rows, columns), columns, columns)
    )
    facts = [np.zeros(rows, np.float32) for _ in range(2)]
    args = [x, weight, bias, np.zeros_like(x), *facts, columns, 1e-5]
    bound = 1e-5 if type == "fp32" else 1e-2
    return Program(fn, args, {"BLOCK": tw.next_power_of_2(columns)}, (rows,), bound)


def layer_norm_backward(rows: int, columns: int, shares: int) -> Program:
    fn = kernel_at("examples/layer_norm.py::backward_kernel")
    rng = rng_of(rows, columns)
    dy, x = (rng.normal(size=(rows, columns)).astype(np.float32) for _ in range(2))
    weight, mean, rstd = (
        rng.normal(1, 0.1, size=n).astype(np.float32) for n in (columns, rows, rows)
    )
    parts = [np.zeros((shares, columns), np.float32) for _ in range(2)]
    args = [dy, x, weight, mean, rstd, np.zeros_like(x), *parts, rows, columns]
    return Program(fn, args, {"BLOCK": tw.next_power_of_2(columns)}, (shares,), 1e-5)


def sum_shares(columns: int) -> Program:
    fn = kernel_at("examples/layer_norm.py::sum_shares_kernel")
    x = integral("fp32", (64, columns), rng_of(columns))
    args = [x, np.zeros(columns, np.float32), columns]
    return Program(fn, args, {"SHARES": 64, "BLOCK": 256}, (tw.cdiv(columns, 256),))


def giou(type: str, samples: int, boxes: int) -> Program:
    fn = kernel_at("examples/giou_loss.py::giou_kernel")
    rng = rng_of(type, boxes)
    corners = rng.uniform(0, 1, (2, samples, boxes, 2, 2))
    both = np.sort(corners, axis=3).reshape(2, samples, boxes, 4)
    predicted, target = both.astype(TYPES[type].numpy)
    target[:, boxes // 2 :] = 0
    out = [np.zeros((samples, boxes), np.float32), np.zeros((samples, boxes), np.bool_)]
    constants = {"EPSILON": 1e-5, "BLOCK": tw.next_power_of_2(boxes)}
    return Program(fn, [predicted, target, *out, boxes], constants, (samples,), 1e-5)


def giou_sum(n: int) -> Program:
    fn = kernel_at("examples/giou_loss.py::sum_kernel")
    giou = integral("fp32", (n,), rng_of(n))
    shares = tw.cdiv(n, 4096)
    parts = [np.zeros(shares, np.float32) for _ in range(2)]
    return Program(fn, [giou, giou > 0, *parts, n], {"SHARE": 4096}, (shares,))
