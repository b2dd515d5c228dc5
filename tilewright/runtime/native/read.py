"""Reads arguments into words of the key and slots: dispatch by type, numbers, constants.

`runtime/kinds.py` has a row for each kind of argument, with the function that reads it. The first
word of an argument has its tag in the lowest byte and, above it, everything that its specialisation
depends on: equal words imply equal specialisations. An early exit of any routine here means that
the call takes the slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias, TypeVar

from tilewright.lowering.emit import I1, I64, Block, V, const
from tilewright.runtime.kinds import INT_TYPES, KINDS, Kind
from tilewright.runtime.native import layout
from tilewright.runtime.native.keys import facts_of, push, push_object, require_room
from tilewright.runtime.native.layout import INT64_MAX, TYPE_SHIFT, takes
from tilewright.runtime.native.routine import (
    LIKELY,
    UNLIKELY,
    Object,
    Param,
    Ref,
    Routine,
    Word,
    routine,
)


class Argument(NamedTuple):
    """An argument in generated code: the structure Param of its parameter, the Python object, and
    the index of its slot."""

    param: Ref
    value: V
    slot: V

    def put(self, r: Routine, bits: V) -> None:
        """Store the argument's bits into its slot."""
        r.frame.put("slots", self.slot, bits)


Reader = TypeVar("Reader")


def _entry(readers: dict[str, Reader], name: str) -> Callable[[Reader], Reader]:
    """A decorator that enters code of a name into a table, once."""

    def register(read: Reader) -> Reader:
        assert name not in readers, f"{name} is read twice"
        readers[name] = read
        return read

    return register


Read: TypeAlias = Callable[[Routine, Argument, Kind], None]
"""Emits the code that reads an argument of a kind."""

READERS: dict[str, Read] = {}
"""By `Kind.read`."""


def reads(name: str) -> Callable[[Read], Read]:
    """Register the code that reads arguments of kinds whose `read` is this name."""

    return _entry(READERS, name)


Layout: TypeAlias = Callable[[Routine, V], tuple[V, V, V]]
"""Emits the code that reads a tensor's number of axes, and the addresses of its extents and strides
as int64."""

LAYOUTS: dict[str, Layout] = {}
"""By `Kind.read`."""


def reads_layout(name: str) -> Callable[[Layout], Layout]:
    """Register the code that reads the layouts of tensors of kinds whose `read` is this name."""

    return _entry(LAYOUTS, name)


def reader_of(kind: Kind) -> Read:
    """The function that emits the code for a kind.

    Raises:
        ValueError: none is registered under its `read`.
    """
    if kind.read not in READERS:
        raise ValueError(
            f"arguments of kind {kind.name!r} are read natively by {kind.read!r}, which is not "
            f"registered; there are {', '.join(sorted(READERS))}"
        )
    return READERS[kind.read]


def outlined(body: Callable[[Routine, Argument], None]) -> Callable[..., None]:
    """Emit code that reads an argument as a routine of its own instead of inline."""

    def read(r: Routine, param: Param, value: Object, slot: Word) -> None:
        body(r, Argument(param, value, slot))

    read.__name__ = body.__name__
    called = routine(I1)(read)

    def call(r: Routine, a: Argument, kind: Kind | None = None) -> None:
        r.require(called(r, *a))

    return call


# -- any argument ---------------------------------------------------------------------------------


def read_any(r: Routine, a: Argument, kinds: Sequence[Kind] = ()) -> None:
    """Read an argument of one of some kinds (all by default); exits the routine for any other.

    Exact types are tested first, then classes that the slow path has registered (`Kind.met`), both
    in the order of the table.
    """
    kinds = kinds or KINDS
    require_room(r)
    done = r.block("done")
    type = r.type_of(a.value)
    number = 0
    for kind in KINDS:
        numbers = range(number, number := number + len(kind.types))
        if kind in kinds and kind.types:
            same = [r.eq(type, r.rt.get("kind_types", n)) for n in numbers]
            _read_where(r, r.any(same), a, kind, done)
    for index, kind in enumerate(KINDS):
        if kind not in kinds:
            continue
        if kind.base is tuple:
            flags = r.api("PyType_GetFlags", type)
            _read_where(r, r.has(flags, layout.IS_TUPLE), a, kind, done)
        elif kind.met is not None:
            met = r.api("PyDict_GetItemWithError", r.rt.get("kinds_met", index), type)
            _read_where(r, r.ne(met, 0), a, kind, done)
    r.leave()
    r.at(done)


