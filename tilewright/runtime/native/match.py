"""Assigns the arguments of a call to parameters (Frame.values) and options (Frame.options)."""

from __future__ import annotations

from tilewright.lowering.emit import I1, I64, PTR, V, const
from tilewright.runtime.native.keys import held
from tilewright.runtime.native.layout import MAX_OPTIONS
from tilewright.runtime.native.read import option, param_of
from tilewright.runtime.native.routine import UNLIKELY, Object, Routine, Word, routine


def count_of(r: Routine, kwnames: V) -> V:
    """The number of keywords of a call; `kwnames` may be null."""
    none = r.eq(kwnames, 0)
    return r.choose(none, lambda: const(I64, 0), lambda: r.size_of(kwnames))


@routine(I1)
def match(r: Routine) -> None:
    """Fills Frame.values and Frame.options. False for an invalid call, and for reserved keywords
    such as `warmup`; the slow path handles both."""
    args, nargs, kwnames = (r.frame[field] for field in ("args", "nargs", "kwnames"))
    r.frame["option_count"] = 0
    r.require(r.icmp("ule", nargs, r.state["positional"]))
    r.copy(r.frame.at("values"), args, nargs)
    with r.loop(nargs, r.state["count"]) as loop:
        r.frame.put("values", loop.index, 0)
    rest = r.gep(PTR, args, nargs)
    with r.loop(0, count_of(r, kwnames)) as loop:
        name, value = r.item(kwnames, loop.index), r.load(PTR, r.gep(PTR, rest, loop.index))
        r.require(place(r, name, value, nargs))
    mappings = r.state["mapping_count"]
    with r.when(r.ne(mappings, 0), UNLIKELY):
        last = r.state["count"]
        with r.loop(r.sub(last, mappings), last) as loop:
            r.require(_unpack_mapping(r, loop.index))


@routine(I1)
def place(r: Routine, name: Object, value: Object, first: Word) -> None:
    """Stores the value of a keyword, as a parameter (from index `first` on) or as an option.

    Keyword names are usually interned strings, identical to the parameters' names, so addresses
    are compared first.
    """
    with r.loop(first, r.state["count"]) as loop:
        same = r.eq(param_of(r, loop.index)["keyword"], name)
        with r.when(same):
            _put(r, loop.index, value)
    # An equal string that is another object, a duplicate argument, or an option.
    found = r.api("PyDict_GetItemWithError", r.state["keywords"], name)
    with r.when(r.ne(found, 0)):
        number = r.api("PyLong_AsLongLong", found)
        r.require(r.icmp("sge", number, 0))  # RESERVED is negative
        _put(r, number, value)
    count = r.frame["option_count"]
    r.require(r.icmp("ult", count, MAX_OPTIONS))
    r.frame.put("options", r.shl(count, 1), name)
    r.frame.put("options", r.add(r.shl(count, 1), 1), value)
    r.frame["option_count"] = r.add(count, 1)


@routine(I1)
def _unpack_mapping(r: Routine, number: Word) -> None:
    """Assigns the items of a mapping to their parameters; false if it has others, or lacks some."""
    param = param_of(r, number)
    items = r.not_null(r.frame.get("values", number))
    r.require(r.is_a(items, "dict"))
    first, count = param["low"], param["high"]
    r.require(r.eq(r.api("PyDict_Size", items), count))
    with r.loop(first, r.add(first, count)) as loop:
        r.require(r.eq(r.frame.get("values", loop.index), 0))
        key = param_of(r, loop.index)["key"]
        item = r.not_null(r.api("PyDict_GetItemWithError", items, key), clear=True)
        r.frame.put("values", loop.index, held(r, item, False))
    r.frame.put("values", number, r.rt["none"])


def _put(r: Routine, number: V, value: V) -> None:
    r.require(r.eq(r.frame.get("values", number), 0))
    r.frame.put("values", number, value)
    r.ret(True)


def fill_defaults(r: Routine) -> None:
    """Set the defaults of parameters without an argument; exits the routine if one has none."""
    with r.loop(r.frame["nargs"], r.state["count"]) as loop:
        absent = r.eq(r.frame.get("values", loop.index), 0)
        with r.when(absent):
            r.frame.put("values", loop.index, r.not_null(param_of(r, loop.index)["default"]))


@routine(PTR)
def arguments_by_name(r: Routine) -> None:
    """A new dict with the arguments and options assigned so far, by name."""
    named = r.raising("PyDict_New")
    with r.loop(0, r.state["count"]) as loop:
        value = r.frame.get("values", loop.index)
        with r.when(r.ne(value, 0)):
            r.api("PyDict_SetItem", named, param_of(r, loop.index)["name"], value)
    with r.loop(0, r.frame["option_count"]) as loop:
        r.api("PyDict_SetItem", named, *option(r, loop.index))
    r.ret(named)
