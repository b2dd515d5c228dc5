"""Loops with bounds and steps of the run time, and programs that end early."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

from tests.fuzz.programs.kinds import INTEGERS, Kind, tl
from tests.fuzz.programs.memory import save
from tests.fuzz.programs.writer import Array, Writer, mark, statement
from tilewright.ir.types import (
    BF16,
    FP16,
    FP32,
    FP64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
)

TYPES = (I32, I32, I64, U32, U64, I8, U8, I16, U16)


def _first(w: Writer, dtype: DType) -> str:
    """Where a loop begins: anywhere, or near an end of the type."""
    low, high = dtype.get_int_min_value(), dtype.get_int_max_value()
    match w.below(4):
        case 0:
            return w.typed(dtype, (), 1)
        case 1:
            mark(w, "range: near the largest index")
            return f"tl.full((), {high - w.below(9)}, {tl(dtype)})"
        case 2:
            mark(w, "range: near the least index")
            return f"tl.full((), {low + w.below(9)}, {tl(dtype)})"
        case _:
            return f"tl.full((), {max(low, w.random.randint(-5, 5))}, {tl(dtype)})"


def _few(w: Writer, dtype: DType) -> str:
    """A number from 0 to 7 of the type."""
    return f"({w.typed(I32, (), 0)} & 7).to({tl(dtype)})" if w.one_in(2) else str(w.below(8))


def _range(w: Writer, dtype: DType) -> tuple[str, ...]:
    """Arguments of a range that has 8 indices at most, however its ends wrap."""
    first = w.book.name("a")
    w.emit(f"{first} = {_first(w, dtype)}")
    w.pending.clear()
    few = _few(w, dtype)
    match w.below(5):
        case 0:
            mark(w, "range: literal step")
            return first, f"({first} + {few}).to({tl(dtype)})", f"{w.random.randint(1, 4)}"
        case 1:
            mark(w, "range: negative step")
            return first, f"({first} - {few}).to({tl(dtype)})", f"{-w.random.randint(1, 4)}"
        case 2:
            mark(w, "range: step of the run time")
            step = w.book.name("b")
            w.emit(f"{step} = (({w.typed(I32, (), 0)} & 3) + 1).to({tl(dtype)})")
            w.pending.clear()
            return first, f"({first} + {few}).to({tl(dtype)})", step
        case 3:
            mark(w, "range: large step")
            step, bits = w.book.name("b"), dtype.primitive_bitwidth - dtype.is_int_signed()
            least = 1 << (bits - 2)
            by = w.choose((least, least + 1, 2 * least - 1, 3 * least - 5))
            if by > dtype.get_int_max_value():
                by = least
            w.emit(f"{step} = tl.full((), {by}, {tl(dtype)})")
            last = w.typed(dtype, (), 1) if w.one_in(2) else str(dtype.get_int_max_value())
            return first, last, step if w.one_in(2) else str(by)
        case _:
            mark(w, "range: no index")
            last = w.choose((first, f"tl.minimum({first}, {w.below(9)})"))
            return f"tl.maximum({first}, {w.choose(('8', first))})", last


@statement(3)
def counted(w: Writer) -> bool:
    """A loop over a range of any type whose indices are summed up."""
    if w.loops >= 2 or w.nested >= 3:
        return False
    dtype = w.choose(TYPES)
    total, kept = w.define(Kind(dtype)), dtype
    w.emit(f"{total} = tl.full((), {w.below(9)}, {tl(dtype)})")
    index = w.book.name("i")
    bounds = _range(w, dtype)
    literal = len(bounds) < 3 or any(b.strip("-").isdigit() for b in bounds)
    if literal and dtype.primitive_bitwidth < 32:
        dtype = I32  # which the literal is
    w.emit(f"for {index} in range({', '.join(bounds)}):")
    leave, w.leave = w.leave, False
    w.loops += 1
    with w.block():
        w.scopes[-1][index] = Kind(dtype)
        w.emit(f"{total} = ({total} * 3 + {index}).to({tl(kept)})")
        if w.one_in(3):
            mark(w, "range: left early")
            w.emit(f"if {w.condition(1)}:")
            w.pending.clear()
            w.emit(f"    {w.choose(('break', 'continue'))}")
            w.emit(f"{total} += 1")
        if w.one_in(2):
            w.statements(1)
    w.loops -= 1
    w.leave = leave
    return True


@statement(1)
def endless(w: Writer) -> bool:
    """``while True`` that a counter or a condition leaves."""
    if w.loops >= 2 or w.nested >= 3:
        return False
    mark(w, "while: true")
    counter, limit = w.book.name("n"), w.index((), 4, 0)
    total = w.define(Kind(I32))
    w.emit(f"{total} = 0")
    w.emit(f"{counter} = 0")
    w.pending.clear()
    w.emit("while True:")
    leave, w.leave = w.leave, False
    w.loops += 1
    with w.block():
        w.emit(f"{counter} += 1")
        if w.one_in(2):
            w.statements(1)
        w.emit(f"if {counter} > {limit}:")
        w.emit("    break")
        w.emit(f"{total} = {total} * 5 + {counter}")
        if w.one_in(3):
            w.emit(f"if {w.condition(1)}:")
            w.pending.clear()
            w.emit(f"    {w.choose(('continue', 'break'))}")
            w.emit(f"{total} += 1")
    w.loops -= 1
    w.leave = leave
    return True


FURTHEST = 8  # iterations of a loop that takes large steps

HOLDS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "!=": operator.ne,
}


class _Steps(NamedTuple):
    """A counter that starts at `first`, and goes on by `step` while its relation to `last` holds.
    Its type is that of the loop: it may wrap around, and then still go on."""

    first: int
    sign: str
    last: int
    step: int


def _steps(w: Writer, dtype: DType) -> _Steps | None:
    """Large steps near the ends of a type, if the loop has but few iterations."""
    low, high = dtype.get_int_min_value(), dtype.get_int_max_value()
    span = high - low + 1
    ends = (low, low + 1, 0, 1, 5, high // 2, high - 5, high - 1, high, w.random.randint(low, high))
    sign = w.choose([*HOLDS])
    found = _Steps(w.choose(ends), sign, w.choose(ends), span // w.random.randint(3, 16))
    if w.one_in(2):
        found = found._replace(step=-found.step)
    at, count = found.first, 0
    while HOLDS[sign](at, found.last) and count <= FURTHEST:
        at, count = (at + found.step - low) % span + low, count + 1
    return found if 0 < count <= FURTHEST else None


@statement(1)
def large_steps(w: Writer) -> bool:
    """``while`` by steps that pass the range of their type within a few iterations."""
    if not w.is_kernel or w.loops >= 2 or w.nested >= 3:
        return False
    dtype = w.choose(TYPES)
    steps = next((s for _ in range(9) if (s := _steps(w, dtype)) is not None), None)
    if steps is None:
        return False
    t, counter, total = tl(dtype), w.book.name("n"), w.define(Kind(dtype))
    # Nothing is added to the numbers, which a compiler does not know.
    hidden = [w.choose(("", f" + (program >> 20).to({t})")) for _ in range(2)]
    w.emit(f"{counter} = tl.full((), {steps.first}, {t}){hidden[0]}")
    w.emit(f"{total} = {counter}")
    test = f"{counter} {steps.sign} tl.full((), {steps.last}, {t}){hidden[1]}"
    leave, w.leave = w.leave, False
    w.loops += 1
    inverted = w.one_in(3)
    w.emit("while True:" if inverted else f"while {test}:")
    with w.block():
        if inverted:
            mark(w, "while: large steps, left in the body")
            w.emit(f"if not ({test}):")
            w.emit("    break")
        w.emit(f"{total} = ({total} * 3 + {counter}).to({t})")
        if w.one_in(2):
            w.statements(1)
        by = f"tl.full((), {abs(steps.step)}, {t})"
        w.emit(f"{counter} {'+' if steps.step > 0 else '-'}= {by}")
    w.loops -= 1
    w.leave = leave
    return True


@statement(1)
def ended(w: Writer) -> bool:
    """A program that ends before the others do."""
    if not w.is_kernel or w.loops or w.nested:
        return False
    test = w.choose((f"program == {w.below(3)}", w.condition(1)))
    w.pending.clear()
    w.emit(f"if {test}:")
    with w.block():
        names = [(n, k) for n, k in w.kinds() if n[0] == "v"]
        for name, kind in names[-2:]:
            save(w, name, kind)
        w.emit("return")
    return True


@statement(2)
def blocks_in_a_row(w: Writer) -> bool:
    """A loop over blocks of the readable part, which carries a value along: a running total, a
    largest value so far, or what came before."""
    shapes = [s for s in w.book.shapes if len(s) == 1]
    if not w.is_kernel or w.loops or w.nested >= 3:
        return False
    (n,) = w.choose(shapes)
    dtypes = [a for a in w.book.arrays if a.dtype in INTEGERS]
    array = w.choose(dtypes)
    carry, x = w.define(Kind(array.dtype)), w.book.name("h")
    run = w.define(Kind(array.dtype, (n,)))
    t = tl(array.dtype)
    w.emit(f"{carry} = tl.full((), {w.below(5)}, {t})")
    w.emit(f"{run} = tl.zeros(({n},), {t})")
    trips = w.choose(("3", w.index((), 4, 0)))
    index = w.book.name("i")
    stop = w.choose((str(w.below(4 * n)), f"({w.index((), 4 * n if n & (n - 1) == 0 else 64, 0)})"))
    w.pending.clear()
    hint = w.choose(("range", "tl.range", "tl.range"))
    stages = w.choose((", num_stages=2", ", num_stages=3")) if hint == "tl.range" else ""
    step = f", step=1{stages}" if stages else ""
    w.emit(f"for {index} in {hint}(0, {trips}{step}):")
    with w.block():
        places = f"{index} * {n} + tl.arange(0, {n})"
        w.emit(f"{x} = tl.load({array.name} + {places}, mask={places} < {stop}, other=1)")
        forms = [
            [f"{run} += (tl.cumsum({x}, 0) + {carry}).to({t})",
             f"{carry} += tl.sum({x}, 0).to({t})"],
            [f"{run} = tl.maximum({run}, {x})",
             f"{carry} = tl.maximum({carry}, tl.max({x}, 0).to({t}))"],
            [f"{run} = ({run} * 3 - {x}).to({t})", f"{carry} += tl.sum({x}, 0).to({t})"],
            [f"{run} = tl.minimum({run}, {x})", f"{carry} ^= tl.xor_sum({x}, 0).to({t})"],
            [f"{run} = ({x} - {run}).to({t})",
             f"{carry} = ({carry} * 2 + tl.xor_sum({x}, 0)).to({t})"],
        ]  # fmt: skip
        for line in w.choose(forms):
            w.emit(line)
    return True


@statement(1)
def product_in_blocks(w: Writer) -> bool:
    """A product of two matrices of small whole numbers, block by block, with masks at the end."""
    if not w.is_kernel or w.loops or w.nested >= 3:
        return False
    m, n, k = w.choose((8, 16, 16, 32)), w.choose((8, 16, 16)), w.choose((16, 32))
    total, rows, columns, inner = (w.book.name("h") for _ in range(4))
    array, other = w.choose(w.book.arrays), w.choose(w.book.arrays)
    operands, dtype = w.choose(((FP16, FP32), (FP32, FP32), (I8, I32), (BF16, FP32), (FP64, FP64)))
    if operands is I8:
        k = 32  # the least that GPUs take
    size = w.choose((str(w.below(3 * k)), f"n * {w.below(3)}", w.index((), 64, 0)))
    w.pending.clear()
    w.emit(f"{rows} = tl.arange(0, {m})[:, None]")
    w.emit(f"{columns} = tl.arange(0, {n})[None, :]")
    w.emit(f"{total} = tl.zeros(({m}, {n}), {tl(dtype)})")
    stages = w.choose(("", "", ", num_stages=2", ", num_stages=3"))
    index = w.book.name("i")
    w.emit(f"for {index} in tl.range(0, {size}, {k}{stages}):")
    with w.block():
        w.emit(f"{inner} = {index} + tl.arange(0, {k})")
        left = _block(w, array, f"{rows} * 64 + {inner}[None, :]", f"{inner}[None, :] < {size}")
        right = _block(
            w, other, f"{inner}[:, None] * {n} + {columns}", f"{inner}[:, None] < {size}"
        )
        a, b = (f"{side}.to({tl(operands)})" for side in (left, right))
        if w.one_in(2):
            w.emit(f"{total} = tl.dot({a}, {b}, {total})")
        else:
            w.emit(f"{total} += tl.dot({a}, {b})")
    name = w.define(Kind(dtype, (m, n)))
    w.emit(f"{name} = {total} + 1")
    return True


def _block(w: Writer, array: Array, places: str, mask: str) -> str:
    """A block of an array as numbers from 0 to 3."""
    loaded = f"tl.load({array.name} + {places}, mask={mask}, other={w.below(2)})"
    if array.dtype.is_bool():
        return f"{loaded}.to(tl.int32)"
    if array.dtype in INTEGERS:
        return f"({loaded} & 3)"
    return (
        f"({loaded} > 0).to(tl.int32)"
        if not array.dtype.is_fp8()
        else (f"({loaded}.to(tl.float32) > 0).to(tl.int32)")
    )


@statement(1)
def stencil(w: Writer) -> bool:
    """Neighbours of each element, with masks at both ends."""
    shapes = [s for s in w.book.shapes if len(s) == 1]
    if not w.is_kernel or not shapes:
        return False
    (n,) = w.choose(shapes)
    array = w.choose([a for a in w.book.arrays if not a.dtype.is_fp8() and not a.dtype.is_bool()])
    places, base = w.book.name("h"), w.below(64)
    w.emit(f"{places} = {w.choose(('program', '0', 'n'))} * {n} + tl.arange(0, {n})")
    terms: list[str] = []
    for shift in w.random.sample(range(-3, 4), w.random.randint(2, 4)):
        mask = f"({places} + {shift} >= 0) & ({places} + {shift} < {w.choose(('n', str(3 * n)))})"
        terms.append(f"tl.load({array.name} + {base} + {places} + {shift}, mask={mask}, other=0)")
    name = w.define(Kind(array.dtype, (n,)))
    sign = w.choose("+-")
    w.emit(f"{name} = {f' {sign} '.join(terms)}")
    return True
