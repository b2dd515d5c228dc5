"""Runs a variant that has run before: its grid, its arguments, its device."""

from __future__ import annotations

from tilewright.lowering.emit import I32, PTR, const
from tilewright.runtime.native.fallback import fall_back
from tilewright.runtime.native.grid import extents, release_grid
from tilewright.runtime.native.layout import CPU, CUDA, EMPTY, LEFT, SOME, STARTED
from tilewright.runtime.native.routine import SELDOM, Record, Routine, routine
from tilewright.runtime.native.start_cpu import start_cpu
from tilewright.runtime.native.start_cuda import start_cuda
from tilewright.runtime.native.start_function import start_function


@routine(PTR)
def start(r: Routine) -> None:
    """The grid, then the programs; gives the compiled kernel.

    Frame.recent is borrowed, and the grid function may run any code: what is needed of it is read
    and held first.
    """
    recent = r.ref("Recent", r.frame["recent"])
    record = r.ref("Record", recent["record"])
    entry, kernel = r.retain(recent["entry"]), r.retain(record["kernel"])
    r.frame["grid_object"] = 0
    result = _run(r, record)
    r.release(entry)
    with r.when(r.eq(result, STARTED)):
        release_grid(r)
        r.ret(kernel)
    r.release(kernel)
    # A grid function has been called: its result stands in for it.
    ran = r.choose(
        r.eq(result, LEFT),
        lambda: fall_back(r, r.state["fallback"], r.frame["grid_object"]),
        lambda: const(PTR, 0),
    )
    release_grid(r)
    r.ret(ran)


@routine(I32, inline=True)
def _run(r: Routine, record: Record) -> None:
    some = extents(r)
    with r.when(r.eq(some, EMPTY), SELDOM):
        r.ret(STARTED)
    r.require(r.eq(some, SOME))
    r.ret(start_on_device(r, record))


@routine(I32, inline=True)
def start_on_device(r: Routine, record: Record) -> None:
    """The programs of Frame.grid: STARTED, LEFT for Python to do it, or FAILED with an exception
    set."""
    for kind, start_there in ((CPU, start_cpu), (CUDA, start_cuda)):
        with r.when(r.eq(record["kind"], kind)):
            r.ret(start_there(r, record))
    r.ret(start_function(r, record))
