"""Statements: names, control flow, values of several parts."""

from __future__ import annotations

from tests.fuzz.programs.functions import call, helper, returned
from tests.fuzz.programs.kinds import (
    ALL,
    INTEGERS,
    NUMBERS,
    Kind,
    Number,
    Parts,
    Shape,
    Thing,
    Value,
    promoted,
    text_of,
    tl,
    with_number,
)
from tests.fuzz.programs.writer import Writer, expression, mark, statement
from tilewright.ir.types import I1, I32, DType

DEEPEST = 3  # blocks in blocks


# -- names ----------------------------------------------------------------------------------------


@statement(14)
def assign(w: Writer) -> bool:
    """A new name, and mostly what its type must be."""
    shape = w.shape()
    w.bind = w.one_in(2)
    value = w.value(shape)
    w.bind = False
    return named(w, value, shape)


def named(w: Writer, value: Value, shape: Shape) -> bool:
    name = w.define(Kind(value.dtype, shape))
    note = w.choose(("", "", "", f": {tl(value.dtype)}", ": 'a value'"))
    w.emit(f"{name}{note} = {value.text}")
    if w.one_in(2):
        known = f"{name}.dtype == {tl(value.dtype)}"
        w.emit(f"tl.static_assert({known} and {name}.shape == {shape}, f\"{{{name}.dtype}}\")"
               if w.one_in(2) else f"tl.static_assert({known})")  # fmt: skip
    return True


@statement(4)
def assign_again(w: Writer) -> bool:
    """Another value of the same kind: loops carry it, branches join it."""
    found = w.mutable()
    if not found:
        return False
    name, thing = w.choose(found[-10:])
    if isinstance(thing, Parts):
        w.emit(f"{name} = {parts_of(w, thing)}")
        return True
    assert isinstance(thing, Kind)
    if w.one_in(3) and not thing.dtype.is_fp8():
        options = "+*-" if not thing.dtype.is_bool() else "&|^"
        other = w.of(thing, 2)
        w.emit(f"{name} {w.choose(options)}= {other}")
        return True
    text = w.of(thing, 2)
    w.emit(f"{name} = {text}")
    return True


@statement(1)
def number(w: Writer) -> bool:
    """A number with a name: a tensor, or one known at compile time if it says so."""
    value = w.choose((0, 1, 3, 7, 16, -5, 2.5, True, 2**31, 300, 1 << 40))
    if w.one_in(2) or w.unrolled or (w.loops and w.one_in(2)):
        kind = Kind(natural_of(value))
        w.emit(f"{w.define(kind)} = {text_of(value)}")
        return True
    name = w.define(Number(value), "C")
    w.emit(f"{name}: tl.constexpr = {text_of(value)}")
    return True


def natural_of(value: int | float | bool) -> DType:
    made = with_number(I1, value)
    assert made is not None
    return made


@statement(2)
def swap(w: Writer) -> bool:
    """Two names of one kind for each other's values."""
    kinds = [(n, t) for n, t in w.mutable() if isinstance(t, Kind)]
    pairs = [(a, b) for i, (a, x) in enumerate(kinds) for b, y in kinds[:i] if x == y]
    if not pairs:
        return False
    a, b = w.choose(pairs)
    w.emit(f"{a}, {b} = {b}, {a}")
    return True


# -- several parts --------------------------------------------------------------------------------


def parts_of(w: Writer, parts: Parts) -> str:
    """An expression that makes such a value."""
    texts = [w.of(k, 1) for k in parts.kinds]
    if not parts.made_by:
        return f"({', '.join(texts)},)"
    if w.one_in(3):
        named = [f"{f}={t}" for f, t in zip(parts.fields, texts, strict=True)]
        w.random.shuffle(named)
        return f"{parts.made_by}({', '.join(named)})"
    return f"{parts.made_by}({', '.join(texts)})"


