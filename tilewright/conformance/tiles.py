"""Level 2: tiles of two dimensions, reductions, reshapes, loops and branches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import tilewright.language as tl
from tilewright.conformance.case import Case, Program
from tilewright.conformance.inputs import FLOATS, INTEGERS, integral, specials, zeros
from tilewright.runtime.jit import cdiv, jit

NUMBERS = (*INTEGERS, *FLOATS)
SHAPES = ((1, 1), (4, 8), (16, 16), (3, 100), (37, 70))
M, N = 16, 32  # the extents of tiles

# -- memory ---------------------------------------------------------------------------------------


@jit
def copy_matrix(
    x_ptr, out_ptr, rows, columns, x_row, x_column, out_row, out_column,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    j = tl.program_id(1) * N + tl.arange(0, N)[None, :]
    inside = (i < rows) & (j < columns)
    x = tl.load(x_ptr + i * x_row + j * x_column, mask=inside)
    tl.store(out_ptr + i * out_row + j * out_column, x, mask=inside)


@jit
def three_axes(x_ptr, out_ptr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    a = tl.arange(0, A)[:, None, None]
    b = tl.arange(0, B)[None, :, None]
    c = tl.arange(0, C)[None, None, :]
    x = tl.load(x_ptr + (a * B + b) * C + c)
    tl.store(out_ptr + (c * A + a) * B + b, x)


@jit
def triangle(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + i * N + j, mask=j <= i, other=0)
    tl.store(out_ptr + i * N + j, tl.where(j == i, x + 1, x))


@jit
def outer(x_ptr, y_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + j)
    tl.store(out_ptr + i[:, None] * N + j[None, :], x[:, None] * y[None, :] + x[:, None])


@jit
def transpose(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + j[None, :])
    tl.store(out_ptr + j[:, None] * M + i[None, :], tl.trans(x))


@jit
def reshape(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    k = tl.arange(0, M * N)
    x = tl.reshape(tl.load(x_ptr + k), (M, N))
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(out_ptr + i + j * M, x)


def _matrix(type: str, shape: tuple[int, int], order: str) -> Program:
    rows, columns = shape
    x = specials(type, rows * columns)
    strides = (columns, 1) if order == "rows" else (1, rows)
    args = [x, zeros(type, rows * columns), rows, columns, *strides, columns, 1]
    return Program(copy_matrix, args, {"M": M, "N": N}, (cdiv(rows, M), cdiv(columns, N)))


def _square(kernel: Any, type: str) -> Program:
    return Program(kernel, [specials(type, M * N), zeros(type, M * N)], {"M": M, "N": N})


def _memory() -> Iterator[Case]:
    case = partial(Case, "2")
    for type in NUMBERS:
        for shape in SHAPES:
            size = "x".join(map(str, shape))
            for order in ("rows", "columns"):
                variant = f"{type}, {size}"
                yield case(f"matrix by {order}", variant, partial(_matrix, type, shape, order))
        kernels = {"triangle": triangle, "tl.trans": transpose, "tl.reshape": reshape}
        for name, kernel in kernels.items():
            yield case(name, type, partial(_square, kernel, type))
        yield case("three axes", type, partial(_three_axes, type))
        yield case("outer product", type, partial(_outer, type))


def _three_axes(type: str) -> Program:
    args = [specials(type, 4 * 8 * 16), zeros(type, 4 * 8 * 16)]
    return Program(three_axes, args, {"A": 4, "B": 8, "C": 16})


def _outer(type: str) -> Program:
    args = [integral(type, (M,), "x"), integral(type, (N,), "y"), zeros(type, M * N)]
    return Program(outer, args, {"M": M, "N": N})


# -- reductions -----------------------------------------------------------------------------------


@jit
def rows_of(x_ptr, out_ptr, rows, columns, OP: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.arange(0, N)[None, :]
    inside = (i[:, None] < rows) & (j < columns)
    x = tl.load(x_ptr + i[:, None] * columns + j, mask=inside, other=0)
    tl.store(out_ptr + i, OP(x, 1), mask=i < rows)


@jit
def columns_of(x_ptr, out_ptr, rows, columns, OP: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.program_id(0) * N + tl.arange(0, N)
    inside = (i < rows) & (j[None, :] < columns)
    x = tl.load(x_ptr + i * columns + j[None, :], mask=inside, other=0)
    tl.store(out_ptr + j, OP(x, 0), mask=j < columns)


@jit
def whole(x_ptr, out_ptr, n, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr, OP(x, 0))


@jit
def combine(a, b):
    return a * 3 + b * 3 - 2 * (a + b)


@jit
def by_function(x, AXIS: tl.constexpr):
    return tl.reduce(x, AXIS, combine)


@jit
def larger_of_pairs(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@jit
def place_of_maximum(x, AXIS: tl.constexpr):
    i = tl.arange(0, x.shape[AXIS])
    if len(x.shape) == 2:
        places = tl.broadcast_to(i[None, :] if AXIS == 1 else i[:, None], x.shape)
    else:
        places = i
    return tl.reduce((x, places), AXIS, larger_of_pairs)[1]


SUMS: dict[str, Any] = {"tl.sum": tl.sum, "tl.reduce": by_function}
ORDERED: dict[str, Any] = {"tl.max": tl.max, "tl.min": tl.min}
PLACES: dict[str, Any] = {
    "tl.argmax": tl.argmax, "tl.argmin": tl.argmin, "tl.reduce of pairs": place_of_maximum,
}  # fmt: skip


def _sum_type(type: str) -> str:
    """The type of a sum: small integers are added as 32 bits."""
    return {"i8": "i32", "i16": "i32", "u8": "u32", "u16": "u32"}.get(type, type)


def _reduction(op: Any, type: str, out: str, axis: int, exact: bool) -> Program:
    rows, columns = 20, 27
    shape = rows, columns
    # Sums of whole numbers are exact in any order; maxima are of special values, too.
    x = integral(type, shape) if exact else specials(type, rows * columns).reshape(shape)
    kernel, count = (rows_of, rows) if axis == 1 else (columns_of, columns)
    grid = (cdiv(rows, M),) if axis == 1 else (1,)
    constants = {"OP": op, "M": M if axis == 1 else 32, "N": 32}
    return Program(kernel, [x, zeros(out, count), rows, columns], constants, grid)


def _whole(op: Any, type: str, out: str, exact: bool, count: int) -> Program:
    x = integral(type, (count,)) if exact else specials(type, count)
    size = 1 << (count - 1).bit_length()
    return Program(whole, [x, zeros(out, 1), count], {"OP": op, "N": size})


def _reductions() -> Iterator[Case]:
    case = partial(Case, "2")
    for type in NUMBERS:
        groups = (
            [(SUMS["tl.sum"], "tl.sum", _sum_type(type), True)],
            [(SUMS["tl.reduce"], "tl.reduce", type, True)],
            [(op, name, type, False) for name, op in ORDERED.items()],
            [(op, name, "i32", True) for name, op in PLACES.items()],
        )
        for op, name, out, exact in (row for group in groups for row in group):
            for axis in (0, 1):
                body = partial(_reduction, op, type, out, axis, exact)
                yield case(name, f"{type}, axis {axis}", body)
            for count in (1, 5, 1000):
                body = partial(_whole, op, type, out, exact, count)
                yield case(name, f"{type}, {count} elements", body)


# -- control flow ---------------------------------------------------------------------------------


@jit
def sum_of_rows(x_ptr, out_ptr, rows, N: tl.constexpr):
    j = tl.arange(0, N)
    total = tl.zeros((N,), x_ptr.dtype.element_ty)
    for i in range(rows):
        total += tl.load(x_ptr + i * N + j)
    tl.store(out_ptr + j, total)


@jit
def moving_pointers(x_ptr, out_ptr, rows, N: tl.constexpr):
    p = x_ptr + tl.arange(0, N)
    q = out_ptr + tl.arange(0, N)
    for _ in range(0, rows, 2):
        tl.store(q, tl.load(p))
        p += 2 * N
        q += N


@jit
def nested_loops(out_ptr, n, m):
    count = 0
    for i in range(n):
        for j in range(i, m, 3):
            count += i * j + 1
    for i in range(5, -n, -2):
        count -= i
    tl.store(out_ptr, count)


@jit
def collatz(x_ptr, out_ptr, steps):
    p = tl.program_id(0)
    value = tl.load(x_ptr + p)
    count = 0
    while (value != 1) & (count < steps):
        even = value % 2 == 0
        if even:
            value = value // 2
        if not even:
            value = 3 * value + 1
        count += 1
    tl.store(out_ptr + p, count)


@jit
def branches(x_ptr, out_ptr, limit, N: tl.constexpr):
    j = tl.arange(0, N)
    p = tl.program_id(0)
    x = tl.load(x_ptr + p * N + j)
    if p < limit:
        x = x + 1
    elif p == limit:
        x = x * 2
    else:
        if p % 2 == 0:
            tl.store(out_ptr + p * N + j, x)
            return
        x = x - 1
    tl.store(out_ptr + p * N + j, x)


@jit
def leave_early(x_ptr, out_ptr, rows, N: tl.constexpr):
    j = tl.arange(0, N)
    total = tl.zeros((N,), tl.int32)
    for i in range(rows):
        x = tl.load(x_ptr + i * N + j)
        if tl.max(x, 0) < 1:
            continue
        if tl.min(x, 0) < -2:
            break
        total += x
    tl.store(out_ptr + j, total)


@jit
def normalise(x_ptr, out_ptr, columns, N: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, N)
    x = tl.load(x_ptr + row * columns + j, mask=j < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * columns + j, e / tl.sum(e, 0), mask=j < columns)


def _control() -> Iterator[Case]:
    case = partial(Case, "2")
    for type in ("i32", "i64", "u8", "fp16", "fp32", "fp64"):
        for rows in (0, 1, 7):
            variant = f"{type}, {rows} rows"
            yield case("loop, carried tile", variant, partial(_rows, sum_of_rows, type, rows))
            yield case(
                "loop, carried pointers", variant, partial(_rows, moving_pointers, type, rows)
            )
        yield case("branches", type, partial(_branches, type))
    for n, m in ((0, 0), (1, 1), (4, 9), (7, 3)):
        yield case("nested loops", f"{n}, {m}", partial(_nested, n, m))
    yield case("while", "i32", _collatz)
    yield case("break and continue", "i32", _leave_early)
    for columns in (1, 33, 128):
        yield case("softmax", f"fp32, {columns} columns", partial(_softmax, columns))


def _rows(kernel: Any, type: str, rows: int) -> Program:
    x = integral(type, (max(rows, 1) * 2, 32))
    return Program(kernel, [x, zeros(type, max(rows, 1), 32), rows], {"N": 32})


def _branches(type: str) -> Program:
    return Program(branches, [integral(type, (6, 16)), zeros(type, 6, 16), 2], {"N": 16}, (6,))


def _nested(n: int, m: int) -> Program:
    return Program(nested_loops, [zeros("i32", 1), n, m])


def _collatz() -> Program:
    x = np.array([1, 2, 3, 7, 27, 97, 1000, 2**20], np.int32)
    return Program(collatz, [x, zeros("i32", 8), 100], grid=(8,))


def _leave_early() -> Program:
    return Program(leave_early, [integral("i32", (12, 16)), zeros("i32", 16), 12], {"N": 16})


def _softmax(columns: int) -> Program:
    x = specials("fp32", 5 * columns).reshape(5, columns)
    x = np.where(np.isfinite(x), np.clip(x, -20, 20), np.float32(0.5)).astype(np.float32)
    # A sum in another order, of up to 128 terms, an exponential and a quotient.
    return Program(normalise, [x, zeros("fp32", 5, columns), columns], {"N": 128}, (5,), ulp=32)


def cases() -> Iterator[Case]:
    """The cases of level 2, apart from the uses of single names."""
    yield from _memory()
    yield from _reductions()
    yield from _control()
