"""Expressions that compute element by element."""

from __future__ import annotations

from tests.fuzz.programs.kinds import (
    ALL,
    FLOATS,
    FP8,
    INTEGERS,
    NUMBERS,
    WIDE,
    Kind,
    Shape,
    Value,
    bf16_widened,
    compared,
    fits,
    promoted,
    text_of,
    tl,
    with_number,
)
from tests.fuzz.programs.writer import Writer, expression
from tilewright.ir.types import BF16, FP8E4B15, FP16, FP32, FP64, I1, I32, I64, U32, U64, DType

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def partner(w: Writer, shape: Shape) -> Shape:
    """A shape that broadcasts to this one."""
    if not shape or w.one_in(2):
        return shape
    if w.one_in(3):
        return ()
    if w.one_in(3):
        return shape[w.below(len(shape)) :]
    axis = w.below(len(shape))
    return (*shape[:axis], 1, *shape[axis + 1 :])


def pair(
    w: Writer,
    shape: Shape,
    depth: int,
    dtypes: tuple[DType, ...] = (),
    division: bool = False,
    comparison: bool = False,
) -> tuple[str, str, DType] | None:
    """Two operands whose common shape this is, and the type of an operation on them.

    Args:
        division, comparison: whether the operation is a division, or a comparison or an extremum.
    """
    a = w.among(dtypes, shape, depth) if dtypes else w.value(shape, depth)
    if w.one_in(3):  # a number
        number = named_number(w) if w.one_in(3) else None
        name, value = number or ("", w.constant(w.choose((a.dtype, a.dtype, I32, FP32))))
        if division and value == 0:
            return None
        if comparison:
            dtype = compared(a.dtype, value)
        else:
            dtype = with_number(a.dtype, value, division=division)
            if dtype is None or not fits(value, dtype):
                return None
        if dtypes and dtype not in dtypes:
            return None
        text = name or text_of(value)
        return (a.text, text, dtype) if w.below(3) else (text, a.text, dtype)
    other = partner(w, shape)
    b = w.among(dtypes, other, depth) if dtypes else w.value(other, depth)
    dtype = promoted(a.dtype, b.dtype, division=division)
    if dtype is None:
        b = Value(w.cast(b, a.dtype), a.dtype)
        dtype = promoted(a.dtype, a.dtype, division=division)
        assert dtype is not None
    return (a.text, b.text, dtype) if w.one_in(2) else (b.text, a.text, dtype)


def named_number(w: Writer) -> tuple[str, int | float | bool] | None:
    found = w.numbers()
    if not found:
        return None
    name, number = w.choose(found)
    return name, number.value


@expression(8)
def arithmetic(w: Writer, shape: Shape, depth: int) -> Value | None:
    """``+ - *`` of any two types."""
    found = pair(w, shape, depth)
    if found is None:
        return None
    a, b, dtype = found
    if w.one_in(8):
        return Value(f"tl.{w.choose(('add', 'sub', 'mul'))}({a}, {b})", dtype)
    return Value(f"({a} {w.choose('+-*')} {b})", dtype)


@expression(5)
def bits(w: Writer, shape: Shape, depth: int) -> Value | None:
    """``& | ^`` of integers and truth values."""
    found = pair(w, shape, depth, (*INTEGERS, I1))
    if found is None:
        return None
    a, b, dtype = found
    return Value(f"({a} {w.choose('&|^')} {b})", dtype)


@expression(2)
def shift(w: Writer, shape: Shape, depth: int) -> Value | None:
    a = w.integer(shape, depth)
    sign = w.choose(("<<", ">>"))
    if w.one_in(2):
        return Value(f"({a.text} {sign} {w.below(a.dtype.primitive_bitwidth)})", a.dtype)
    b = w.integer(partner(w, shape), depth)
    dtype = promoted(a.dtype, b.dtype)
    assert dtype is not None
    return Value(f"({a.text} {sign} {b.text})", dtype)


@expression(2)
def division(w: Writer, shape: Shape, depth: int) -> Value | None:
    """``//`` and ``%`` of integers, by zero too; ``%`` of floats."""
    if w.one_in(3):
        found = pair(w, shape, depth, (*FLOATS, *FP8), division=True)
        return found and Value(f"({found[0]} % {found[1]})", found[2])
    found = pair(w, shape, depth, INTEGERS, division=True)
    if found is None:
        return None
    return Value(f"({found[0]} {w.choose(('//', '%'))} {found[1]})", found[2])


