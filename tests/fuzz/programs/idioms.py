"""Statements as authors write them by the dozen: networks, Newton's steps, rounds, long chains.

Each repeats a step on a few values: written out, in a loop that is unrolled, or in a loop that
runs. What a compiler decides by looking through a chain of uses (what to recompute, where a value
is kept, which lanes are equal) meets long chains only here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tests.fuzz.programs.kinds import INTEGERS, UNSIGNED, Kind, Shape, tl
from tests.fuzz.programs.writer import Writer, mark, statement
from tilewright.ir.types import FP32, FP64, I32, I64, U32, DType

Step = Callable[[int | str], list[str]]
"""Gives the lines of a step, from its number or from the name that the number has in a loop."""


def even(n: int) -> bool:
    return n & (n - 1) == 0


def repeat(w: Writer, count: int, step: Step, *, uniform: bool) -> None:
    """Emit a step so many times; in a loop only if all steps are alike."""
    how = w.choose(("lines", "unrolled", "loop")) if uniform and w.nested < 3 else "lines"
    mark(w, f"repeated: {how}")
    if how == "lines" or w.loops >= 2:
        for i in range(count):
            for line in step(i):
                w.emit(line)
        return
    index = w.book.name("i")
    w.emit(f"for {index} in {'tl.static_range' if how == 'unrolled' else 'range'}({count}):")
    with w.block():
        for line in step(index):
            w.emit(line)


def started(w: Writer, dtype: DType, shape: Shape) -> str:
    """A new name with a value of the type."""
    text = w.typed(dtype, shape, 1)
    name = w.define(Kind(dtype, shape))
    w.emit(f"{name} = {text}")
    w.pending.clear()
    return name


@statement(1)
def newton(w: Writer) -> bool:
    """An inverse or a root by Newton's steps."""
    shape = w.shape()
    dtype = w.choose((*INTEGERS, FP32, FP32, FP64))
    d, x = started(w, dtype, shape), started(w, dtype, shape)
    forms = [f"{x} * (2 - {d} * {x})", f"{x} + {x} * (1 - {d} * {x})"]
    if dtype in (FP32, FP64):
        forms += [f"{x} * (1.5 - 0.5 * {d} * {x} * {x})"]
    form = w.choose(forms)
    repeat(w, w.choose((2, 4, 8, 14)), lambda _: [f"{x} = {form}"], uniform=True)
    return True


@statement(1)
def rounds(w: Writer) -> bool:
    """Rounds of a hash: a state whose parts move on by one in each."""
    dtype = w.choose((U32, U32, *UNSIGNED, I32, I64))
    bits = dtype.primitive_bitwidth
    shape = w.shape()
    state = [started(w, dtype, shape) for _ in range(w.random.randint(3, 5))]
    a, b, c, last = state[0], state[1], state[2], state[-1]
    turn, keys = w.random.randint(1, bits - 1), w.choose((3, 11, 101))
    mixed = w.choose((f"(({a} & {b}) ^ (~{a} & {c}))", f"({a} ^ {b} ^ {c})",
                      f"(({a} & {b}) ^ ({a} & {c}) ^ ({b} & {c}))"))  # fmt: skip

    def step(i: int | str) -> list[str]:
        key = f"{keys}" if isinstance(i, str) else str((keys * (i + 1)) % 100)
        rotated = f"(({a} << {turn}) | ({a} >> {bits - turn}))"
        first = f"{rotated} + {mixed} + {last} + {key}"
        return [f"{', '.join(state)} = {first}, {', '.join(state[:-1])}"]

    count = w.choose((3, 4, 8, 8, 16))
    if w.random.random() < 0.02:
        mark(w, "rounds: 64")
        count = 64
    repeat(w, count, step, uniform=True)
    return True


@statement(2)
def chain(w: Writer) -> bool:
    """Many ops, each on the last few results."""
    dtype = w.choose((*INTEGERS, FP32))
    shape = w.shape()
    names = [started(w, dtype, shape) for _ in range(w.random.randint(2, 3))]
    signs = "+-*" if dtype is FP32 else "+-*&|^"
    forms = ["{a} {s} {b}", "{a} {s} {b}", "tl.minimum({a}, {b})", "{a} {s} {k}",
             "tl.where({a} > {b}, {b}, {a} {s} {k})"]  # fmt: skip
    if shape:
        forms += ["tl.flip({a}, {axis})", "{a} {s} tl.flip({b}, {axis})"]
    for _ in range(w.choose((4, 8, 8, 16, 40))):
        to, a, b = (w.choose(names) for _ in range(3))
        text = w.choose(forms).format(
            a=a, b=b, s=w.choose(signs), k=w.random.randint(1, 7), axis=w.below(len(shape) or 1)
        )
        w.emit(f"{to} = {text}")
    return True


# -- networks -------------------------------------------------------------------------------------


def _lined(w: Writer, most: int = 128) -> int | None:
    """How long a tile of one axis with a power of two of elements is to be."""
    options = [s[0] for s in w.book.shapes if len(s) == 1 and even(s[0]) and 4 <= s[0] <= most]
    return w.choose(options) if options and not w.pure else None