def _read_where(r: Routine, condition: V, a: Argument, kind: Kind, done: Block) -> None:
    """If the condition holds, read an argument of a kind; the parameter must accept that kind."""
    with r.when(condition):
        if kind.annotated != _ALWAYS:
            r.require(r.has(a.param["flags"], takes(kind)))
        reader_of(kind)(r, a, kind)
        r.br(done)


_ALWAYS = frozenset(["pointer", "bool", "float", "narrow", "int"])


@outlined
def read_part(r: Routine, a: Argument) -> None:
    """Read an item of a tuple, which may be a tuple again: hence a routine, as it is recursive."""
    read_any(r, a)


# -- numbers, None --------------------------------------------------------------------------------


@reads("None")
def read_none(r: Routine, a: Argument, kind: Kind) -> None:
    """None, which is a compile-time constant of the variant."""
    push(r, layout.NONE)
    a.put(r, const(I64, 0))


@reads("bool")
def read_bool(r: Routine, a: Argument, kind: Kind) -> None:
    """True or False."""
    push(r, layout.BOOL)
    a.put(r, r.zext(r.eq(a.value, r.rt["true"]), I64))


@reads("float")
def read_float(r: Routine, a: Argument, kind: Kind) -> None:
    """A float; its slot holds an fp64, see `pack`."""
    push(r, layout.FLOAT)
    with _number(r, a, kind) as number:
        a.put(r, r.bitcast(r.api("PyFloat_AsDouble", number), I64))


@reads("int")
def read_int(r: Routine, a: Argument, kind: Kind) -> None:
    """An int: its type, the first of `INT_TYPES` that holds it, and its facts."""
    flags = a.param["flags"]
    with _number(r, a, kind) as number:
        n, overflow = r.int_of(number)
        wide, narrow, done = r.block("wide"), r.block("narrow"), r.block("done")
        r.cond_br(r.eq(overflow, 0), narrow, wide, LIKELY)
        r.at(narrow)
        low, high = (r.icmp(p, n, a.param[field]) for p, field in (("sge", "low"), ("sle", "high")))
        r.require(r.and_(low, high))
        type = _int_type(r, n)
        narrow = r.current
        r.br(done)
        r.at(wide)
        unsigned = _wide_int(r, a, number, overflow)
        wide = r.current
        r.br(done)
        r.at(done)
    bits, number = r.phi(I64), r.phi(I64)
    bits.add(n, narrow)
    number.add(type, narrow)
    bits.add(unsigned, wide)
    number.add(const(I64, len(INT_TYPES) - 1), wide)
    word = r.or_(r.shl(number.value, TYPE_SHIFT), layout.INT)
    push(r, r.or_(word, facts_of(r, flags, bits.value, *kind.facts)))
    a.put(r, bits.value)


@contextmanager
def _number(r: Routine, a: Argument, kind: Kind) -> Generator[V]:
    """The object with the number of an argument: the argument itself, or an attribute of it."""
    if not kind.attribute:
        yield a.value
        return
    name = r.rt.get("kind_attributes", KINDS.index(kind))
    with r.owned(r.tried("PyObject_GetAttr", a.value, name)) as number:
        r.require(r.is_a(number, "float" if "float" in kind.annotated else "int"))
        yield number


