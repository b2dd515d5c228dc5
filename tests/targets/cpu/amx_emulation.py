"""AMX instructions in ordinary LLVM IR, so that code for AMX runs on machines without it.

A tile becomes a vector of 16 x 16 integers of 32 bits, and each intrinsic a call of a function that
is written here from Intel's description of the instruction. Tiles are always 16 rows of 64 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tilewright.lowering.emit import (
    F32,
    I8,
    I16,
    I32,
    I64,
    PTR,
    VOID,
    Builder,
    LType,
    Module,
    V,
    const,
    vector,
    zero,
)

SIDE = 16
ROW = vector(I32, SIDE)
TILE = vector(I32, SIDE * SIDE)

Term = Callable[[Builder, V, int], V]
"""(builder, 32-bit groups, number) → that element of each group, as it is multiplied."""


def emulated(text: str) -> str:
    """A module of LLVM IR with AMX intrinsics as one that runs without."""
    text = re.sub(r"^declare .*@llvm\.x86\.t.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"@llvm\.x86\.(t\w+)\.internal", r"@emulated.\1", text)
    return text.replace("x86_amx", TILE.text) + _functions()


def _functions() -> str:
    module = Module("amx")
    shape = [(I16, ""), (I16, "")]
    b = Builder(module.function("emulated.tilezero", TILE, shape))
    b.ret(zero(TILE))
    _load(Builder(module.function("emulated.tileloadd64", TILE, [*shape, (PTR, ""), (I64, "")])))
    params = [*shape, (PTR, ""), (I64, ""), (TILE, "")]
    _store(Builder(module.function("emulated.tilestored64", VOID, params)))
    dots: list[tuple[str, int, LType, Term]] = [
        ("tdpbf16ps", 2, F32, _bf16), ("tdpbssd", 4, I32, _signed), ("tdpbuud", 4, I32, _unsigned),
    ]  # fmt: skip
    for name, count, total, term in dots:
        params = [*shape, (I16, ""), *[(TILE, "")] * 3]
        _dot(Builder(module.function(f"emulated.{name}", TILE, params)), count, total, term)
    return module.text()


def _row(b: Builder, tile: V, i: int) -> V:
    return b.shuffle(tile, None, list(range(SIDE * i, SIDE * (i + 1))))


def _joined(b: Builder, parts: list[V]) -> V:
    while len(parts) > 1:
        length = 2 * parts[0].type.lanes
        pairs = zip(parts[0::2], parts[1::2], strict=True)
        parts = [b.shuffle(x, y, list(range(length))) for x, y in pairs]
    return parts[0]


def _address(b: Builder, ptr: V, stride: V, i: int) -> V:
    return b.gep(I8, ptr, b.mul(stride, const(I64, i)))


def _load(b: Builder) -> None:
    _, _, ptr, stride = b.function.params
    b.ret(_joined(b, [b.load(ROW, _address(b, ptr, stride, i)) for i in range(SIDE)]))


def _store(b: Builder) -> None:
    _, _, ptr, stride, tile = b.function.params
    for i in range(SIDE):
        b.store(_row(b, tile, i), _address(b, ptr, stride, i))
    b.ret()


def _dot(b: Builder, count: int, total: LType, term: Term) -> None:
    """sums[m] += sum over k and elements e of lhs[m][k][e] * rhs[k][.][e]."""
    *_, sums, lhs, rhs = b.function.params
    made, left, right = (b.alloca(TILE) for _ in range(3))
    for tile, place in ((sums, made), (lhs, left), (rhs, right)):
        b.store(tile, place)
    with b.loop(0, SIDE * SIDE, SIDE) as m:
        place = b.gep(I32, made, m.index)
        with b.loop(0, SIDE, carried=[b.load(vector(total, SIDE), place)]) as k:
            (line,) = k.carried
            group = b.splat(b.load(I32, b.gep(I32, left, b.add(m.index, k.index))), SIDE)
            row = b.load(ROW, b.gep(I32, right, b.mul(k.index, const(I64, SIDE))))
            for e in range(count):
                x, y = term(b, group, e), term(b, row, e)
                line = b.mul_add(x, y, line) if total is F32 else b.add(line, b.mul(x, y))
            k.yield_([line])
        b.store(k.results[0], place)
    b.ret(b.load(TILE, made))


def _bf16(b: Builder, groups: V, e: int) -> V:
    bits = b.shl(groups, 16) if e == 0 else b.and_(groups, -(1 << 16))
    return b.bitcast(bits, vector(F32, SIDE))


def _signed(b: Builder, groups: V, e: int) -> V:
    return b.ashr(b.shl(groups, 24 - 8 * e), 24)


def _unsigned(b: Builder, groups: V, e: int) -> V:
    return b.and_(b.lshr(groups, 8 * e), 255)
