"""Forms of ops that other productions do not draw: packed functions of elements, reductions of
floats by functions, products in batches, kept axes.
"""

from __future__ import annotations

from math import prod

from tests.fuzz.programs.combine import combining, written
from tests.fuzz.programs.kinds import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    Shape,
    Value,
    extremum,
    text_of,
    tl,
    widened,
)
from tests.fuzz.programs.shapes import reduced_text, with_axis
from tests.fuzz.programs.writer import Writer, expression
from tilewright.ir.types import BF16, FP16, FP32, FP64, I1, I8, I32, U8, U16, U32, DType


@expression(2)
def packed_map(w: Writer, shape: Shape, depth: int) -> Value | None:
    """A function of several consecutive elements at once, with several results."""
    pack = w.choose((2, 4))
    if w.pure or not shape or prod(shape) > 64 or prod(shape) % pack:
        return None
    a, b = w.choose(INTEGERS), w.choose(INTEGERS)
    xs, ys = ([f"{name}{i}" for i in range(pack)] for name in "xy")
    first = [f"({w.choose(xs)} {w.choose('+-^|&')} {w.choose(xs)}).to({tl(a)})" for _ in xs]
    second = [f"({w.choose(ys)} * {w.random.randint(1, 5)} + {w.choose(xs)}).to({tl(b)})"
              for _ in ys]  # fmt: skip
    lines = [f"if {xs[0]} > {w.below(4)}:", f"    {ys[0]} = {ys[-1]}"] if w.one_in(2) else []
    name = written(w, w.book.name("group"), ", ".join((*xs, *ys)),
                   [*lines, f"return {', '.join((*first, *second))}"])  # fmt: skip
    x, y = w.typed(a, shape, depth), w.typed(b, shape, depth)
    part = w.below(2)
    return Value(f"tl.map_elementwise({name}, {x}, {y}, pack={pack})[{part}]", (a, b)[part])


@expression(2)
def reduced_floats(w: Writer, shape: Shape, depth: int) -> Value | None:
    """Reductions and scans of numbers of any type by functions, which are exact in any order."""
    if w.pure:
        return None
    is_scan = bool(shape) and w.one_in(2)
    found = (shape, w.below(len(shape))) if is_scan else with_axis(w, shape)
    if found is None:
        return None
    source, axis = found
    at = reduced_text(w, axis, len(source))
    key, first, second = w.choose(FLOATS), w.choose(NUMBERS), w.choose((I1, *NUMBERS))
    if w.one_in(2):
        line = w.choose(("return a if a > b else b", "return tl.where(a < b, a, b)",
                         "return tl.maximum(a, b).to(a.dtype)"))  # fmt: skip
        name = written(w, w.book.name("combine"), "a, b", [line])
        operands, kinds = [w.whole(key, source, 15, depth)], (key,)
    else:
        # the element with the largest key and, of equal keys, the first place
        lines = ["better = (a > d) | ((a == d) & (i < j))",
                 "return (tl.where(better, a, d), tl.where(better, i, j), "
                 "tl.where(better, c, f), tl.where(better, x, y))"]  # fmt: skip
        name = written(w, w.book.name("combine"), "a, i, c, x, d, j, f, y", lines)
        index = w.offsets(source)
        operands = [w.whole(key, source, 3, depth), f"({index} + 0)",
                    w.typed(first, source, depth), w.typed(second, source, depth)]  # fmt: skip
        kinds = key, I32, first, second
    part = w.below(len(kinds))
    operand = operands[0] if len(kinds) == 1 else f"({', '.join(operands)})"
    tail = "" if len(kinds) == 1 else f"[{part}]"
    if is_scan:
        back = w.choose(("", ", reverse=True"))
        return Value(f"tl.associative_scan({operand}, {at}, {name}{back}){tail}", kinds[part])
    return Value(f"tl.reduce({operand}, {at}, {name}){tail}", kinds[part])


@expression(2)
def kept_axis(w: Writer, shape: Shape, depth: int) -> Value | None:
    """A reduction whose axis stays, or of all axes."""
    if w.pure:
        return None
    if 1 not in shape:
        if shape:
            return None
        source = w.choose([s for s in w.book.shapes if s])
        dtype = w.choose((FP16, FP32, FP64, BF16))
        x = w.whole(dtype, source, 1, depth)
        if w.one_in(2):
            return Value(f"tl.max({x})", extremum(dtype))
        return Value(f"tl.sum({w.whole(I32, source, 15, depth)}, axis=None)", I32)
    axis = w.choose([i for i, n in enumerate(shape) if n == 1])
    room = 2 * w.book.largest // prod(shape)
    options = [n for n in (1, 2, 8, 16, *((5,) if w.is_uneven else ())) if n <= room]
    if not options:
        return None
    source = (*shape[:axis], w.choose(options), *shape[axis + 1 :])
    at = reduced_text(w, axis, len(source))
    dtype = w.choose(INTEGERS)
    x = w.typed(dtype, source, depth)
    match w.below(4):
        case 0:
            return Value(f"tl.sum({x}, {at}, keep_dims=True)", widened(dtype))
        case 1:
            return Value(f"tl.min({x}, {at}, keep_dims=True)", extremum(dtype))
        case 2:
            return Value(f"tl.argmax({x}, {at}, keep_dims=True)", I32)
        case _:
            text = f"tl.reduce({x}, {at}, {combining(w, dtype)}, keep_dims=True)"
            return Value(text, dtype)


@expression(1)
def batched_product(w: Writer, shape: Shape, depth: int) -> Value | None:
    """Products of several pairs of matrices, or of operands that are moved or loaded."""
    if len(shape) not in (2, 3) or w.pure:
        return None
    *batch, m, n = shape
    k = w.choose((16, 32))
    operands = w.choose((FP16, BF16, FP32, FP64))
    if prod(batch) * k * max(m, n) > 8 * w.book.largest:
        return None
    a = w.whole(operands, (*batch, m, k), 3, depth)
    order = (*range(len(batch)), len(batch) + 1, len(batch))
    b = f"tl.permute({w.whole(operands, (*batch, n, k), 3, depth)}, {order})"
    dtype = FP64 if operands is FP64 else FP32
    acc = f", {w.whole(dtype, shape, 7, depth)}" if w.one_in(2) else ""
    # A float that is added to a product is its accumulator, and they round in any order.
    return Value(f"tl.dot({a}, {b}{acc}).to(tl.int32).to({tl(dtype)})", dtype)


@expression(1)
def counts(w: Writer, shape: Shape, depth: int) -> Value | None:
    """A histogram of small integers of any type, with few or many bins."""
    if len(shape) != 1:
        return None
    dtype: DType = w.choose((I8, U8, U16, U32, I32))
    x = w.typed(dtype, (w.choose((8, 32, 256)),), depth)
    return Value(f"tl.histogram({x} & {text_of(w.choose((1, 7, 31)))}, {shape[0]})", I32)