def _int_type(r: Routine, n: V) -> V:
    """The index in `INT_TYPES` of the first signed type that holds a 64-bit int."""
    signed = [(i, t) for i, t in enumerate(INT_TYPES) if t.high <= INT64_MAX]
    result = const(I64, signed[-1][0])
    for i, type in reversed(signed[:-1]):
        holds = r.and_(r.icmp("sge", n, type.low), r.icmp("sle", n, type.high))
        result = r.select(holds, const(I64, i), result)
    return result


def _wide_int(r: Routine, a: Argument, number: V, overflow: V) -> V:
    """An int from 2**63 to 2**64 - 1: a uint64, the last of `INT_TYPES`."""
    may = r.has(a.param["flags"], layout.TAKES_WIDE)
    r.require(r.and_(may, r.icmp("sgt", overflow, 0)))
    bits = r.api("PyLong_AsUnsignedLongLong", number)
    r.require(r.eq(r.api("PyErr_Occurred"), 0), clear=True)
    return bits


# -- layouts --------------------------------------------------------------------------------------


@routine(I1)
def read_layout(r: Routine, value: Object) -> None:
    """The layout of a tensor: a word with the number of axes, then the extents and strides, in
    elements or bytes. Tensors of unknown kinds take the slow path; None has no layout."""
    require_room(r)
    with r.when(r.eq(value, r.rt["none"])):
        r.ret(True)
    type = r.type_of(value)
    number = 0
    for kind in KINDS:
        numbers = range(number, number := number + len(kind.types))
        if kind.read in LAYOUTS:
            same = [r.eq(type, r.rt.get("kind_types", n)) for n in numbers]
            with r.when(r.any(same)):
                _put_layout(r, *LAYOUTS[kind.read](r, value))
                r.ret(True)
    r.leave()


def _put_layout(r: Routine, rank: V, extents: V, strides: V) -> None:
    r.require(r.icmp("ule", rank, layout.MAX_DIMS))
    push(r, r.or_(r.shl(rank, TYPE_SHIFT), layout.LAYOUT))
    for numbers in (extents, strides):
        with r.loop(0, rank) as loop:
            push(r, r.load(I64, r.gep(I64, numbers, loop.index)))


# -- compile-time values --------------------------------------------------------------------------


@routine(I1)
def read_constant(r: Routine, value: Object) -> None:
    """A compile-time value, in two words: ints and floats by value; the immutable bools, None,
    strings and element types by address."""
    require_room(r)
    with r.when(r.is_a(value, "int")):
        number, overflow = r.int_of(value)
        r.require(r.eq(overflow, 0))
        push(r, layout.CONSTANT_INT, number)
        r.ret(True)
    with r.when(r.is_a(value, "float")):
        bits = r.bitcast(r.api("PyFloat_AsDouble", value), I64)
        push(r, layout.CONSTANT_FLOAT, bits)
        r.ret(True)
    kind = r.type_of(value)
    constant = [r.rt.get("constant_types", i) for i in range(layout.CONSTANT_TYPES)]
    fixed = [r.eq(value, r.rt["none"]), *(r.eq(kind, type) for type in constant)]
    with r.when(r.any(fixed)):
        push(r, layout.CONSTANT_OBJECT)
        push_object(r, value)
        r.ret(True)
    with r.when(r.is_a(value, "tuple")):
        r.ret(_read_constant_tuple(r, value))
    r.require(r.is_a(value, "constexpr"))
    r.ret(_read_constexpr(r, value))


@routine(I1)
def _read_constant_tuple(r: Routine, value: Object) -> None:
    size = r.size_of(value)
    push(r, r.or_(r.shl(size, TYPE_SHIFT), layout.CONSTANT_TUPLE))
    with r.loop(0, size) as loop:
        r.require(read_constant(r, r.item(value, loop.index)))


