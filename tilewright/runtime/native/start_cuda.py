"""Launches through the CUDA driver."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.lowering.emit import I32, I64, PTR, V, const
from tilewright.runtime.descriptors import EXTENT_LIMIT
from tilewright.runtime.native.grid import grid_of
from tilewright.runtime.native.layout import FAILED, MAX_LOOPED, NOT_STARTED, STARTED
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
    r.require(r.or_(r.eq(record["looped_axes"], 0), _can_be_looped(r, (x, y, z))))
    r.require(find_stream(r, record, current), FAILED)
    stream = r.load(PTR, current)
    require_stream(r, stream)
    pack(r, record)
    r.require(add_tensor_maps(r, record))
    _add_extents(r, record)
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
    blocks = _blocks(r, record)
    x, y, z = (r.trunc(extent, I32) for extent in blocks)
    pointers, function, call = r.frame.at("pointers"), record["function"], record["launch"]
    threads, ctas, count = (
        r.trunc(record[field], I32) for field in ("threads", "ctas", "attribute_count")
    )
    packed = _packed(r, record, blocks)
    shared = r.trunc(_shared(r, record, packed, blocks), I32)
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


def _can_be_looped(r: Routine, grid: Sequence[V]) -> V:
    """Whether there are few enough programs; extents are below 2^31."""
    plane = r.mul(grid[0], grid[1])
    return r.and_(
        r.icmp("ule", plane, MAX_LOOPED), r.icmp("ule", r.mul(plane, grid[2]), MAX_LOOPED)
    )


def _add_extents(r: Routine, record: Record) -> None:
    """Store the address of the grid's extents after those of tensor maps, where a kernel that loops
    over programs reads it."""
    place = r.add(record["count"], record["map_count"])
    with r.when(r.ne(record["looped_axes"], 0)):
        r.frame.put("pointers", place, r.frame.at("grid"))


def _blocks(r: Routine, record: Record) -> list[V]:
    """The extents of the launch in blocks, as `cuda_function.Shape` describes them."""
    x, y, z = grid_of(r)
    along, one = r.eq(record["looped_axes"], 3), const(I64, 1)
    x = r.select(along, _product(r, (x, y, z)), x)
    most = record["most_blocks"]
    x = r.select(r.icmp("ult", x, most), x, most)
    return [x, r.select(along, one, y), r.select(along, one, z)]


def _packed(r: Routine, record: Record, blocks: Sequence[V]) -> V:
    """The programs of a block, as `cuda_function.Shape` describes them."""
    packed = record["packed"]  # a power of two
    divides = r.eq(r.and_(blocks[0], r.sub(packed, 1)), 0)
    many = r.icmp("ugt", _product(r, blocks), record["packed_above"])
    return r.select(r.and_(divides, many), packed, const(I64, 1))


def _shared(r: Routine, record: Record, packed: V, blocks: Sequence[V]) -> V:
    """The bytes of shared memory, as `cuda_function.Shape` describes them."""
    few = r.icmp("ule", _product(r, blocks), record["spare_blocks"])
    return r.add(r.mul(packed, record["shared"]), r.select(few, record["spare"], const(I64, 0)))


def _product(r: Routine, extents: Sequence[V]) -> V:
    x, y, z = extents
    return r.mul(r.mul(x, y), z)
