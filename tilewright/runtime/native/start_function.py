"""Launches by a C function of a driver, for devices of other packages; and the current stream.

The function is ``int start(void *kernel, const uint64_t *words, const int64_t grid[3],
void *stream)``, see `launchers/functions.py`. It is called without the GIL and returns 0, or a
status that is passed to Record.raise_error, which raises.
"""

from __future__ import annotations

from tilewright.lowering.emit import I1, I32, I64, PTR, V, const
from tilewright.runtime.native.grid import grid_tuple
from tilewright.runtime.native.layout import DL_CUDA, NOT_STARTED, STARTED
from tilewright.runtime.native.pack import pack
from tilewright.runtime.native.routine import Object, Record, Routine, Word, routine


@routine(I32)
def start_function(r: Routine, record: Record) -> None:
    """`start_on_device` by the driver's function, which may be synchronous or asynchronous."""
    stream = r.alloca(PTR)
    r.store(const(PTR, 0), stream)
    with r.when(r.ne(record["stream_of"], 0)):
        r.require(find_stream(r, record, stream))
    require_stream(r, r.load(PTR, stream), NOT_STARTED)
    pack(r, record)
    operands = (record["function"], r.frame.at("packed"), r.frame.at("grid"), r.load(PTR, stream))
    call = record["launch"]
    with r.without_gil():
        status = r.call(call, I32, operands)
    with r.when(r.ne(status, 0)):
        raise_launch_error(r, record, r.sext(status, I64))
        r.leave()
    r.ret(STARTED)


@routine(I1)
def find_stream(r: Routine, record: Record, out: Object) -> None:
    """Stores the current stream of the record's device to `out`; false with an exception set.

    Uses Record.work_stream (torch's DLPackCurrentWorkStream) if there is one, else the Python
    function Record.stream_of.
    """
    native = record["work_stream"]
    with r.when(r.ne(native, 0)):
        number = r.trunc(record["device_number"], I32)
        failed = r.call(native, I32, [const(I32, DL_CUDA), number, out])
        with r.when(r.eq(failed, 0)):
            r.ret(True)
        r.api("PyErr_Clear")  # the Python function raises its own error
    with r.owned(r.not_null(r.python(record["stream_of"], record["device_index"]))) as handle:
        r.store(r.api("PyLong_AsVoidPtr", handle), out)
    r.require(r.eq(r.api("PyErr_Occurred"), 0))


def require_stream(r: Routine, current: V, otherwise: int | None = None) -> None:
    """Exit the routine, as by `require`, unless the launch may go to the current stream."""
    expected = r.eq(r.frame["stream"], current)
    r.require(r.or_(r.ne(r.frame["any_stream"], 0), expected), otherwise)


@routine(I1)
def raise_launch_error(r: Routine, record: Record, status: Word) -> None:
    """Calls Record.raise_error(status, grid), which raises the error of a failed launch."""
    with r.owned(r.raising("PyLong_FromLongLong", status)) as number:
        grid = r.not_null(grid_tuple(r))
        with r.owned(grid):
            r.python(record["raise_error"], number, grid)