@routine(I1)
def _read_constexpr(r: Routine, value: Object) -> None:
    """A constexpr of None or a number. Its value may be replaced at any time, so only values that
    are read into the key, and need not be kept alive, are supported."""
    with r.owned(r.tried("PyObject_GetAttr", value, r.rt["value_name"])) as inner:
        none = r.eq(inner, r.rt["none"])
        r.require(r.or_(none, r.is_a(inner, "int", "float", "bool")))
        push(r, layout.CONSTEXPR)
        r.require(read_constant(r, inner))


# -- a call ---------------------------------------------------------------------------------------


@routine(I1)
def read_new(r: Routine) -> None:
    """Read the arguments and options that have been assigned and not yet been read.

    If wrappers add arguments, this runs once per stage. Each time a word with the set of parameters
    read so far is appended, so that keys of different sets of parameters differ.
    """
    before = r.frame["read_params"]
    with r.loop(0, r.state["count"], carried=[before]) as loop:
        value = r.frame.get("values", loop.index)
        bit = r.shl(const(I64, 1), loop.index)
        known = r.ne(r.and_(loop.carried[0], bit), 0)
        skip = r.or_(known, r.eq(value, 0))
        done = r.select(skip, loop.carried[0], r.or_(loop.carried[0], bit))
        with r.when(r.not_(skip)):
            _read_parameter(r, loop.index, value)
        loop.yield_([done])
    done = loop.results[0]
    r.frame["read_params"] = done
    _read_options(r)
    with r.when(r.ne(r.state["stage_count"], 0), UNLIKELY):
        push(r, layout.PARAMS, done)


def _read_parameter(r: Routine, i: V, value: V) -> None:
    param = param_of(r, i)
    after = r.block("after")
    with r.when(r.has(param["flags"], layout.IS_CONSTEXPR)):
        r.require(read_constant(r, value))
        r.br(after)
    word = r.frame["word_count"]
    read_any(r, Argument(param, value, i))
    with r.when(r.has(param["flags"], layout.BY_INTEGER), UNLIKELY):
        tag = r.and_(r.frame.get("words", word), layout.TAG)
        with r.when(r.or_(r.eq(tag, layout.INT), r.eq(tag, layout.BOOL))):
            push(r, r.frame.get("slots", i))
    with r.when(r.has(param["flags"], layout.BY_EVERY_VALUE), UNLIKELY):
        r.require(read_constant(r, value))
    with r.when(r.has(param["flags"], layout.BY_LAYOUT), UNLIKELY):
        r.require(read_layout(r, value))
    r.br(after)
    r.at(after)


def _read_options(r: Routine) -> None:
    """Read the options that have not yet been read."""
    count = r.frame["option_count"]
    with r.loop(r.frame["read_options"], count) as loop:
        name, value = option(r, loop.index)
        push(r, layout.OPTION)
        push_object(r, name)
        r.require(read_constant(r, value))
    r.frame["read_options"] = count


def param_of(r: Routine, index: V) -> Ref:
    """One of the kernel's parameters."""
    return r.ref("Param", r.state["params"], index)


def option(r: Routine, index: V) -> tuple[V, V]:
    """Name and value of an option."""
    first = r.shl(index, 1)
    return r.frame.get("options", first), r.frame.get("options", r.add(first, 1))


@routine(I1)
def place_launch(r: Routine) -> None:
    """A launch without tensors runs on the active driver's device; false if that is unknown."""
    with r.when(r.eq(r.frame["device"], layout.NO_DEVICE), UNLIKELY):
        answer = r.not_null(r.python(r.rt["home"]), clear=True)
        with r.owned(answer):
            home = small(r, answer)
            r.require(r.icmp("sge", home, 0))
            push(r, r.or_(r.shl(home, layout.DEVICE_SHIFT), layout.HOME))


@routine(I64, failure=-1)
def small(r: Routine, object: Object) -> None:
    """The value of a bool or a nonnegative int; -1 for anything else."""
    r.require(r.is_a(object, "int", "bool"))
    number = r.api("PyLong_AsLongLong", object)
    r.require(r.icmp("sge", number, 0), clear=True)
    r.ret(number)