@expression(3)
def comparison(w: Writer, shape: Shape, depth: int) -> Value | None:
    found = pair(w, shape, depth, comparison=True)
    if found is None:
        return None
    a, b, _ = found
    if w.one_in(4):
        third = w.value(shape, 0)
        if promoted(third.dtype, found[2]) and not third.dtype.is_fp8():
            last = w.typed(w.choose((I32, FP32)), shape, 0)
            middle = w.typed(I32, shape, depth)
            first = w.typed(I32, partner(w, shape), 0)
            text = f"({first} {w.choose(COMPARISONS)} {middle} {w.choose(COMPARISONS)} {last})"
            # of tiles `and` warns, which is what a chain of comparisons is
            return Value(text, I1) if not shape else None
    return Value(f"({a} {w.choose(COMPARISONS)} {b})", I1)


@expression(3)
def extremum(w: Writer, shape: Shape, depth: int) -> Value | None:
    # Of fp16 and bf16 the result is fp32, as bf16 is widened first: not what `pair` says of them.
    other = w.choose((FP16, BF16))
    dtypes = tuple(t for t in (*NUMBERS, *FP8) if t is not other)
    found = pair(w, shape, depth, dtypes, comparison=True)
    if found is None:
        return None
    a, b, dtype = found[0], found[1], bf16_widened(found[2])
    nan = w.choose(("", "", ", propagate_nan=tl.PropagateNan.ALL"))
    if w.one_in(6) and not shape:
        return Value(f"{w.choose(('min', 'max'))}({a}, {b})", dtype)
    return Value(f"tl.{w.choose(('minimum', 'maximum'))}({a}, {b}{nan})", dtype)


@expression(1)
def clamp(w: Writer, shape: Shape, depth: int) -> Value | None:
    x = w.among(NUMBERS, shape, depth)
    low = w.random.randint(0, 5)
    dtype = bf16_widened(compared(x.dtype, low))
    return Value(f"tl.clamp({x.text}, {low}, {low + w.below(90)})", dtype)


@expression(4)
def where(w: Writer, shape: Shape, depth: int) -> Value | None:
    found = pair(w, shape, depth)
    if found is None:
        return None
    a, b, dtype = found
    return Value(f"tl.where({w.typed(I1, partner(w, shape), depth)}, {a}, {b})", dtype)


@expression(2)
def fused(w: Writer, shape: Shape, depth: int) -> Value | None:
    dtype = w.choose(FLOATS)
    a, b, c = (w.typed(dtype, s, depth) for s in (shape, partner(w, shape), partner(w, shape)))
    return Value(f"tl.fma({a}, {b}, {c})", dtype)


@expression(4)
def unary(w: Writer, shape: Shape, depth: int) -> Value | None:
    x = w.value(shape, depth)
    if x.dtype.is_bool():
        return Value(f"(~{x.text})", I1)
    options = ["(-{})", "tl.abs({})"]
    if x.dtype.is_int():
        options += ["(~{})", "(~{})"]
    if x.dtype in (FP32, FP64):
        options += ["tl.floor({})", "tl.ceil({})", "libdevice.trunc({})", "libdevice.rint({})"]
    return Value(w.choose(options).format(x.text), x.dtype)


@expression(3)
def rounded(w: Writer, shape: Shape, depth: int) -> Value | None:
    """Functions that every target rounds correctly."""
    match w.below(5):
        case 0:
            x = w.typed(FP32, shape, depth)
            return Value(f"tl.sqrt_rn({x})", FP32)
        case 1:
            x, y = w.typed(FP32, shape, depth), w.typed(FP32, partner(w, shape), depth)
            return Value(f"tl.div_rn({x}, {y})", FP32)
        case 2:
            found = pair(w, shape, depth, WIDE)
            return found and Value(f"tl.umulhi({found[0]}, {found[1]})", found[2])
        case 3:
            x = w.among((I32, I64), shape, depth)
            name = w.choose(("clz", "popc", "ffs"))
            return Value(f"libdevice.{name}({x.text})", I32)
        case _:
            x = w.integer(shape, depth)
            return Value(f"tl.cdiv({x.text}, {w.random.randint(1, 9)})", x.dtype)


@expression(2)
def quantised(w: Writer, shape: Shape, depth: int) -> Value | None:
    """Functions that targets round differently, on arguments with an exact result."""
    k = w.whole(FP32, shape, w.choose((7, 15, 63)), depth)
    text = w.choose((
        "tl.floor(tl.exp2({}) + 0.5)" if "& 63" not in k else "(tl.exp2({} * 0.25) >= 1.0)",
        "tl.floor(tl.log2({} + 1.0) + 0.001)",
        "tl.floor(tl.sqrt({}) + 0.001)",
        "tl.floor(({} / 3.0) + 0.001)",
        "tl.floor(tl.exp(tl.log({} + 1.0)) + 0.5)",
        "(tl.sigmoid({}) >= 0.49)",
        "(tl.erf({}) < 1.01)",
        "(tl.cos({}) < 1.01)",
        "tl.ceil(tl.rsqrt({} + 1.0) - 0.001)",
        "(tl.sin({}) < 1.01)",
        "(libdevice.tanh({}) < 1.01)",
        "tl.floor(libdevice.log10({} + 1.0) + 0.001)",
        "tl.floor(libdevice.log1p({}) + 0.001)",
        "(libdevice.expm1({}) >= -0.01)",
    ))  # fmt: skip
    return Value(text.format(k), I1 if text[0] == "(" else FP32)