@statement(3)
def several(w: Writer) -> bool:
    """A tuple, a named tuple, an aggregate."""
    kinds = tuple(Kind(w.choose(ALL), w.shape()) for _ in range(w.below(3) + 1))
    parts = Parts(kinds)
    if w.below(3):
        first, second = Kind(w.choose(ALL), w.shape()), Kind(w.choose(ALL), w.shape())
        made = w.choose(("Pair", "Both"))
        parts = Parts((first, second), made, ("x", "y"), made == "Pair")
    text = parts_of(w, parts)
    w.emit(f"{w.define(parts)} = {text}")
    return True


@expression(3)
def part(w: Writer, shape: Shape, depth: int) -> Value | None:
    found: list[Value] = []
    for name, thing in w.things():
        if not isinstance(thing, Parts):
            continue
        for i, kind in enumerate(thing.kinds):
            if kind.shape == shape:
                found.append(Value(part_text(w, name, thing, i), kind.dtype))
    return w.choose(found) if found else None


def part_text(w: Writer, name: str, thing: Parts, i: int) -> str:
    if not thing.is_tuple:
        method = w.choose((".x", ".first()")) if i == 0 else w.choose((".y", ".second()"))
        return w.choose((name, name, f"{name}.swapped().swapped()")) + method
    if thing.fields and w.one_in(2):
        return f"{name}.{thing.fields[i]}"
    return f"{name}[{i - w.choose((0, len(thing.kinds)))}]"


@statement(2)
def taken_apart(w: Writer) -> bool:
    found = [(n, t) for n, t in w.things() if isinstance(t, Parts) and t.is_tuple]
    if not found or w.one_in(3):
        results = tuple(Kind(w.choose(ALL), w.shape()) for _ in range(2))
        made = helper(w, results)
        if made is None:
            return False
        text = call(w, made, 1)
        names = [w.define(k) for k in results]
        w.emit(f"{', '.join(names)} = {text}")
        return True
    source, parts = w.choose(found)
    names = [w.define(k) for k in parts.kinds]
    left = ", ".join(names) + ("," if len(names) == 1 else "")
    w.emit(f"{left} = {source}" if w.one_in(2) else f"({left}) = {source}")
    return True


@expression(1)
def comprehension(w: Writer, shape: Shape, depth: int) -> Value | None:
    """A part of ``[f(x) for x in (…)]``."""
    bind, w.bind = w.bind, False  # which Python forbids here
    values = [w.value(shape, depth) for _ in range(w.below(2) + 2)]
    w.bind = bind
    each = w.book.name("e")
    by = w.random.randint(1, 5)
    part = w.below(len(values))
    dtype = with_number(values[part].dtype, by)
    others = [with_number(v.dtype, by) for v in values]
    if dtype is None or None in others:
        return None
    items = ", ".join(v.text for v in values)
    return Value(f"[{each} * {by} for {each} in ({items})][{part}]", dtype)


# -- control --------------------------------------------------------------------------------------


@statement(5)
def branch(w: Writer) -> bool:
    """``if`` with a condition of the run time, with names that both sides make."""
    if w.nested >= DEEPEST:
        return False
    test = w.condition(2)
    if w.one_in(5):
        test = w.among(INTEGERS, (), 1).text
    new = Kind(w.choose(ALL), w.shape()) if w.one_in(3) else None
    name = w.book.name("v")
    if new is not None and w.one_in(3):
        mark(w, "branch: none before")
        w.emit(f"{name} = None")
    w.emit(f"if {test}:")
    _side(w, name, new)
    if w.one_in(3):
        test = w.condition(1)
        w.pending.clear()
        w.emit(f"elif {test}:")
        _side(w, name, new)
    if new is not None or w.one_in(2):
        w.emit("else:")
        _side(w, name, new)
    if new is not None:
        w.scopes[-1][name] = new
    return True


def _side(w: Writer, name: str, new: Kind | None) -> None:
    with w.block():
        w.statements(w.random.randint(1, 3))
        if new is not None:
            text = w.of(new, 2)
            w.emit(f"{name} = {text}")
        elif w.loops and w.leave and w.one_in(4):
            w.emit(w.choose(("break", "continue")))
        elif w.returns is not None and w.one_in(5):
            returned(w)


