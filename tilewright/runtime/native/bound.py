"""Bound launches (`kernel.bind`): the arguments are read once, and launched any number of times."""

from __future__ import annotations

from tilewright.lowering.emit import I32, PTR, const
from tilewright.runtime.native.call import begin, prepare
from tilewright.runtime.native.fallback import count_of, miss
from tilewright.runtime.native.grid import extents, grid_tuple, release_grid
from tilewright.runtime.native.guards import guards_hold, knob
from tilewright.runtime.native.keys import release_held
from tilewright.runtime.native.layout import FAILED, MISSED, NOT_STARTED, READY, STARTED
from tilewright.runtime.native.routine import (
    UNLIKELY,
    Bound,
    Object,
    Record,
    Routine,
    Word,
    routine,
)
from tilewright.runtime.native.start import start_on_device


@routine(PTR, entry=True)
def freeze(r: Routine, self: Object, args: Object, nargs: Word, kwnames: Object) -> None:
    """Read the arguments of a launch: (entry of the variant, slots as bytes, grid); None if the
    call needs the slow path."""
    begin(r, self, r.item(self, 1), args, nargs, kwnames)
    r.frame["grid_object"] = 0
    result = _freeze(r)
    release_grid(r)
    release_held(r)
    r.ret(result)


@routine(PTR)
def _freeze(r: Routine) -> None:
    # Each miss goes through Python, which fills the cache of one more wrapper, and at last that of
    # the kernel. Hence at most stages + 2 attempts.
    stages = r.state["stage_count"]
    with r.loop(0, r.add(stages, 2)) as loop:
        found = prepare(r)
        r.require(r.ne(found, FAILED))
        with r.when(r.eq(found, READY)):
            r.ret(_frozen(r))
        missed = r.and_(r.eq(found, MISSED), r.icmp("ule", loop.index, stages))
        with r.when(r.not_(missed)):
            r.ret(r.retain(r.rt["none"]))
        r.release(r.not_null(miss(r, r.state["warm"])))
        release_held(r)
    r.ret(r.retain(r.rt["none"]))


@routine(PTR)
def _frozen(r: Routine) -> None:
    entry = r.ref("Recent", r.frame["recent"])["entry"]
    with r.owned(r.retain(entry), unless_left=True):  # the grid function may run any code
        r.require(r.ne(extents(r), FAILED))
        tuple = r.raising("PyTuple_New", 3)
        r.api("PyTuple_SetItem", tuple, 0, entry)
    with r.owned(tuple, unless_left=True):
        size = r.shl(r.frame["slot_count"], 3)
        words = r.raising("PyBytes_FromStringAndSize", r.frame.at("slots"), size)
        r.api("PyTuple_SetItem", tuple, 1, words)
        r.api("PyTuple_SetItem", tuple, 2, r.not_null(grid_tuple(r)))
    r.ret(tuple)


@routine(PTR, entry=True)
def launch_bound(r: Routine, self: Object, args: Object, nargs: Word, kwnames: Object) -> None:
    """The builtin that `kernel.bind` returns. `self` is (box, fallback, …): the box, a bytes
    object, has the addresses of State and Bound; the fallback performs the launch in Python."""
    begin(r, self, const(PTR, 0), args, nargs, kwnames)
    bound = r.ref("Bound", r.ref("Bytes", r.item(self, 0)).get("data", 1))
    record = r.ref("Record", bound["record"])
    result = _start_bound(r, record, bound)
    with r.when(r.eq(result, STARTED)):
        r.ret(r.retain(record["kernel"]))
    with r.when(r.eq(result, NOT_STARTED)):
        r.ret(r.api("PyObject_Vectorcall", r.item(self, 1), args, nargs, kwnames))
    r.ret(0)


@routine(I32, failure=NOT_STARTED, inline=True)
def _start_bound(r: Routine, record: Record, bound: Bound) -> None:
    r.require(r.eq(r.or_(r.frame["nargs"], count_of(r, r.frame["kwnames"])), 0))
    r.require(guards_hold(r))
    r.require(r.eq(knob(r, r.rt.part("debug")), bound["debug"]))
    grid = [bound.get("grid", axis) for axis in range(3)]
    for axis, extent in enumerate(grid):
        r.frame.put("grid", axis, extent)
    r.copy(r.frame.at("slots"), bound["slots"], bound["slot_count"])
    with r.when(r.any([r.eq(extent, 0) for extent in grid]), UNLIKELY):
        r.ret(STARTED)
    r.ret(start_on_device(r, record))
