"""Loads, stores, atomics, and blocks of memory.

Of each array the first `READABLE` elements are for all programs to load from, and none stores
there. What follows are the programs' own regions, of `SLOTS` slots each. A slot is stored to, or
is the object of an atomic, by one statement. What it holds is read behind a barrier.
"""

from __future__ import annotations

from math import prod

from tests.fuzz.programs.kinds import INTEGERS, NUMBERS, Kind, Shape, Value, text_of, tl
from tests.fuzz.programs.masks import mask as mask_of
from tests.fuzz.programs.writer import Array, Writer, expression, mark, statement
from tilewright.ir.types import FP8E4B15, FP32, FP64, I1, I32, I64, U32, U64, DType

READABLE = 4096
SLOTS = 12
MAX_DESCRIPTOR_RANK = 5
LARGEST_STRIDE = 42  # of the strides that are arguments
COUNTERS = 64  # elements of an array for atomics that all programs share

HINTS = ("", "", "", ', cache_modifier=".cg"', ', eviction_policy="evict_last"', ", volatile=True")


def region(w: Writer) -> int:
    """Elements of each array that a program may write."""
    return SLOTS * w.book.largest


def length(w: Writer, programs: int) -> int:
    return READABLE + programs * region(w)


@expression(8)
def load(w: Writer, shape: Shape, depth: int) -> Value | None:
    """From the part that all programs read."""
    if w.pure or prod(shape) > w.book.largest:
        return None
    array = w.choose(w.arrays)
    masked = w.one_in(2)
    offsets = readable(w, shape, depth)
    hint = w.choose(HINTS)
    if not masked:
        return Value(f"tl.load({array.name} + {offsets}{hint})", array.dtype)
    mask = mask_of(w, shape, depth) if w.one_in(2) else f"({w.offsets(shape)} < {bound(w)})"
    other = w.typed(array.dtype, shape if w.one_in(2) else (), 0)
    if not array.dtype.is_fp8() and w.one_in(2):
        other = text_of(w.constant(array.dtype))
    return Value(f"tl.load({array.name} + {offsets}, mask={mask}, other={other}{hint})",
                 array.dtype)  # fmt: skip


def bound(w: Writer) -> str:
    return str(w.below(40)) if w.one_in(2) else w.typed(I32, (), 0)


