"""Launches through the CUDA driver."""

from __future__ import annotations

from tilewright.lowering.emit import I32, I64, PTR, V, const
from tilewright.runtime.descriptors import EXTENT_LIMIT
from tilewright.runtime.native.grid import grid_of
from tilewright.runtime.native.layout import FAILED, NOT_STARTED, STARTED
from tilewright.runtime.native.pack import pack
from tilewright.runtime.native.routine import Object, Record, Routine, routine
from tilewright.runtime.native.start_function import find_stream, raise_launch_error, require_stream
from tilewright.runtime.native.tensor_maps import add_tensor_maps


@routine(I32, failure=NOT_STARTED)
def start_cuda(r: Routine, record: Record) -> None:
    """`start_on_device` for CUDA devices; asynchronous."""
    current = r.alloca(PTR)
    r.require(r.ne(r.rt["cuda_usable"], 0))
    # If another context, or none, is current, the slow path switches to the device's context.
    failed = r.call(record["get_current"], I32, [current])
    here = r.eq(r.load(PTR, current), record["context"])
    r.require(r.and_(r.eq(failed, 0), here))
    x, y, z = grid_of(r)
    r.require(r.icmp("ult", r.or_(r.or_(x, y), z), EXTENT_LIMIT))
    r.require(find_stream(r, record, current), FAILED)
    stream = r.load(PTR, current)
    require_stream(r, stream)
    pack(r, record)
    r.require(add_tensor_maps(r, record))
    status = _launch(r, record, stream)
    with r.when(r.ne(status, 0)):
        raise_launch_error(r, record, r.sext(status, I64))
        r.leave(FAILED)
    # Device.last_kernel, for the messages of asynchronous errors.
    r.store(record["name"], record["last_kernel"])
    r.ret(STARTED)


@routine(I32)
def _launch(r: Routine, record: Record, stream: Object) -> None:
    """Calls the driver without the GIL, as it blocks while the stream's queue is full; returns the
    CUresult."""
    x, y, z = (r.trunc(extent, I32) for extent in grid_of(r))
    pointers, function, call = r.frame.at("pointers"), record["function"], record["launch"]
    threads, ctas, count = (
        r.trunc(record[field], I32) for field in ("threads", "ctas", "attribute_count")
    )
    packed = _packed(r, record)
    shared = r.trunc(_shared(r, record, packed), I32)
    packed = r.trunc(packed, I32)
    x = r.udiv(x, packed)
    attributes, one, none = record["attributes"], const(I32, 1), const(PTR, 0)

    def plain() -> V:
        shape = (x, y, z, threads, packed, one, shared)
        return r.call(call, I32, [function, *shape, stream, pointers, none])

    def extended() -> V:
        config = r.ref("LaunchConfig", r.frame.at("config"))
        for axis, (blocks, size) in enumerate(((r.mul(x, ctas), threads), (y, packed), (z, one))):
            config.put("grid", axis, blocks)
            config.put("block", axis, size)
        config["shared"] = shared
        config["stream"] = stream
        config["attributes"] = attributes
        config["attribute_count"] = count
        return r.call(call, I32, [config.address, function, pointers, none])

    with r.without_gil():
        status = r.choose(r.eq(count, 0), plain, extended)
    r.ret(status)


def _packed(r: Routine, record: Record) -> V:
    """The programs of a block, as `cuda_function.Shape` describes them."""
    x, packed = grid_of(r)[0], record["packed"]  # a power of two
    divides = r.eq(r.and_(x, r.sub(packed, 1)), 0)
    many = r.icmp("ugt", _programs(r), record["packed_above"])
    return r.select(r.and_(divides, many), packed, const(I64, 1))


def _shared(r: Routine, record: Record, packed: V) -> V:
    """The bytes of shared memory, as `cuda_function.Shape` describes them."""
    few = r.icmp("ule", _programs(r), record["spare_blocks"])
    return r.add(r.mul(packed, record["shared"]), r.select(few, record["spare"], const(I64, 0)))


def _programs(r: Routine) -> V:
    x, y, z = grid_of(r)
    return r.mul(r.mul(x, y), z)
