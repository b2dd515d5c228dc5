"""`CompiledKernel.run`: launches of one compiled kernel, with Triton's calling convention.

    run(grid_x, grid_y, grid_z, stream, function, packed_metadata, launch_metadata,
        enter_hook, exit_hook, *arguments)

The types of the arguments are those of the kernel's signature, so no variant is looked up. A
substitute is called as a Python function is that calls `run`; see `compiled.Substitute`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.lowering.emit import I1, I32, I64, PTR, V, const
from tilewright.runtime.native import layout
from tilewright.runtime.native.call import begin
from tilewright.runtime.native.fallback import count_of
from tilewright.runtime.native.guards import guards_hold
from tilewright.runtime.native.keys import release_held
from tilewright.runtime.native.layout import NOT_STARTED, STARTED
from tilewright.runtime.native.read import Argument, param_of, read_any
from tilewright.runtime.native.routine import Compiled, Object, Ref, Routine, Word, routine
from tilewright.runtime.native.start import start_on_device

STREAM, ENTER, EXIT, ARGUMENTS = 3, 7, 8, 9
"""Positions of arguments of `run`. Those between the stream and the hooks have no effect."""


@routine(PTR, entry=True)
def launch_compiled(r: Routine, self: Object, args: Object, nargs: Word, kwnames: Object) -> None:
    """The builtin `CompiledKernel.run`. `self` is (box, fallback, …): the box, a bytes object, has
    the addresses of State and Compiled; the fallback performs the launch in Python."""
    _launch(r, self, args, nargs, kwnames, _start_compiled)


@routine(PTR, entry=True)
def launch_substitute(r: Routine, self: Object, args: Object, nargs: Word, kwnames: Object) -> None:
    """A builtin in place of a Python function that computes a grid and calls `run`. `self` is as
    for `launch_compiled`; the fallback is the function."""
    _launch(r, self, args, nargs, kwnames, _start_substitute)


def _launch(
    r: Routine, self: V, args: V, nargs: V, kwnames: V, start: Callable[[Routine, Ref], V]
) -> None:
    begin(r, self, const(PTR, 0), args, nargs, kwnames)
    compiled = r.ref("Compiled", r.ref("Bytes", r.item(self, 0)).get("data", 1))
    r.frame["held_count"] = 0
    result = start(r, compiled)
    release_held(r)
    with r.when(r.eq(result, STARTED)):
        r.ret(r.retain(r.rt["none"]))
    with r.when(r.eq(result, NOT_STARTED)):
        r.ret(r.api("PyObject_Vectorcall", r.item(self, 1), args, nargs, kwnames))
    r.ret(0)


@routine(I32, failure=NOT_STARTED, inline=True)
def _start_compiled(r: Routine, compiled: Compiled) -> None:
    total = r.add(r.state["count"], ARGUMENTS)
    r.require(r.eq(r.add(r.frame["nargs"], count_of(r, r.frame["kwnames"])), total))
    r.require(r.eq(r.frame["nargs"], total))
    r.require(_no_hooks(r))
    r.require(_read_grid(r))
    _read_stream(r)
    r.require(_read_arguments(r))
    r.ret(_start(r, compiled))


@routine(I32, failure=NOT_STARTED, inline=True)
def _start_substitute(r: Routine, compiled: Compiled) -> None:
    kwnames = r.frame["kwnames"]
    r.require(r.eq(r.frame["nargs"], compiled["given"]))
    r.not_null(kwnames)
    r.require(r.eq(r.size_of(kwnames), 1))
    r.require(r.eq(r.item(kwnames, 0), compiled["keyword"]))
    r.require(guards_hold(r))
    r.require(_read_given(r, compiled))
    r.require(_find_grid(r, compiled))
    r.frame["keeps_gil"] = compiled["keeps_gil"]
    r.ret(_start(r, compiled))


@routine(I32, failure=NOT_STARTED, inline=True)
def _start(r: Routine, compiled: Compiled) -> None:
    device = r.frame["device"]
    here = r.eq(device, compiled["device"])
    r.require(r.or_(here, r.eq(device, layout.NO_DEVICE)))
    empty = r.any([r.eq(r.frame.get("grid", axis), 0) for axis in range(3)])
    with r.when(empty):
        r.ret(STARTED)
    r.ret(start_on_device(r, r.ref("Record", compiled["record"])))


def _call_argument(r: Routine, index: V | int) -> V:
    """An argument of the call."""
    return r.load(PTR, r.gep(PTR, r.frame["args"], index))


@routine(I1, inline=True)
def _no_hooks(r: Routine) -> None:
    """Whether the hooks are None, or those of the settings while these are empty."""
    empty = r.eq(r.size_of(r.rt["launch_hooks"]), 0)
    for index, chain in ((ENTER, "enter_chain"), (EXIT, "exit_chain")):
        hook = _call_argument(r, index)
        unset = r.and_(empty, r.eq(hook, r.rt[chain]))
        r.require(r.or_(unset, r.eq(hook, r.rt["none"])))


@routine(I1, inline=True)
def _read_grid(r: Routine) -> None:
    """Fills Frame.grid with three nonnegative ints."""
    with r.loop(0, 3) as loop:
        object = _call_argument(r, loop.index)
        r.require(r.is_a(object, "int"))
        number, overflow = r.int_of(object)
        r.require(r.and_(r.eq(overflow, 0), r.icmp("sge", number, 0)))
        r.frame.put("grid", loop.index, number)


@routine(I1, inline=True)
def _find_grid(r: Routine, compiled: Compiled) -> None:
    """Fills Frame.grid with the known grid of the arguments' numbers, as `Substitute.note` has
    stored it: the grid, a count, and as many pairs of a slot and its word."""
    with r.loop(0, layout.KNOWN_GRIDS) as loop:
        known = compiled.get("grids", loop.index)
        r.not_null(known)
        words = r.ref("Bytes", known).at("data")
        with r.when(_is_of_call(r, words)):
            r.copy(r.frame.at("grid"), words, const(I64, 3))
            r.ret(True)
    r.leave()


@routine(I1, inline=True)
def _is_of_call(r: Routine, words: Object) -> None:
    with r.loop(0, r.load(I64, r.gep(I64, words, 3))) as loop:
        pair = r.gep(I64, words, r.add(r.shl(loop.index, 1), 4))
        slot, word = r.load(I64, pair), r.load(I64, r.gep(I64, pair, 1))
        r.require(r.eq(r.frame.get("slots", slot), word))


def _read_stream(r: Routine) -> None:
    """Fills Frame.stream with the stream that the caller expects to be the current one."""
    object = _call_argument(r, STREAM)
    any = r.eq(object, r.rt["none"])
    r.frame["any_stream"] = r.zext(any, I64)
    r.frame["stream"] = 0
    with r.when(r.not_(any)):
        r.require(r.is_a(object, "int"))
        r.frame["stream"] = r.api("PyLong_AsVoidPtr", object)
        r.require(r.eq(r.api("PyErr_Occurred"), 0), clear=True)


@routine(I1)
def _read_arguments(r: Routine) -> None:
    """Reads the run-time arguments into their slots."""
    _begin_reading(r)
    with r.loop(0, r.state["count"]) as loop:
        _read_argument(r, loop.index, _call_argument(r, r.add(loop.index, ARGUMENTS)))


@routine(I1)
def _read_given(r: Routine, compiled: Compiled) -> None:
    """Reads the arguments of a substitute into the slots of their parameters."""
    _begin_reading(r)
    with r.loop(0, compiled["given"]) as loop:
        position = r.load(I64, r.gep(I64, compiled["positions"], loop.index))
        _read_argument(r, position, _call_argument(r, loop.index))


def _begin_reading(r: Routine) -> None:
    for field in ("word_count", "object_count", "tensor_count"):
        r.frame[field] = 0
    r.frame["slot_count"] = r.state["count"]
    r.frame["device"] = layout.NO_DEVICE


def _read_argument(r: Routine, index: V, value: V) -> None:
    """Reads the argument of a parameter; that of a compile-time value may be anything, which is
    ignored."""
    param = param_of(r, index)
    with r.when(r.not_(r.has(param["flags"], layout.IS_CONSTEXPR))):
        r.require(r.ne(value, r.rt["none"]))
        read_any(r, Argument(param, value, index))