def readable(w: Writer, shape: Shape, depth: int) -> str:
    """Offsets of what all programs may read."""
    if not shape:
        return w.index((), READABLE, depth)
    if w.one_in(3):
        return w.index(shape, READABLE, depth)
    start = str(w.below(READABLE // 2)) if w.one_in(2) else w.index((), READABLE // 2, 0)
    fits = len(shape) == 2 and LARGEST_STRIDE * max(shape) + sum(shape) < READABLE
    if fits and w.one_in(3) and w.is_kernel:
        return _strided(w, shape)
    if fits and w.one_in(2):
        rows, columns = shape
        return (f"({start} + tl.arange(0, {rows})[:, None] * {w.choose((1, columns, 16))}"
                f" + tl.arange(0, {columns}) * {w.choose((1, 1, 2, rows))})")  # fmt: skip
    if w.one_in(4):
        return _hinted(w, shape)
    return f"({start} + {w.offsets(shape)})"


def _hinted(w: Writer, shape: Shape) -> str:
    """Places that begin at a multiple of 16, with promises about them that hold."""
    mark(w, "promises about places")
    start = f"tl.multiple_of(({w.index((), READABLE // 32, 0)}) * 16, {w.choose((4, 8, 16))})"
    places = f"{start} + {w.offsets(shape)}"
    last = shape[-1]
    run = last & -last
    if len(shape) == 1 and w.one_in(2):
        return f"tl.max_contiguous(tl.multiple_of({places}, {min(run, 16)}), {run})"
    return f"({places})"


def _strided(w: Writer, shape: Shape) -> str:
    """Places in a matrix whose strides are arguments, as authors write them."""
    rows, columns = (f"tl.arange(0, {n})" for n in shape)
    stride = w.choose(("n", "n", "(n + 1)", "17"))
    if w.one_in(3):
        rows = f"({shape[0] - 1} - {rows})"
    if w.one_in(4):
        columns = f"(({columns} + program) % {w.choose(('n', '5', '8'))})"
    if w.one_in(4):
        rows = f"({rows} + program)"
    wide = w.choose(("", "", ".to(tl.int64)"))
    if w.one_in(3):
        return f"(({rows})[:, None]{wide} * one + ({columns})[None, :] * {stride})"
    return f"(({rows})[:, None]{wide} * {stride} + ({columns})[None, :] * one)"


def scattered(w: Writer, shape: Shape) -> str:
    """Places in a slot, each for one element: rows, columns, every other, any order."""
    count, room = prod(shape), w.book.largest
    places = w.offsets(shape)
    options = [places] * 4
    if len(shape) == 2:
        rows, columns = (f"tl.arange(0, {n})" for n in shape)
        options += [f"({columns}[None, :] * {shape[0]} + {rows}[:, None])"] * 2
        options += [f"({rows}[:, None] * {shape[1]} + {shape[1] - 1} - {columns}[None, :])"]
        if 2 * count <= room:
            options += [f"({rows}[:, None] * {2 * shape[1]} + {columns}[None, :])"]
    options += [f"({count - 1} - {places})"]
    if 2 * count <= room:
        options += [f"({places} * 2)", f"({places} * 2 + 1)", f"({places} + {places} // 4 * 2)"]
    if count & (count - 1) == 0:
        odd = 2 * w.below(8) + 1
        options += [f"(({places} * {odd}) & {count - 1})", f"({places} ^ {w.below(count)})"]
        options += [f"(({places} + n) & {count - 1})"]
    found = w.choose(options)
    if found != places:
        mark(w, "store: not row by row")
    return found


# -- a program's own slots --------------------------------------------------------------------


def own(w: Writer, array: Array) -> str | None:
    """The address of a slot that nothing has touched yet."""
    if array.slot >= SLOTS:
        return None
    array.slot += 1
    return slot_of(w, array, array.slot - 1)


def slot_of(w: Writer, array: Array, slot: int) -> str:
    """The address of a slot, by one of the arguments that reach it."""
    if array.alias and w.one_in(2):
        return f"{array.alias} + own + {slot * w.book.largest - array.shift}"
    return f"{array.name} + own + {slot * w.book.largest}"


def guarded(w: Writer, text: str) -> None:
    """A statement that touches a slot: in a loop again and again, by threads that may differ."""
    if w.loops:
        w.emit("tl.debug_barrier()")
    w.emit(text)


def save(w: Writer, text: str, kind: Kind, *, mask: str = "") -> bool:
    """Store a value where nothing else is stored, if there is room."""
    same = [a for a in w.book.arrays if a.dtype is kind.dtype and a.slot < SLOTS]
    free = [a for a in w.book.arrays if a.slot < SLOTS]
    if not free or prod(kind.shape) > w.book.largest:
        return False
    array = w.choose(same or free)
    place = own(w, array)
    assert place is not None
    if array.dtype.is_fp8() or kind.dtype.is_fp8():
        text = w.cast(Value(text, kind.dtype), array.dtype)
    pointer = f"{place} + {scattered(w, kind.shape)}" if kind.shape else place
    guarded(w, f"tl.store({pointer}, {text}{mask})")
    return True


@statement(4)
def store(w: Writer) -> bool:
    if not w.is_kernel:
        return False
    shape = w.shape()
    value = w.value(shape)
    mask = f", mask={mask_of(w, shape)}" if w.one_in(3) else ""
    return save(w, value.text, Kind(value.dtype, shape), mask=mask)


@statement(1)
def reload(w: Writer) -> bool:
    """What was stored is loaded, by other threads maybe."""
    if not w.is_kernel:
        return False
    used = [a for a in w.book.arrays if a.slot]
    if not used:
        return False
    array = w.choose(used)
    shape = w.shape()
    place = slot_of(w, array, w.below(array.slot))
    index = w.offsets(shape)
    if w.one_in(2) or prod(shape) > w.book.largest:
        index = w.index(shape, w.book.largest, 1)
    w.emit("tl.debug_barrier()")
    w.emit(f"{w.define(Kind(array.dtype, shape))} = tl.load({place} + {index})")
    return True


@statement(2)
def in_place(w: Writer) -> bool:
    """A loop that changes some slots in place, by a pointer that it moves on."""
    if not w.is_kernel or w.loops:
        return False
    shape = w.choose([s for s in w.book.shapes if s])
    count = w.random.randint(1, 3)
    fit = [a for a in w.book.arrays if a.slot + count <= SLOTS and a.dtype in NUMBERS]
    if not fit:
        return False
    array = w.choose(fit)
    pointer, value = w.book.name("p"), w.book.name("t")
    w.emit("tl.debug_barrier()")
    w.emit(f"{pointer} = {slot_of(w, array, array.slot)} + {w.offsets(shape)}")
    array.slot += count
    mask = f", mask={w.offsets(shape)} < {bound(w)}" if w.one_in(3) else ""
    if w.one_in(2):  # once before the loop
        _changed(w, array, shape, pointer, value, mask)
    room = count * w.book.largest - prod(shape)
    step = w.choose((w.book.largest, prod(shape), w.random.randint(1, w.book.largest)))
    trips = min(4, room // step + 1)
    w.emit(f"for _ in range({w.choose((trips, w.index((), trips + 1, 0)))}):")
    with w.block():
        _changed(w, array, shape, pointer, value, mask)
        w.emit(f"{pointer} += {step}")
    return True


def _changed(w: Writer, array: Array, shape: Shape, pointer: str, value: str, mask: str) -> None:
    """Load, compute, maybe along an axis, and store at the same place."""
    axis = w.below(len(shape))
    keep = f"axis={axis}, keep_dims=True"
    options = [
        f"{value} + {w.choose((1, 2, 3))}",
        f"tl.flip({value}, {axis})",
        f"tl.where({w.offsets(shape)} < {bound(w)}, {value}, {value} * 2)",
    ]
    if array.dtype in INTEGERS:
        options += [f"tl.cumsum({value}, {axis})", f"{value} ^ tl.sum({value}, {keep})"]
        options += [f"{value} - tl.max({value}, {keep})"]
    w.emit(f"{value} = tl.load({pointer}{mask}{', other=1' if mask else ''})")
    w.emit(f"{value} = ({w.choose(options)}).to({tl(array.dtype)})")
    w.emit("tl.debug_barrier()")
    w.emit(f"tl.store({pointer}, {value}{mask})")
    w.emit("tl.debug_barrier()")


# -- atomics ----------------------------------------------------------------------------------

COUNTED: tuple[tuple[DType, tuple[str, ...]], ...] = (
    (I32, ("add", "min", "max", "and", "or", "xor")),
    (U32, ("add", "min", "max", "and", "or", "xor")),
    (I64, ("add", "min", "max", "and", "or", "xor")),
    (U64, ("add", "min", "max", "and", "or", "xor")),
    (FP32, ("add", "max", "min")),
    (FP64, ("add", "max", "min")),
)
ORDERS = ("", "", ', sem="relaxed"', ', sem="release"', ', sem="acquire", scope="sys"')


@statement(2)
def count(w: Writer) -> bool:
    """An atomic on what all programs share, whose result depends on their order and is dropped."""
    if not w.is_kernel:
        return False
    array, kind = w.choose(w.book.counters)
    shape = w.shape()
    dtype = array.dtype
    value = w.whole(dtype, shape, 1, 1) if dtype.is_floating() else w.typed(dtype, shape, 1)
    mask = f", mask={mask_of(w, shape)}" if w.one_in(3) and shape else ""
    place = w.index(shape, COUNTERS, 1)
    w.emit(f"tl.atomic_{kind}({array.name} + {place}, {value}{mask}{w.choose(ORDERS)})")
    return True


@statement(1)
def exchange(w: Writer) -> bool:
    """An atomic on a slot, of which each element is met once, and the old value."""
    if not w.is_kernel or w.loops:
        return False
    fit = [a for a in w.book.arrays if a.dtype in (I32, I64, U32, U64, FP32, FP64)]
    if not fit:
        return False
    array = w.choose(fit)
    place = own(w, array)
    if place is None:
        return False
    shape = w.shape()
    dtype = array.dtype
    kinds = ["xchg", "cas"] if dtype.is_floating() else ["add", "xor", "xchg", "max", "cas"]
    kind = w.choose(kinds)
    pointer = f"{place} + {w.offsets(shape)}"
    value = w.typed(dtype, shape, 1)
    if kind == "cas":
        if dtype.is_floating():
            return False
        value = f"{w.typed(dtype, shape, 0)}, {value}"
    w.emit(f"{w.define(Kind(dtype, shape))} = tl.atomic_{kind}({pointer}, {value})")
    return True


@statement(1)
def ordered_access(w: Writer) -> bool:
    """An atomic store to a slot, whose elements are then waited for or loaded."""
    if not w.is_kernel or w.loops:
        return False
    fit = [a for a in w.book.arrays if a.dtype in (I32, I64, U32, U64)]
    array = w.choose(fit)
    place = own(w, array)
    if place is None:
        return False
    shape = w.shape()
    pointer = f"{place} + {w.offsets(shape)}"
    text = w.typed(array.dtype, shape, 1)
    value = w.define(Kind(array.dtype, shape))
    w.emit(f"{value} = {text}")
    w.pending.clear()
    order = w.choose(("", ', sem="relaxed"', ', sem="release"'))
    w.emit(f"tl.atomic_store({pointer}, {value}{order})")
    w.emit("tl.debug_barrier()")  # other threads may read it
    order = w.choose(("", ', sem="relaxed"', ', sem="acquire"'))
    if w.one_in(2):
        name = w.define(Kind(array.dtype, shape))
        w.emit(f"{name} = tl.atomic_load({pointer}{order})")
    else:
        name = w.define(Kind(I1, shape))
        w.emit(f"{name} = tl.atomic_poll({pointer}, {value}{order})")
    return True


# -- blocks of memory -----------------------------------------------------------------------------


@expression(2)
def block(w: Writer, shape: Shape, depth: int) -> Value | None:
    """By a block pointer or a descriptor, over the edges too."""
    if w.pure or not shape or prod(shape) > w.book.largest:
        return None
    array = w.choose(w.arrays)
    if array.dtype.is_bool():
        return None
    extents = tuple(min(n + w.below(9), 2 * n) for n in shape)
    if prod(extents) > READABLE or w.one_in(2):
        return _by_descriptor(w, array, shape)
    nan = array.dtype.is_floating() and array.dtype is not FP8E4B15 and w.one_in(2)
    strides = _strides(extents)
    order = tuple(reversed(range(len(shape))))
    if len(shape) == 2 and w.one_in(3):
        strides, order = (1, extents[0]), (0, 1)
    start = w.below(READABLE - prod(extents) + 1)
    at = ", ".join(w.choose((str(w.random.randint(-2, n)), w.index((), 2 * n, 0))) for n in shape)
    checks = tuple(range(len(shape)))
    options = f'boundary_check={checks}, padding_option="{"nan" if nan else "zero"}"'
    base = f"{array.name} + {start}" if start else array.name
    text = f"tl.make_block_ptr({base}, {extents}, {strides}, ({at},), {shape}, {order})"
    if w.one_in(3):
        step = ", ".join(str(w.random.randint(-1, 2)) for _ in shape)
        text = f"tl.advance({text}, ({step},))"
    return Value(f"tl.load({text}, {options})", array.dtype)


def _strides(extents: Shape) -> Shape:
    return tuple(prod(extents[i + 1 :]) for i in range(len(extents)))


def _by_descriptor(w: Writer, array: Array, shape: Shape) -> Value | None:
    bits = array.dtype.primitive_bitwidth
    if shape[-1] * bits < 128 or len(shape) > MAX_DESCRIPTOR_RANK:
        return None
    unit = 128 // bits
    last = -(-shape[-1] // unit) * unit * w.choose((1, 2))
    extents = (*(n + w.below(3) for n in shape[:-1]), last)
    if prod(extents) > READABLE:
        return None
    start = w.below((READABLE - prod(extents)) // unit + 1) * unit
    padding = ""
    if array.dtype.is_floating() and array.dtype is not FP8E4B15 and w.one_in(2):
        padding = ', padding_option="nan"'
    shown = [*extents[:-1], last - w.below(min(4, last))]
    text = (f"tl.make_tensor_descriptor({array.name} + {start}, {shown}, "
            f"{list(_strides(extents))}, {list(shape)}{padding})")  # fmt: skip
    at = ", ".join(w.choose((str(w.random.randint(-2, n)), w.index((), 2 * n, 0))) for n in shape)
    if w.one_in(3):
        return Value(f"tl.load_tensor_descriptor({text}, [{at}])", array.dtype)
    return Value(f"{text}.load([{at}])", array.dtype)


@statement(1)
def store_block(w: Writer) -> bool:
    """Into a slot, over its edges too."""
    if not w.is_kernel:
        return False
    shape = w.choose([s for s in w.book.shapes if s])
    free = [a for a in w.book.arrays if a.slot < SLOTS and not a.dtype.is_bool()]
    if not free:
        return False
    array = w.choose(free)
    bits = array.dtype.primitive_bitwidth
    extents = list(shape)
    described = len(shape) <= MAX_DESCRIPTOR_RANK and shape[-1] * bits % 128 == 0
    if described and w.one_in(2):
        place = own(w, array)
        text = w.typed(array.dtype, shape)
        at = [w.random.randint(-1, 1) for _ in shape]
        strides = list(_strides(tuple(extents)))
        guarded(w, f"tl.make_tensor_descriptor({place}, {extents}, {strides}, {list(shape)})"
                   f".store({at}, {text})")  # fmt: skip
    else:
        place = own(w, array)
        text = w.typed(array.dtype, shape)
        at = tuple(w.random.randint(-1, 1) for _ in shape)
        order = tuple(reversed(range(len(shape))))
        guarded(w, f"tl.store(tl.make_block_ptr({place}, {tuple(extents)}, "
                   f"{_strides(tuple(extents))}, {at}, {shape}, {order}), {text}, "
                   f"boundary_check={tuple(range(len(shape)))})")  # fmt: skip
    return True