@expression(5)
def conversion(w: Writer, shape: Shape, depth: int) -> Value | None:
    x = w.value(shape, depth)
    dtype = w.choose(ALL)
    narrower = (
        x.dtype.is_floating()
        and dtype.is_floating()
        and dtype.primitive_bitwidth < x.dtype.primitive_bitwidth
        and FP8E4B15 not in (x.dtype, dtype)
    )
    if narrower and w.one_in(2):
        mode = w.choose(("rtne", "rtz"))
        return Value(f'{x.text}.to({tl(dtype)}, fp_downcast_rounding="{mode}")', dtype)
    return Value(w.cast(x, dtype), dtype)


@expression(2)
def bit_pattern(w: Writer, shape: Shape, depth: int) -> Value | None:
    """Bits taken as another type. Not those of a float that may be NaN: its bits are no value."""
    x = w.integer(shape, depth)
    bits = x.dtype.primitive_bitwidth
    if w.one_in(3):
        dtype = w.choose((FP16, FP32, FP64))
        whole = w.whole(dtype, shape, 15, depth)
        to = {16: "tl.int16", 32: "tl.uint32", 64: "tl.int64"}[dtype.primitive_bitwidth]
        found = {t.python_name: t for t in INTEGERS}[to[3:]]
        return Value(f"{whole}.to({to}, bitcast=True)", found)
    options = [t for t in ALL if t.primitive_bitwidth == bits and t is not x.dtype]
    dtype = w.choose(options)
    return Value(f"{x.text}.to({tl(dtype)}, bitcast=True)", dtype)


@expression(2)
def logic(w: Writer, shape: Shape, depth: int) -> Value | None:
    a, b = w.typed(I1, shape, depth), w.typed(I1, shape, depth)
    if shape:
        return Value(f"{a}.logical_{w.choose(('and', 'or'))}({b})", I1)
    if w.one_in(3):
        return Value(f"(not {a})", I1)
    # Not a literal that decides, which would be the value: a Python bool, known at compile time.
    third = w.choose((" and True", " or False", f" {w.choose(('and', 'or'))} {w.condition(0)}"))
    return Value(f"({a} {w.choose(('and', 'or'))} {b}{third if w.one_in(3) else ''})", I1)


@expression(2)
def choice(w: Writer, shape: Shape, depth: int) -> Value | None:
    """``a if c else b``, of which one side runs."""
    bind, w.bind = w.bind, False  # what one side binds is not there after it
    a = w.value(shape, depth)
    b = w.typed(a.dtype, shape, depth)
    test = w.condition(depth)
    w.bind = bind
    number = named_number(w)
    if number is not None and w.one_in(4):
        limit = w.below(9)
        taken = a if number[1] > limit else w.value(shape, 0)
        other = Value("undefined_name", I1)
        first, second = (taken, other) if number[1] > limit else (other, taken)
        return Value(f"({first.text} if {number[0]} > {limit} else {second.text})", taken.dtype)
    return Value(f"({a.text} if {test} else {b})", a.dtype)


@expression(2)
def named(w: Writer, shape: Shape, depth: int) -> Value | None:
    """``(v := x)``: a name that can be used from the next statement on."""
    if not w.bind:
        return None
    x = w.value(shape, depth)
    later = w.book.name("v")
    w.pending[later] = Kind(x.dtype, shape)
    return Value(f"({later} := {x.text})", x.dtype)


@expression(1)
def random_numbers(w: Writer, shape: Shape, depth: int) -> Value | None:
    seed = w.typed(w.choose((I32, I64, U64)), (), 0)
    offset = w.among((I32, U32, I64), shape, depth)
    rounds = w.choose(("", "", f", {w.random.randint(1, 6)}"))
    match w.below(6):
        case 4:
            words = ", ".join(w.typed(U32, shape, 0) for _ in range(4))
            return Value(f"tl.philox({seed}, {words}{rounds})[{w.below(4)}]", U32)
        case 5:
            i, j = (w.index(shape, limit, depth) for limit in (16, 8))
            part, group = w.below(2), w.random.randint(1, 5)
            return Value(f"tl.swizzle2d({i}, {j}, 16, 8, {group})[{part}]", I32)
        case 0:
            return Value(f"tl.rand({seed}, {offset.text}{rounds})", FP32)
        case 1:
            return Value(f"tl.randint4x({seed}, {offset.text}{rounds})[{w.below(4)}]", U32)
        case _:
            return Value(f"tl.randint({seed}, {offset.text}{rounds})", U32)