@statement(2)
def known_branch(w: Writer) -> bool:
    """``if`` that is decided at compile time; what is not taken need not make sense."""
    found = w.numbers()
    if not found or w.nested >= DEEPEST:
        return False
    name, number = w.choose(found)
    limit = w.random.randint(-2, 20)
    taken = number.value > limit
    w.emit(f"if {name} > {limit}:")
    with w.block():
        w.statements(2) if taken else w.emit('nonsense = undefined_name + "text"')
    if w.one_in(2):
        w.emit("else:")
        with w.block():
            w.statements(2) if not taken else w.emit("tl.static_assert(False)")
    return True


def _trips(w: Writer) -> str:
    """Arguments of a range with few trips."""
    last = w.index((), 4, 1)
    start = w.random.randint(-2, 2)
    return w.choose((
        last, last, f"{w.below(4)}", f"{start}, {start + 3}", f"0, {last}, 2",
        f"{last}, -1, -1", f"{start}, {start} + {last}", f"0, 9, {last} + 3",
    ))  # fmt: skip


@statement(4)
def loop(w: Writer) -> bool:
    if w.loops >= 2 or w.nested >= DEEPEST:
        return False
    index = w.book.name("i")
    trips = _trips(w)
    unrolled = w.one_in(4) and not w.pure
    if unrolled:
        count = w.random.randint(1, 3)
        w.emit(f"for {index} in tl.static_range({count}):")
    elif w.one_in(3):
        hint = w.choose(
            (", num_stages=2", ", num_stages=4", ", loop_unroll_factor=2", ", flatten=True")
        )
        if trips.count(",") < 2:
            hint = f", step=1{hint}" if "," in trips else hint
        w.emit(f"for {index} in tl.range({trips}{hint}):")
    else:
        w.emit(f"for {index} in range({trips}):")
    thing: Thing = Number(0) if unrolled else Kind(I32)
    _body(w, {} if unrolled else {index: thing}, unrolled=unrolled, first=index)
    return True


def _body(w: Writer, names: dict[str, Thing], *, unrolled: bool = False, first: str = "") -> None:
    leave, was_unrolled = w.leave, w.unrolled
    w.leave, w.unrolled = w.one_in(2), was_unrolled or unrolled
    w.loops += 1
    with w.block():
        w.scopes[-1].update(names)
        if first and w.one_in(2):
            targets = [n for n, t in w.mutable() if isinstance(t, Kind)
                       and t.dtype in (*INTEGERS,) and t.dtype.primitive_bitwidth > 16]  # fmt: skip
            if targets:
                name = w.choose(targets)
                dtype = next(t.dtype for n, t in w.kinds() if n == name)
                w.emit(f"{name} += {first}" + ("" if unrolled else f".to({tl(dtype)})"))
        w.statements(w.random.randint(1, 3))
        if w.one_in(2):
            assign_again(w)
    w.loops -= 1
    w.leave, w.unrolled = leave, was_unrolled


@statement(2)
def while_loop(w: Writer) -> bool:
    if w.loops >= 2 or w.nested >= DEEPEST:
        return False
    counter = w.book.name("n")
    text = w.index((), 4, 1)
    w.emit(f"{counter} = {text}")
    test = f"{counter} > 0"
    if w.one_in(3):
        test = f"({test}) & {w.condition(1)}" if w.one_in(2) else f"{test} and {w.condition(1)}"
    if w.one_in(6):
        test = f"tl.condition({test})"
    w.pending.clear()
    w.emit(f"while {test}:")
    w.nested += 1
    w.emit(f"{counter} -= 1")
    w.nested -= 1
    _body(w, {})
    return True


