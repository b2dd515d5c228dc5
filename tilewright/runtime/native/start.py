"""Starts a cached variant: evaluates the grid and dispatches on the device."""

from __future__ import annotations

from tilewright.lowering.emit import I32, PTR, const
from tilewright.runtime.native.fallback import fall_back
from tilewright.runtime.native.grid import extents, release_grid
from tilewright.runtime.native.layout import CHAIN, CPU, CUDA, EMPTY, NOT_STARTED, SOME, STARTED
from tilewright.runtime.native.routine import UNLIKELY, Record, Routine, routine
from tilewright.runtime.native.start_chain import make_arguments
from tilewright.runtime.native.start_cpu import start_cpu
from tilewright.runtime.native.start_cuda import start_cuda
from tilewright.runtime.native.start_function import start_function


@routine(PTR)
def start(r: Routine) -> None:
    """Evaluate the grid and launch; returns the compiled kernel.

    Frame.recent is borrowed from a table that the grid function, which may run any code, can
    change: the entry and the kernel are read and retained before.
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
    # A grid function must not be called twice: the slow path gets its result.
    ran = r.choose(
        r.eq(result, NOT_STARTED),
        lambda: fall_back(r, r.state["fallback"], r.frame["grid_object"]),
        lambda: const(PTR, 0),
    )
    release_grid(r)
    r.ret(ran)


@routine(I32, inline=True)
def _run(r: Routine, record: Record) -> None:
    some = extents(r)
    with r.when(r.eq(some, EMPTY), UNLIKELY):
        r.ret(STARTED)
    r.require(r.eq(some, SOME))
    with r.when(r.eq(record["kind"], CHAIN), UNLIKELY):
        r.ret(_start_chain(r, record))
    r.ret(start_on_device(r, record))


@routine(I32)
def _start_chain(r: Routine, record: Record) -> None:
    """`start_on_device` for kernels that are launched one after the other, on separate grids.
    NOT_STARTED may mean that some have been launched, see `hot_launch.py`."""
    chain = r.ref("Chain", record["chain"])
    status = make_arguments(r, chain)
    with r.when(r.ne(status, STARTED), UNLIKELY):
        r.ret(status)
    with r.loop(0, chain["step_count"]) as loop:
        step = chain.part("steps", loop.index)
        for axis in range(3):
            r.frame.put("grid", axis, step.get("grid", axis))
        started = start_on_device(r, r.ref("Record", step["record"]))
        with r.when(r.ne(started, STARTED), UNLIKELY):
            r.ret(started)
    r.ret(STARTED)


@routine(I32, inline=True)
def start_on_device(r: Routine, record: Record) -> None:
    """Launch on Frame.grid: STARTED, NOT_STARTED if the slow path must, or FAILED."""
    for kind, start_there in ((CPU, start_cpu), (CUDA, start_cuda)):
        with r.when(r.eq(record["kind"], kind)):
            r.ret(start_there(r, record))
    r.ret(start_function(r, record))
