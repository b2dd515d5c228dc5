"""Level 1: loads, stores, masks, and arithmetic, comparisons and conversions of all types."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import tilewright.language as tl
from tilewright.conformance.case import Case, Program, Shifted
from tilewright.conformance.inputs import (
    EVERY,
    FLOATS,
    INTEGERS,
    SIGNED,
    positive,
    specials,
    zeros,
)
from tilewright.ir.types import BY_SHORT
from tilewright.runtime.jit import cdiv, jit

COUNT, BLOCK = 1000, 256  # the last program has a tail

# -- kernels --------------------------------------------------------------------------------------


@jit
def unary(x_ptr, out_ptr, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, OP(x), mask=i < n)


@jit
def binary(x_ptr, y_ptr, out_ptr, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, OP(x, y), mask=i < n)


@jit
def ternary(x_ptr, y_ptr, z_ptr, out_ptr, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = tl.load(y_ptr + i, mask=i < n)
    z = tl.load(z_ptr + i, mask=i < n)
    tl.store(out_ptr + i, OP(x, y, z), mask=i < n)


@jit
def with_scalar(x_ptr, out_ptr, scalar, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.where(i % 3 == 0, x, scalar.to(x.dtype)), mask=i < n)


@jit
def convert(x_ptr, out_ptr, n, T: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n).to(T), mask=i < n)


@jit
def reinterpret(x_ptr, out_ptr, n, T: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n).to(T, bitcast=True), mask=i < n)


@jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@jit
def copy_whole(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i))


@jit
def copy_strided(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i * stride, tl.load(x_ptr + i * stride, mask=i < n), mask=i < n)


@jit
def reverse(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + (n - 1 - i), mask=i < n), mask=i < n)


@jit
def gather(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + i, tl.load(x_ptr + index, mask=i < n), mask=i < n)


@jit
def pattern(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=(i < n) & (i % 3 != 1), other=1)
    tl.store(out_ptr + i, x, mask=(i < n) & (i % 5 != 2))


@jit
def one_element(x_ptr, out_ptr):
    p = tl.program_id(0)
    tl.store(out_ptr + p, tl.load(x_ptr + p))


@jit
def write_program(out_ptr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    place = x + tl.num_programs(0) * (y + tl.num_programs(1) * z)
    tl.store(out_ptr + place, x + 100 * y + 10000 * z + 1)


# -- operations -----------------------------------------------------------------------------------


@jit
def add(x, y):
    return x + y


@jit
def sub(x, y):
    return x - y


@jit
def mul(x, y):
    return x * y


@jit
def true_div(x, y):
    return x / y


@jit
def floor_div(x, y):
    return x // y


@jit
def mod(x, y):
    return x % y


@jit
def bit_and(x, y):
    return x & y


@jit
def bit_or(x, y):
    return x | y


@jit
def bit_xor(x, y):
    return x ^ y


@jit
def shift_left(x, y):
    return x << y


@jit
def shift_right(x, y):
    return x >> y


@jit
def less(x, y):
    return x < y


@jit
def less_equal(x, y):
    return x <= y


@jit
def greater(x, y):
    return x > y


@jit
def greater_equal(x, y):
    return x >= y


@jit
def equal(x, y):
    return x == y


@jit
def not_equal(x, y):
    return x != y


@jit
def negate(x):
    return -x


@jit
def invert(x):
    return ~x


@jit
def propagating_minimum(x, y):
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@jit
def propagating_maximum(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@jit
def select(x, y, z):
    return tl.where(x < y, z, x)


ARITHMETIC: dict[str, Any] = {"x + y": add, "x - y": sub, "x * y": mul, "x % y": mod}
LOGIC: dict[str, Any] = {
    "x // y": floor_div, "x & y": bit_and, "x | y": bit_or, "x ^ y": bit_xor,
    "x << y": shift_left, "x >> y": shift_right,
}  # fmt: skip
COMPARISONS: dict[str, Any] = {
    "x < y": less, "x <= y": less_equal, "x > y": greater, "x >= y": greater_equal,
    "x == y": equal, "x != y": not_equal,
}  # fmt: skip
EXTREMES: dict[str, Any] = {
    "tl.minimum": tl.minimum, "tl.maximum": tl.maximum,
    "tl.minimum, NaN propagated": propagating_minimum,
    "tl.maximum, NaN propagated": propagating_maximum,
}  # fmt: skip
EXACT: dict[str, Any] = {"-x": negate, "tl.abs": tl.abs}
ROUNDED: dict[str, Any] = {"tl.floor": tl.floor, "tl.ceil": tl.ceil, "tl.sqrt_rn": tl.sqrt_rn}
FUNCTIONS: dict[str, Any] = {
    "tl.exp": tl.exp, "tl.exp2": tl.exp2, "tl.log": tl.log, "tl.log2": tl.log2, "tl.sin": tl.sin,
    "tl.cos": tl.cos, "tl.sqrt": tl.sqrt, "tl.rsqrt": tl.rsqrt, "tl.erf": tl.erf,
    "tl.sigmoid": tl.sigmoid,
}  # fmt: skip

FUNCTION_ULP = 4.0
"""Of functions that are not rounded correctly, in units in the last place."""
DIVISION_ULP = 2.0


# -- programs -------------------------------------------------------------------------------------


def _grid(count: int = COUNT) -> tuple[int, ...]:
    return (cdiv(count, BLOCK),)


def _result(type: str) -> Any:
    return specials(type, COUNT, "result")


def _unary(op: Any, type: str, ulp: float) -> Program:
    x = positive(type, COUNT) if ulp else specials(type, COUNT)
    return Program(unary, [x, _result(type), COUNT], {"OP": op, "BLOCK": BLOCK}, _grid(), ulp)


def _binary(op: Any, type: str, out: str, ulp: float = 0) -> Program:
    x, y = (specials(type, COUNT, seed) for seed in "xy")
    args = [x, y, zeros(out, COUNT), COUNT]
    return Program(binary, args, {"OP": op, "BLOCK": BLOCK}, _grid(), ulp)


def _ternary(op: Any, type: str) -> Program:
    args = [specials(type, COUNT, seed) for seed in "xyz"]
    constants = {"OP": op, "BLOCK": BLOCK}
    return Program(ternary, [*args, zeros(type, COUNT), COUNT], constants, _grid())


def _conversion(kernel: Any, source: str, to: str) -> Program:
    args = [specials(source, COUNT), zeros(to, COUNT), COUNT]
    return Program(kernel, args, {"T": BY_SHORT[to], "BLOCK": BLOCK}, _grid())


def _copied(args: Any) -> list[Any]:
    x, out, n = args[:3]
    out[:n] = x[:n]
    return [x, out]


def _copy(type: str, count: int, shift: int) -> Program:
    args = [specials(type, max(count, 1), s) for s in "xo"]
    arrays = [Shifted(a, shift) if shift else a for a in args]
    expected = None if shift else _copied
    return Program(
        copy, [*arrays, count], {"BLOCK": BLOCK}, _grid(max(count, 1)), expected=expected
    )


def _strided(type: str, stride: int) -> Program:
    args = [specials(type, COUNT * stride, s) for s in "xo"]
    return Program(copy_strided, [*args, COUNT, stride], {"BLOCK": BLOCK}, _grid())


def _gather(type: str) -> Program:
    index = np.arange(COUNT, dtype=np.int32) * 7 % COUNT
    args = [specials(type, COUNT), index, _result(type), COUNT]
    return Program(gather, args, {"BLOCK": BLOCK}, _grid())


def _scalar(type: str) -> Program:
    value = specials(type, 1, "scalar")[0] if type in INTEGERS or type == "fp32" else 0
    return Program(
        with_scalar, [specials(type, COUNT), zeros(type, COUNT), value, COUNT],
        {"BLOCK": BLOCK}, _grid(),
    )  # fmt: skip


def _programs(grid: tuple[int, ...]) -> Program:
    return Program(write_program, [zeros("i32", max(1, int(np.prod(grid))))], grid=grid)


# -- cases ----------------------------------------------------------------------------------------


def _access() -> Iterator[Case]:
    case = partial(Case, "1")
    for type in EVERY:
        yield case("copy, whole blocks", type, partial(
            Program, copy_whole, [specials(type, 512), zeros(type, 512)], {"BLOCK": BLOCK}, (2,),
            expected=lambda args: [args[0], args[0]],
        ))  # fmt: skip
        yield case("copy, with a tail", type, partial(_copy, type, COUNT, 0))
        yield case("copy, misaligned", type, partial(_copy, type, COUNT, 1))
        yield case("copy, all lanes masked off", type, partial(_copy, type, 0, 0))
        yield case("copy, stride 3", type, partial(_strided, type, 3))
        yield case("copy, reversed", type, partial(
            Program, reverse, [specials(type, COUNT), zeros(type, COUNT), COUNT],
            {"BLOCK": BLOCK}, _grid(),
        ))  # fmt: skip
        yield case("copy, any mask", type, partial(
            Program, pattern, [specials(type, COUNT), _result(type), COUNT], {"BLOCK": BLOCK},
            _grid(),
        ))  # fmt: skip
        yield case("gather", type, partial(_gather, type))
        yield case("one element", type, partial(
            Program, one_element, [specials(type, 7), zeros(type, 7)], grid=(5,),
        ))  # fmt: skip
    for type in (*INTEGERS, "fp32"):
        yield case("scalar argument", type, partial(_scalar, type))
    for grid in ((0,), (1,), (5,), (3, 4), (2, 3, 4), (1, 1, 3), (4, 0, 2)):
        yield case("grid", "x".join(map(str, grid)), partial(_programs, grid))


def _arithmetic() -> Iterator[Case]:
    case = partial(Case, "1")
    for type in (*INTEGERS, *FLOATS):
        for name, op in (ARITHMETIC | EXTREMES).items():
            yield case(name, type, partial(_binary, op, type, type))
        for name, op in COMPARISONS.items():
            yield case(name, type, partial(_binary, op, type, "i1"))
        yield case("tl.where", type, partial(_ternary, select, type))
    for type in INTEGERS:
        for name, op in LOGIC.items():
            yield case(name, type, partial(_binary, op, type, type))
        yield case("~x", type, partial(_unary, invert, type, 0))
        yield case("tl.umulhi", type, partial(_binary, tl.umulhi, type, type))
    for type in (*SIGNED, *FLOATS):
        for name, op in EXACT.items():
            yield case(name, type, partial(_unary, op, type, 0))
    for type in FLOATS:
        yield case("tl.fma", type, partial(_ternary, tl.fma, type))
        yield case("x / y", type, partial(_binary, true_div, type, type, DIVISION_ULP))
        yield case("tl.div_rn", type, partial(_binary, tl.div_rn, type, type))
        for name, op in ROUNDED.items():
            yield case(name, type, partial(_unary, op, type, 0))
        for name, op in FUNCTIONS.items():
            yield case(name, type, partial(_unary, op, type, FUNCTION_ULP))


def _conversions() -> Iterator[Case]:
    for source in EVERY:
        for to in EVERY:
            if source != to:
                pair = f"{source} to {to}"
                yield Case("1", "conversion", pair, partial(_conversion, convert, source, to))
                if BY_SHORT[source].nbytes_in_memory == BY_SHORT[to].nbytes_in_memory:
                    same = partial(_conversion, reinterpret, source, to)
                    yield Case("1", "bitcast", pair, same)


def cases() -> Iterator[Case]:
    """The cases of level 1, apart from the uses of single names."""
    yield from _access()
    yield from _arithmetic()
    yield from _conversions()