@statement(1)
def for_parts(w: Writer) -> bool:
    """A loop over a tuple, once for each of its elements."""
    kinds = [(n, t) for n, t in w.mutable() if isinstance(t, Kind) and t.dtype in NUMBERS]
    if not kinds or w.nested >= DEEPEST or w.loops >= 2:
        return False
    name, kind = w.choose(kinds)
    assert isinstance(kind, Kind)
    items = [w.value(kind.shape if w.one_in(2) else (), 1) for _ in range(w.random.randint(1, 3))]
    for item in items:
        if promoted(item.dtype, kind.dtype) is None:
            return False
    each = w.book.name("e")
    w.emit(f"for {each} in ({', '.join(i.text for i in items)},):")
    with w.block():
        w.emit(f"{name} += {each}.to({tl(kind.dtype)})" if all(
            not i.dtype.is_fp8() for i in items
        ) else f"{name} += {each}.to(tl.float32).to({tl(kind.dtype)})")  # fmt: skip
    return True


@statement(2)
def moving_pointer(w: Writer) -> bool:
    """A pointer that a loop carries, scalar or a tile of them, or to a block."""
    if not w.is_kernel or w.loops or w.nested >= DEEPEST:
        return False
    shape = w.choose([s for s in w.book.shapes if s])
    fit = [a for a in w.book.arrays if not a.dtype.is_bool() and not a.dtype.is_fp8()]
    array = w.choose(fit)
    pointer, total = w.book.name("p"), w.define(Kind(array.dtype, shape))
    start = w.index((), 512, 0)
    step = w.choose((str(w.random.randint(1, 17)), f"({w.index((), 16, 0)})"))
    trips = w.index((), 4, 0)
    w.emit(f"{total} = tl.zeros({shape}, {tl(array.dtype)})")
    if w.one_in(2):
        w.emit(f"{pointer} = {array.name} + {start} + {w.offsets(shape)}")
        loaded, moved = f"tl.load({pointer})", f"{pointer} += {step}"
    else:
        wide = tuple(4 * n for n in shape)[:1] + shape[1:]
        strides = tuple(_product(wide[i + 1 :]) for i in range(len(wide)))
        order = tuple(reversed(range(len(shape))))
        zero = ", ".join("0" for _ in shape)
        w.emit(f"{pointer} = tl.make_block_ptr({array.name} + {start}, {wide}, {strides}, "
               f"({zero},), {shape}, {order})")  # fmt: skip
        loaded = f'tl.load({pointer}, boundary_check=(0,), padding_option="zero")'
        ahead = ", ".join([step] + ["0"] * (len(shape) - 1))
        moved = f"{pointer} = tl.advance({pointer}, ({ahead},))"
    w.pending.clear()
    w.emit(f"for _ in range({trips}):")
    with w.block():
        if w.one_in(4):
            w.emit(f"if {w.condition(1)}:")
            w.pending.clear()
            with w.block():
                w.emit(w.choose(("break", "continue")))
        w.emit(f"{total} += {loaded}")
        w.emit(moved)
    return True


def _product(shape: Shape) -> int:
    found = 1
    for n in shape:
        found *= n
    return found


@statement(1)
def hint(w: Writer) -> bool:
    """Promises that hold."""
    match w.below(5):
        case 0:
            value = w.typed(I32, (), 1)
            w.emit(f"{w.define(Kind(I32))} = tl.multiple_of({value} * 16, 16)")
        case 1:
            held = ("n > 1", "40 >= n", "(n > 1) & (program >= 0)", "n.to(tl.int64) < 41")
            w.emit(f"tl.assume({w.choose(held)})" if w.is_kernel else "pass")
        case 4:
            value, name = w.typed(I32, (), 1), w.define(Kind(I32))
            w.emit(f"{name} = {value} * 16")
            w.emit(f"tl.assume({name} % 16 == 0)")
        case 2 if w.is_kernel:
            w.emit("tl.debug_barrier()")
        case _:
            kinds = [(n, k) for n, k in w.kinds() if k.dtype.is_int()]
            if not kinds or w.pure:
                return False
            name, _ = w.choose(kinds)
            w.emit(f"assert {name} == {name}, \"equal\"" if w.one_in(2)
                   else f"tl.device_assert({name} == {name})")  # fmt: skip
    return True
