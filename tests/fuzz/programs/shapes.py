"""Expressions that move elements, and such that combine them along an axis."""

from __future__ import annotations

from math import prod

from tests.fuzz.programs.combine import combine_of_pair, combining, scanning
from tests.fuzz.programs.kinds import (
    FLOATS,
    FP8,
    INTEGERS,
    NUMBERS,
    Shape,
    Value,
    bf16_widened,
    extremum,
    tl,
    widened,
)
from tests.fuzz.programs.writer import Writer, expression
from tilewright.ir.types import (
    BF16,
    FP8E4NV,
    FP8E5,
    FP16,
    FP32,
    FP64,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U32,
)

EXTENTS = (2, 4, 8, 16)


def extent(w: Writer, shape: Shape) -> int | None:
    """An extent for one more axis."""
    room = 2 * w.book.largest // max(1, prod(shape))
    options = [e for e in (*EXTENTS, *((3, 5, 12) if w.is_uneven else ())) if e <= room]
    return w.choose(options) if options else None


def with_axis(w: Writer, shape: Shape) -> tuple[Shape, int] | None:
    """The shape with an axis more, and where that is."""
    size = extent(w, shape)
    if size is None:
        return None
    axis = w.below(len(shape) + 1)
    return (*shape[:axis], size, *shape[axis:]), axis


@expression(3)
def broadcast(w: Writer, shape: Shape, depth: int) -> Value | None:
    if not shape:
        return None
    axis = w.below(len(shape))
    match w.below(4):
        case 0:
            x = w.value((), depth)
            return Value(f"tl.broadcast_to({x.text}, {shape})", x.dtype)
        case 1:
            x = w.value((*shape[:axis], 1, *shape[axis + 1 :]), depth)
            numbers = ", ".join(map(str, shape))
            return Value(f"{x.text}.broadcast_to({numbers})", x.dtype)
        case 2:
            x, y = w.value((*shape[:axis], 1, *shape[axis + 1 :]), depth), w.value(shape, 0)
            return Value(f"tl.broadcast({x.text}, {y.text})[0]", x.dtype)
        case _:
            x = w.value(shape, depth)
            return Value(f"tl.zeros_like({x.text})", x.dtype)


@expression(4)
def reshape(w: Writer, shape: Shape, depth: int) -> Value | None:
    if w.pure or not shape:
        return None
    count = prod(shape)
    if 1 in shape and w.one_in(2):
        axis = shape.index(1)
        x = w.value((*shape[:axis], *shape[axis + 1 :]), depth)
        if len(shape) == 2 and w.one_in(2):
            return Value(f"{x.text}{'[None, :]' if axis == 0 else '[:, None]'}", x.dtype)
        name = w.choose(("expand_dims", "unsqueeze"))
        return Value(f"tl.{name}({x.text}, {axis - w.choose((0, len(shape)))})", x.dtype)
    options = [s for s in w.book.shapes if prod(s) == count and s != shape]
    if not options:
        return None
    x = w.value(w.choose(options), depth)
    if len(shape) == 1 and w.one_in(2):
        return Value(f"{x.text}.ravel()", x.dtype)
    if len(shape) == 1 and w.one_in(4):
        x = w.value((1, *shape), depth)
        return Value(f"tl.squeeze({x.text}, 0)", x.dtype)
    numbers = ", ".join(map(str, shape))
    return Value(w.choose((f"tl.reshape({x.text}, {shape})",
                           f"{x.text}.reshape({numbers})")), x.dtype)  # fmt: skip


@expression(3)
def permute(w: Writer, shape: Shape, depth: int) -> Value | None:
    if len(shape) < 2:
        return None
    if len(shape) == 2:
        x = w.value(shape[::-1], depth)
        return Value(w.choose(("{}.T", "tl.trans({})", "{}.permute(1, 0)")).format(x.text), x.dtype)
    order = w.random.sample(range(len(shape)), len(shape))
    source = [0] * len(shape)
    for to, axis in enumerate(order):
        source[axis] = shape[to]
    x = w.value(tuple(source), depth)
    return Value(f"tl.permute({x.text}, {tuple(order)})", x.dtype)