@statement(2)
def butterflies(w: Writer) -> bool:
    """A Walsh-Hadamard or Fourier-like transform by splits and joins."""
    n = _lined(w)
    if n is None:
        return False
    dtype = w.choose((I32, I64, U32, *INTEGERS))
    x, a, b = started(w, dtype, (n,)), w.book.name("h"), w.book.name("h")
    stages = n.bit_length() - 1
    outer = w.one_in(2)
    twiddle = w.choose(("", f" * {w.random.randint(2, 9)}", f" * tl.arange(1, {n // 2 + 1})"))
    to = f".to({tl(dtype)})"

    def perfect(_: int | str) -> list[str]:
        part = f"{x}.reshape(2, {n // 2}).permute(1, 0)" if outer else f"{x}.reshape({n // 2}, 2)"
        back = w.choose((".permute(1, 0)", ""))
        return [f"{a}, {b} = tl.split({part})",
                f"{x} = tl.join({a} + {b}, (({a} - {b}){twiddle}){to})"
                f"{back}.reshape({n})"]  # fmt: skip

    def strided(i: int | str) -> list[str]:
        assert isinstance(i, int)
        inner = 1 << (i % stages)
        view = f"{x}.reshape({n // (2 * inner)}, 2, {inner}).permute(0, 2, 1)"
        return [f"{a}, {b} = tl.split({view})",
                f"{x} = tl.join({a} + {b}, {a} - {b}).permute(0, 2, 1).reshape({n})"]  # fmt: skip

    uniform = w.one_in(2)
    repeat(w, stages * w.choose((1, 1, 2)), perfect if uniform else strided, uniform=uniform)
    return True


@statement(2)
def exchanges(w: Writer) -> bool:
    """A network of gathers: a bitonic sort, a scan by shifts, a butterfly by exclusive or."""
    n = _lined(w, 32)
    if n is None:
        return False
    dtype = w.choose(INTEGERS)
    x, i, y = started(w, dtype, (n,)), w.book.name("h"), w.book.name("h")
    w.emit(f"{i} = tl.arange(0, {n})")
    stages = n.bit_length() - 1
    match w.below(3):
        case 0:
            mark(w, "exchanges: bitonic")
            for k in range(1, stages + 1):
                for j in reversed(range(k)):
                    w.emit(f"{y} = tl.gather({x}, {i} ^ {1 << j}, 0)")
                    up = f"(({i} & {1 << k}) == 0) == (({i} & {1 << j}) == 0)"
                    w.emit(f"{x} = tl.where({up}, tl.minimum({x}, {y}), tl.maximum({x}, {y}))")
        case 1:
            mark(w, "exchanges: shifts")
            for s in range(stages):
                w.emit(f"{y} = tl.gather({x}, ({i} - {1 << s}) & {n - 1}, 0)")
                w.emit(f"{x} = {x} + tl.where({i} >= {1 << s}, {y}, 0).to({tl(dtype)})")
        case _:
            mark(w, "exchanges: butterfly")
            for s in range(stages):
                w.emit(f"{y} = tl.gather({x}, {i} ^ {1 << s}, 0)")
                w.emit(f"{x} = tl.where(({i} & {1 << s}) == 0, {x} + {y}, {y} - {x})")
    return True


@statement(2)
def reversals(w: Writer) -> bool:
    """A value combined with itself in another order, again and again."""
    shape = w.choose([s for s in w.book.shapes if s] or [()])
    if not shape or w.pure:
        return False
    dtype = w.choose((*INTEGERS, FP32))
    x, axis = started(w, dtype, shape), w.below(len(shape))
    n = prod(shape)
    subscript = ", ".join([":"] * axis + ["::-1"] + [":"] * (len(shape) - axis - 1))
    moved = [f"tl.flip({x}, {axis})", f"{x}[{subscript}]", f"{x}.reshape({n})[::-1].reshape{shape}"]
    if len(shape) == 1:
        moved += [f"tl.gather({x}, {n - 1} - tl.arange(0, {n}), 0)"]
    if len(shape) == 2:
        moved += [f"{x}.reshape{shape[::-1]}.T", f"{x}.T.reshape{shape}"]
        if shape[0] == shape[1]:
            moved += [f"{x}.T"]
    if shape[-1] % 2 == 0 and n > 2:
        half = (*shape[:-1], shape[-1] // 2)
        pairs = f"{x}.reshape{(*half, 2)}"
        moved += [f"tl.interleave(tl.split({pairs})[1], tl.split({pairs})[0])"]
    fixed = w.one_in(2) and w.choose(moved)
    factor = w.random.randint(2, 9)

    def step(_: int | str) -> list[str]:
        by = fixed or w.choose(moved)
        return [f"{x} = {x} * {factor} {w.choose('+-') if not fixed else '+'} {by}"]

    repeat(w, w.choose((2, 3, 4, 6, 14)), step, uniform=bool(fixed))
    return True
