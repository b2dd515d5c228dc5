"""Launches on the CPU's thread pool (`devices/cpu.py`)."""

from __future__ import annotations

from tilewright.lowering.emit import I32, I64, PTR, VOID, V, const
from tilewright.runtime.descriptors import EXTENT_LIMIT
from tilewright.runtime.native.grid import grid_of
from tilewright.runtime.native.guards import knob
from tilewright.runtime.native.layout import FAILED, NOT_STARTED, OWNERS, STARTED
from tilewright.runtime.native.pack import pack
from tilewright.runtime.native.routine import UNLIKELY, Object, Record, Ref, Routine, Word, routine
from tilewright.runtime.native.start_function import require_stream

_LINE = 64  # bytes that scratch memory is aligned to


@routine(I32, failure=NOT_STARTED)
def start_cpu(r: Routine, record: Record) -> None:
    """`start_on_device` for the CPU; returns when all programs have run."""
    r.not_null(r.rt["pool"])
    require_stream(r, const(PTR, 0))
    _require_free(r, record)
    x, y, z = grid_of(r)
    sizes = (x, y, z, r.mul(x, y))
    r.require(r.all([r.icmp("ult", size, EXTENT_LIMIT) for size in sizes]))
    one = r.eq(r.mul(r.mul(x, y), z), 1)
    workers = r.choose(one, lambda: const(I64, 0), lambda: _workers(r, record))
    r.require(r.icmp("ule", workers, r.load(I64, r.rt["pool_workers"])))
    pack(r, record)
    bytes = record["scratch"]
    with r.when(r.eq(bytes, 0)):
        r.ret(_run_in_turn(r, record, const(PTR, 0), workers))
    block = r.not_null(r.api("PyMem_RawMalloc", r.add(bytes, _LINE - 1)))
    aligned = r.and_(r.add(r.ptrtoint(block), _LINE - 1), -_LINE)
    result = _run_in_turn(r, record, r.inttoptr(aligned), workers)
    r.api("PyMem_RawFree", block)
    r.ret(result)


def _workers(r: Routine, record: Ref) -> V:
    """The most worker threads to use. For an invalid setting, `knob` returns -1 and this returns
    -2, which as an unsigned number exceeds the size of any pool: the slow path then raises."""
    own, setting, done = record["threads"], r.block("setting"), r.block("done")
    before = r.current
    r.cond_br(r.ne(own, 0), done, setting)
    r.at(setting)
    chosen = knob(r, r.rt.part("cpu_threads"))
    every = r.select(r.eq(chosen, 0), _default_threads(r, record), chosen)
    every_before = r.current
    r.br(done)
    r.at(done)
    threads = r.phi(I64)
    threads.add(own, before)
    threads.add(every, every_before)
    return r.sub(threads.value, 1)


@routine(I64)
def _default_threads(r: Routine, record: Record) -> None:
    """The threads of a launch without a setting: as many as torch uses, else one per core."""
    query = r.rt["torch_threads"]
    with r.when(r.eq(query, 0)):
        r.ret(record["cores"])
    r.ret(r.sext(r.call(query, I32, []), I64))


def _require_free(r: Routine, record: Ref) -> None:
    """Exits if the kernel calls Python and another launch of it runs, as a call does not identify
    its launch."""
    owners = record["owners"]
    with r.when(r.ne(owners, 0)):
        for owner in range(OWNERS):
            r.require(r.eq(r.load(I64, r.gep(I64, owners, owner)), 0))
        r.require(r.eq(r.size_of(record["failures"]), 0))


@routine(I32, failure=FAILED)
def _run_in_turn(r: Routine, record: Record, scratch: Object, workers: Word) -> None:
    """`_run_on_pool`, then raises the exceptions of the kernel's calls of Python."""
    owners = record["owners"]
    with r.when(r.eq(owners, 0)):
        r.ret(_run_on_pool(r, record, scratch, workers))
    r.store(r.api("PyThread_get_thread_ident"), owners)
    result = _run_on_pool(r, record, scratch, workers)
    r.store(const(I64, 0), owners)
    failed = r.ne(r.size_of(record["failures"]), 0)
    with r.when(r.and_(r.eq(result, STARTED), failed), UNLIKELY):
        r.release(r.not_null(r.python(record["raise_first"])))
    r.ret(result)


@routine(I32, failure=FAILED)
def _run_on_pool(r: Routine, record: Record, scratch: Object, workers: Word) -> None:
    """Calls `pool_launch`, without the GIL unless Frame.keeps_gil. The launch's ticket is the
    address of its frame, which is unique among concurrent launches."""
    x, y, z = grid_of(r)
    pool, function, packed = r.rt["pool"], record["function"], r.frame.at("packed")
    bytes, ticket = record["scratch"], r.ptrtoint(r.frame.address)
    launch, slice = r.rt["pool_launch"], r.rt["slice"]
    nothing = const(I64, 0)
    call = (pool, function, packed, x, y, z, nothing, scratch, bytes, workers, ticket, slice)

    def released() -> V:
        with r.without_gil():
            return r.call(launch, I64, call)

    # Without workers: programs on these may need the GIL, as for a message.
    keeps = r.and_(r.ne(r.frame["keeps_gil"], 0), r.eq(workers, 0))
    begin = r.choose(keeps, lambda: r.call(launch, I64, call), released)
    with r.when(r.eq(begin, 0)):
        r.ret(STARTED)
    # The time slice is over: continue in Python, which handles signals between slices.
    job = r.frame.part("job")
    fields = dict(function=function, args=packed, x=x, y=y, z=z, begin=begin, scratch=scratch)
    rest = dict(scratch_bytes=bytes, workers=workers, ticket=ticket)
    for field, value in {**fields, **rest}.items():
        job[field] = value
    number = _number_of(r, job.address)
    with r.owned(number):
        done = r.python(r.rt["resume"], number)
    with r.when(r.eq(done, 0), UNLIKELY):
        # A signal handler may have raised before the first line of `resume` ran.
        _abandon(r, pool, ticket)
        r.leave()
    r.release(done)
    r.ret(STARTED)


def _number_of(r: Routine, address: V) -> V:
    """An address as a Python int. Retries while memory is short: the launch cannot be abandoned
    here, as the pool's threads read this frame until the job has ended."""
    with r.repeated() as loop:
        number = r.api("PyLong_FromLongLong", r.ptrtoint(address))
        loop.stop_if(r.ne(number, 0))
        r.api("PyErr_Clear")
    return number


@routine(VOID)
def _abandon(r: Routine, pool: Object, ticket: Word) -> None:
    """Drops the programs of a launch that have not started, and waits for the others, which read
    the launch's frame. No effect if the launch has ended."""
    cancel, help, slice = r.rt["pool_cancel"], r.rt["pool_help"], r.rt["slice"]
    with r.without_gil():
        r.call(cancel, VOID, [pool, ticket])
        with r.repeated() as loop:
            loop.stop_if(r.eq(r.call(help, I64, [pool, ticket, const(PTR, 0), slice]), 0))