@expression(4)
def pieces(w: Writer, shape: Shape, depth: int) -> Value | None:
    """Tiles put together, and taken apart."""
    if w.pure:
        return None
    if shape and shape[-1] % 2 == 0 and w.one_in(2):
        half = (*shape[:-1], shape[-1] // 2)
        x = w.value(half, depth)
        y = w.typed(x.dtype, half, depth)
        if shape[-1] == 2:
            return Value(f"tl.join({x.text}, {y})", x.dtype) if half[-1] != 1 else None
        if w.one_in(2):
            return Value(f"tl.interleave({x.text}, {y})", x.dtype)
        return Value(f"tl.cat({x.text}, {y}, dim={w.choose((-1, len(shape) - 1))})", x.dtype)
    if 2 * prod(shape) > 2 * w.book.largest:
        return None
    if w.one_in(3) and shape:
        axis = w.below(len(shape))
        x = w.value(shape, depth)
        return Value(f"tl.flip({x.text}, {axis - w.choose((0, len(shape)))})", x.dtype)
    x = w.value((*shape, 2), depth)
    return Value(f"tl.split({x.text})[{w.below(2)}]", x.dtype)


@expression(3)
def subscript(w: Writer, shape: Shape, depth: int) -> Value | None:
    """A place of an axis, or a part of one."""
    if w.pure:
        return None
    if not shape or w.one_in(2):
        found = with_axis(w, shape)
        if found is None:
            return None
        source, axis = found
        place: str | int = w.random.randint(-source[axis], source[axis] - 1)
        if w.one_in(2):
            place = w.index((), source[axis], depth)
        x = w.value(source, depth)
        return Value(f"{x.text}[{', '.join([':'] * axis + [str(place)])}]", x.dtype)
    axis = w.below(len(shape))
    if 2 * prod(shape) > 2 * w.book.largest:
        return None
    n = shape[axis]
    x = w.value((*shape[:axis], 2 * n, *shape[axis + 1 :]), depth)
    part = w.choose((f"{n}:", f":{n}", "::2", "1::2", f"-{n}:", f"{2 * n - 1}:{n - 1}:-1"))
    before = ", ".join([":"] * axis + [part])
    return Value(f"{x.text}[{before}]" if w.below(4) or axis else f"{x.text}[{part}, ...]", x.dtype)


@expression(2)
def gather(w: Writer, shape: Shape, depth: int) -> Value | None:
    if not shape:
        return None
    axis = w.below(len(shape))
    size = w.choose(EXTENTS)
    source = (*shape[:axis], size, *shape[axis + 1 :])
    if prod(source) > 2 * w.book.largest:
        return None
    x, index = w.value(source, depth), w.index(shape, size, depth)
    if w.one_in(3):
        index = f"{index}.to({tl(w.choose((I8, I16, I64, U8, U32)))})"
    return Value(f"tl.gather({x.text}, {index}, {axis})", x.dtype)


@expression(2)
def sort(w: Writer, shape: Shape, depth: int) -> Value | None:
    if not shape:
        return None
    x = Value("", w.choose((*INTEGERS, FP16, FP32, FP64)))
    text = w.typed(x.dtype, shape, depth)
    if x.dtype.is_floating():
        text = w.whole(x.dtype, shape, 127, depth)
    order = w.choose(("", ", descending=True"))
    if w.one_in(2) or not even(shape[-1]):
        return Value(f"tl.sort({text}{order})", x.dtype)
    k, n = shape[-1], shape[-1] * w.choose((1, 2, 4))
    wide = (*shape[:-1], n)
    if prod(wide) > 2 * w.book.largest:
        return None
    text = w.typed(x.dtype, wide, depth)
    if x.dtype.is_floating():
        text = w.whole(x.dtype, wide, 127, depth)
    order = w.choose(("", ", descending=False"))
    return Value(f"tl.topk({text}, {k}{order})", extremum(x.dtype) if k < n else x.dtype)


def even(n: int) -> bool:
    return n & (n - 1) == 0


@expression(1)
def histogram(w: Writer, shape: Shape, depth: int) -> Value | None:
    if len(shape) != 1:
        return None
    dtype = w.choose((I32, U32))
    count = w.choose((16, 64, 128))
    x = w.typed(dtype, (count,), depth)
    near = f"({x} & {2 * shape[0] - 1})" if even(shape[0]) else f"({x} & 15)"
    mask = f", mask={w.typed(I1, (count,), depth)}" if w.one_in(2) else ""
    return Value(f"tl.histogram({near}, {shape[0]}{mask})", I32)


# -- along an axis ----------------------------------------------------------------------------


def reduced_text(w: Writer, axis: int, rank: int) -> str:
    return str(axis - w.choose((0, 0, rank)))


@expression(5)
def reduction(w: Writer, shape: Shape, depth: int) -> Value | None:
    if w.pure:
        return None
    found = with_axis(w, shape)
    if found is None:
        return None
    source, axis = found
    at = reduced_text(w, axis, len(source))
    match w.below(6):
        case 0:
            return summed(w, source, at, depth)
        case 1:
            x = w.among((*NUMBERS, *FP8), source, depth)
            name = w.choose(("max", "min"))
            # Of zeros of both signs either may come out: there is only one kind.
            text = f"({x.text} + 0.0)" if x.dtype.is_floating() else x.text
            return Value(f"tl.{name}({text}, {at})", extremum(x.dtype))
        case 2:
            return placed(w, source, at, depth)
        case 3:
            x = w.integer(source, depth)
            return Value(f"tl.{w.choose(('xor_sum', 'reduce_or'))}({x.text}, {at})", x.dtype)
        case 4:
            dtype = w.choose(INTEGERS)
            x = w.typed(dtype, source, depth)
            return Value(f"tl.reduce({x}, {at}, {combining(w, dtype)})", dtype)
        case _:
            name, (first, second) = combine_of_pair(w)
            x, y = w.typed(first, source, depth), w.typed(second, source, depth)
            part = w.below(2)
            return Value(f"tl.reduce(({x}, {y}), {at}, {name})[{part}]", (first, second)[part])


def summed(w: Writer, source: Shape, at: str, depth: int) -> Value:
    if w.one_in(2):
        dtype = w.choose(FLOATS)
        return Value(f"tl.sum({w.whole(dtype, source, 1, depth)}, {at})", dtype)
    x = w.among((I1, *INTEGERS), source, depth)
    if w.one_in(4):
        to = w.choose((I16, I32, I64, U32))
        return Value(f"tl.sum({x.text}, {at}, dtype={tl(to)})", to)
    return Value(f"{x.text}.sum({at})", widened(x.dtype))


def placed(w: Writer, source: Shape, at: str, depth: int) -> Value:
    """The place of an extremum, or both; ties go to the first."""
    dtype = w.choose((*INTEGERS, *FLOATS))
    text = w.typed(dtype, source, depth) if dtype.is_int() else w.whole(dtype, source, 7, depth)
    name = w.choose(("max", "min"))
    if w.one_in(2):
        return Value(f"tl.arg{name}({text}, {at})", I32)
    part = w.below(2)
    of_value = bf16_widened(dtype)
    return Value(f"tl.{name}({text}, {at}, return_indices=True)[{part}]", (of_value, I32)[part])


@expression(1)
def everything(w: Writer, shape: Shape, depth: int) -> Value | None:
    """A whole tile reduced to one number."""
    if shape or w.pure:
        return None
    source = w.choose([s for s in w.book.shapes if s])
    x = w.integer(source, depth)
    if w.one_in(2):
        return Value(f"tl.xor_sum({x.text})", x.dtype)
    return Value(f"tl.sum({x.text})", widened(x.dtype))


@expression(4)
def scan(w: Writer, shape: Shape, depth: int) -> Value | None:
    if not shape:
        return None
    axis = w.below(len(shape))
    at = reduced_text(w, axis, len(shape))
    back = w.choose(("", "", ", reverse=True"))
    match w.below(4):
        case 0:
            x = w.among((I1, *INTEGERS), shape, depth)
            return Value(f"tl.cumsum({x.text}, {at}{back})", widened(x.dtype))
        case 1:
            if w.one_in(2):
                dtype = w.choose(FLOATS)
                text = w.whole(dtype, shape, 1, depth)
                return Value(f"tl.cumsum({text}, {at}{back})", bf16_widened(dtype))
            x = w.integer(shape, depth)
            return Value(f"tl.cumprod({x.text}, {at}{back})", x.dtype)
        case 2:
            dtype = w.choose(INTEGERS)
            x = w.typed(dtype, shape, depth)
            return Value(f"tl.associative_scan({x}, {at}, {combining(w, dtype)}{back})", dtype)
        case _:
            name, dtypes = scanning(w)
            parts = ", ".join(w.typed(t, shape, depth) for t in dtypes)
            part = w.below(len(dtypes))
            text = f"tl.associative_scan(({parts},), {at}, {name}{back})[{part}]"
            return Value(text, dtypes[part])


# -- products -------------------------------------------------------------------------------------


@expression(2)
def product(w: Writer, shape: Shape, depth: int) -> Value | None:
    """A product of matrices of small whole numbers, which is exact in any type and order."""
    if len(shape) != 2:
        return None
    m, n = shape
    operands = w.choose((I8, FP16, BF16, FP32, FP64, FP8E4NV, FP8E5))
    k = 32 if operands.primitive_bitwidth == 8 else 16
    if w.is_uneven and w.one_in(2):
        k = w.choose((k + 1, k + 7, 40, 48))  # GPUs reject less than k
    a, b = (w.whole(operands, s, 3, depth) for s in ((m, k), (k, n)))
    dtype = {I8: I32, FP64: FP64}.get(operands, FP32)
    extra = ""
    if operands is FP32:
        extra = w.choose(("", ', input_precision="ieee"', ', input_precision="tf32x3"',
                          ", allow_tf32=True"))  # fmt: skip
    elif operands is FP16 and w.one_in(3):
        extra, dtype = ", out_dtype=tl.float16", FP16
    if w.one_in(2):
        extra = f", acc={w.whole(dtype, shape, 15, depth)}{extra}"
    return Value(f"tl.dot({a}, {b}{extra})", dtype)
