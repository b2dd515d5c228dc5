"""`CompiledKernel.run`: launches of one compiled kernel, with Triton's calling convention.

    run(grid_x, grid_y, grid_z, stream, function, packed_metadata, launch_metadata,
        enter_hook, exit_hook, *arguments)

The types of the arguments are those of the kernel's signature, so no variant is looked up.
"""

from __future__ import annotations

from tilewright.lowering.emit import I1, I32, I64, PTR, V, const
from tilewright.runtime.native import layout
from tilewright.runtime.native.call import begin
from tilewright.runtime.native.fallback import count_of
from tilewright.runtime.native.keys import release_held
from tilewright.runtime.native.layout import NOT_STARTED, STARTED
from tilewright.runtime.native.read import Argument, param_of, read_any
from tilewright.runtime.native.routine import Compiled, Object, Routine, Word, routine
from tilewright.runtime.native.start import start_on_device

STREAM, ENTER, EXIT, ARGUMENTS = 3, 7, 8, 9
"""Positions of arguments of `run`. Those between the stream and the hooks have no effect."""


@routine(PTR, entry=True)
def launch_compiled(r: Routine, self: Object, args: Object, nargs: Word, kwnames: Object) -> None:
    """The builtin `CompiledKernel.run`. `self` is (box, fallback, …): the box, a bytes object, has
    the addresses of State and Compiled; the fallback performs the launch in Python."""
    begin(r, self, const(PTR, 0), args, nargs, kwnames)
    compiled = r.ref("Compiled", r.ref("Bytes", r.item(self, 0)).get("data", 1))
    r.frame["held_count"] = 0
    result = _start_compiled(r, compiled)
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
    device = r.frame["device"]
    here = r.eq(device, compiled["device"])
    r.require(r.or_(here, r.eq(device, layout.NO_DEVICE)))
    empty = r.any([r.eq(r.frame.get("grid", axis), 0) for axis in range(3)])
    with r.when(empty):
        r.ret(STARTED)
    r.ret(start_on_device(r, r.ref("Record", compiled["record"])))


def _given(r: Routine, index: V | int) -> V:
    """An argument of `run`."""
    return r.load(PTR, r.gep(PTR, r.frame["args"], index))


@routine(I1, inline=True)
def _no_hooks(r: Routine) -> None:
    """Whether the hooks are None, or those of the settings while these are empty."""
    empty = r.eq(r.api("PyList_Size", r.rt["launch_hooks"]), 0)
    for index, chain in ((ENTER, "enter_chain"), (EXIT, "exit_chain")):
        hook = _given(r, index)
        unset = r.and_(empty, r.eq(hook, r.rt[chain]))
        r.require(r.or_(unset, r.eq(hook, r.rt["none"])))


@routine(I1, inline=True)
def _read_grid(r: Routine) -> None:
    """Fills Frame.grid with three nonnegative ints."""
    with r.loop(0, 3) as loop:
        object = _given(r, loop.index)
        r.require(r.is_a(object, "int"))
        number, overflow = r.int_of(object)
        r.require(r.and_(r.eq(overflow, 0), r.icmp("sge", number, 0)))
        r.frame.put("grid", loop.index, number)


def _read_stream(r: Routine) -> None:
    """Fills Frame.stream with the stream that the caller expects to be the current one."""
    object = _given(r, STREAM)
    any = r.eq(object, r.rt["none"])
    r.frame["any_stream"] = r.zext(any, I64)
    r.frame["stream"] = 0
    with r.when(r.not_(any)):
        r.require(r.is_a(object, "int"))
        r.frame["stream"] = r.api("PyLong_AsVoidPtr", object)
        r.require(r.eq(r.api("PyErr_Occurred"), 0), clear=True)


@routine(I1)
def _read_arguments(r: Routine) -> None:
    """Reads the run-time arguments into their slots. A parameter of a compile-time value accepts
    anything, which is ignored."""
    for field in ("word_count", "object_count", "tensor_count"):
        r.frame[field] = 0
    r.frame["slot_count"] = r.state["count"]
    r.frame["device"] = layout.NO_DEVICE
    with r.loop(0, r.state["count"]) as loop:
        param = param_of(r, loop.index)
        with r.when(r.not_(r.has(param["flags"], layout.IS_CONSTEXPR))):
            value = _given(r, r.add(loop.index, ARGUMENTS))
            r.require(r.ne(value, r.rt["none"]))
            read_any(r, Argument(param, value, loop.index))
