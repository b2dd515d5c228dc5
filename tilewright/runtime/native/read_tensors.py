"""Reads tensor arguments: NumPy arrays by the fields of NumPy's ABI, torch tensors by torch's C
functions, other libraries' tensors
by a C function that they provide, or else the Python readers of `runtime/tensors.py`."""

from __future__ import annotations

from tilewright.lowering.emit import I8, I32, I64, PTR, LType, V, array, const
from tilewright.runtime.kinds import DIVISIBLE, FOREIGN, IN_RANGE, KINDS, TWICE_DIVISIBLE
from tilewright.runtime.native import layout
from tilewright.runtime.native.keys import facts_of, push
from tilewright.runtime.native.layout import BUCKETS, FIELDS, MAX_PARAMS, TORCH_DTYPES
from tilewright.runtime.native.read import Argument, outlined, reads, reads_layout, small
from tilewright.runtime.native.routine import Ref, Routine


def put_tensor(
    r: Routine, a: Argument, address: V, element: V, device: V, marks: V, low: V, high: V
) -> None:
    """Append a tensor's two words to the key, and fill its slot with the address.

    The first word has the element type, facts of the address, marks and the device; the second a
    bit for each earlier tensor of the call whose memory overlaps, which determines the result of
    `alias_classes`. All tensors of a call must be on one device.

    Args:
        marks: READ_ONLY if it must not be stored to, UNKNOWN if its extent in memory is unknown.
        low, high: the address range of the memory that it may share with other tensors.
    """
    before = r.frame["device"]
    first, same = r.eq(before, layout.NO_DEVICE), r.eq(before, device)
    r.require(r.or_(first, same))
    count = r.frame["tensor_count"]
    r.require(r.icmp("ult", count, MAX_PARAMS))
    r.frame["device"] = device
    a.put(r, address)
    word = r.or_(r.or_(r.shl(element, layout.TYPE_SHIFT), layout.TENSOR), marks)
    word = r.or_(
        word, _pointer_facts(r, a.param["flags"], device, address, marks, r.sub(high, low))
    )
    word = r.or_(word, r.shl(device, layout.DEVICE_SHIFT))
    r.frame.put("lows", count, low)
    r.frame.put("highs", count, high)
    r.frame["tensor_count"] = r.add(count, 1)
    push(r, word, _overlaps(r, count, low, high))


def _pointer_facts(r: Routine, flags: V, device: V, address: V, marks: V, size: V) -> V:
    """The bits of `kinds.pointer_facts`."""
    aligned = facts_of(r, flags, address, DIVISIBLE)
    known = r.select(r.has(marks, layout.UNKNOWN), const(I64, -1), size)
    further = r.or_(
        facts_of(r, flags, address, TWICE_DIVISIBLE), facts_of(r, flags, known, IN_RANGE)
    )
    on_cpu = r.eq(device, layout.CPU)
    return r.or_(aligned, r.select(on_cpu, const(I64, 0), further))


def _overlaps(r: Routine, count: V, low: V, high: V) -> V:
    """A bit for each earlier tensor of the call whose range intersects [low, high)."""
    with r.loop(0, count, carried=[const(I64, 0)]) as loop:
        i = loop.index
        below = r.icmp("ult", low, r.frame.get("highs", i))
        above = r.icmp("ult", r.frame.get("lows", i), high)
        bit = r.shl(r.zext(r.and_(below, above), I64), i)
        loop.yield_([r.or_(loop.carried[0], bit)])
    return loop.results[0]


# -- NumPy's --------------------------------------------------------------------------------------


@reads("array")
@outlined
def read_array(r: Routine, a: Argument) -> None:
    """A NumPy array."""
    array = r.ref("Array", a.value)
    element = _element_of(r, array)
    status = array["flags"]
    owner = r.choose(
        r.has(status, layout.OWNS_DATA), lambda: a.value, lambda: _gapless_owner(r, a.value)
    )
    low = r.ref("Array", owner)["data"]
    high = r.add(low, _bytes_of(r, r.ref("Array", owner)))
    marks = r.bit_if(r.not_(r.has(status, layout.WRITEABLE)), layout.READ_ONLY)
    cpu = const(I64, layout.CPU)
    put_tensor(r, a, array["data"], r.and_(element, 255), cpu, marks, low, high)


@reads_layout("array")
def array_layout(r: Routine, value: V) -> tuple[V, V, V]:
    """The layout of a NumPy array; its strides are in bytes."""
    array = r.ref("Array", value)
    return r.zext(array["nd"], I64), array["dims"], array["strides"]


def _gapless_owner(r: Routine, value: V) -> V:
    """The array at the end of an array's chain of bases: views may share all of its memory. Exits
    the routine if a base is not an array, or the owner is not contiguous."""
    with r.repeated(value) as loop:
        view = r.ref("Array", loop.carried[0])
        base = view["base"]
        loop.stop_if(r.eq(base, 0))
        r.require(r.is_a(base, "ndarray"))
        loop.following = [base]
    r.require(r.has(view["flags"], layout.CONTIGUOUS))
    return view.address


def _element_of(r: Routine, array: Ref) -> V:
    """An array's element type in the lowest byte, the element's size in the bits above it."""
    return r.not_null(_lookup(r, r.rt.at("elements"), array["descr"]))


def _bytes_of(r: Routine, array: Ref) -> V:
    """The size of an array's elements, in bytes."""
    size = r.lshr(_element_of(r, array), 8)
    dims = array["dims"]
    with r.loop(0, r.zext(array["nd"], I64), carried=[size]) as loop:
        dim = r.load(I64, r.gep(I64, dims, loop.index))
        loop.yield_([r.mul(loop.carried[0], dim)])
    return loop.results[0]


def _lookup(r: Routine, table: V, key: V) -> V:
    """The value of a key in a hash table (`layout.table_of`); 0 if there is none."""
    start = r.lshr(r.mul(key, layout.HASH_FACTOR), layout.HASH_SHIFT)
    with r.repeated(start) as loop:
        pair = r.gep(I64, table, r.shl(loop.carried[0], 1))
        theirs = r.load(I64, pair)
        loop.stop_if(r.or_(r.eq(theirs, key), r.eq(theirs, 0)))
        loop.following = [r.urem(r.add(loop.carried[0], 1), BUCKETS)]
    return r.load(I64, r.gep(I64, pair, 1))  # 0 for an empty pair


# -- torch's --------------------------------------------------------------------------------------


@reads("torch")
@outlined
def read_torch(r: Routine, a: Argument) -> None:
    """A torch tensor, by torch's C functions (see torch_tensors.py)."""
    tensor = r.gep(I8, a.value, r.rt["torch_offset"])
    with r.when(r.has(a.param["flags"], layout.ONLY_ADDRESS)):
        (address,) = _torch(r, tensor, data_ptr=I64)
        with r.when(r.ne(address, 0)):  # that of a tensor without elements or memory is 0
            a.put(r, address)
            r.ret(True)
    where, type, address = _torch(r, tensor, device_type=I32, dtype=I32, data_ptr=I64)
    r.require(r.icmp("ult", type, TORCH_DTYPES))
    element = r.not_null(r.rt.get("torch_elements", r.zext(type, I64)))
    device = r.choose(
        r.eq(where, layout.TORCH_CUDA),
        lambda: _cuda_device(r, tensor),
        lambda: _cpu_device(r, where),
    )
    # Overlap is decided by the storage, not by the view.
    size, offset = _torch(r, tensor, storage_size=I64, storage_offset=I64)
    # data_ptr of a tensor without elements is 0, regardless of its storage's address.
    r.require(r.or_(r.ne(address, 0), r.eq(size, 0)))
    low = r.sub(address, r.mul(offset, r.rt.get("element_bytes", element)))
    put_tensor(r, a, address, element, device, const(I64, 0), low, r.add(low, size))


@reads_layout("torch")
def torch_layout(r: Routine, value: V) -> tuple[V, V, V]:
    """The layout of a torch tensor."""
    r.require(r.ne(r.rt[layout.TORCH_LAYOUT[0]], 0))
    tensor = r.gep(I8, value, r.rt["torch_offset"])
    dim, sizes, strides = _torch(r, tensor, dim=I64, sizes=PTR, strides=PTR)
    return dim, sizes, strides


def _cuda_device(r: Routine, tensor: V) -> V:
    (index,) = _torch(r, tensor, device_index=I32)
    r.require(r.icmp("sge", index, 0))
    return r.add(r.sext(index, I64), 1)


def _cpu_device(r: Routine, where: V) -> V:
    r.require(r.eq(where, layout.TORCH_CPU))
    return const(I64, layout.CPU)


def _torch(r: Routine, tensor: V, **results: LType) -> list[V]:
    """The results of torch's C functions for a tensor. They return a nonzero status for tensors
    without storage, such as sparse ones; then the routine exits."""
    places: list[V] = []
    failed = const(I32, 0)
    for name, type in results.items():
        places.append(r.alloca(type))
        failed = r.or_(failed, r.call(r.rt[f"torch_get_{name}"], I32, [tensor, places[-1]]))
    r.require(r.eq(failed, 0))
    return [r.load(type, at) for type, at in zip(results.values(), places, strict=True)]


# -- other libraries' -----------------------------------------------------------------------------


@reads("foreign")
@outlined
def read_foreign(r: Routine, a: Argument) -> None:
    """A tensor of a class that the slow path has registered, by the C function of its library, or
    else by its Python reader."""
    type = r.type_of(a.value)
    function = r.api("PyDict_GetItemWithError", r.rt["native_readers"], type)
    with r.when(r.ne(function, 0)):
        _read_by_function(r, a, r.gep(I8, function, FIELDS["Bytes"]["data"].offset))
        r.ret(True)
    readers = r.rt.get("kinds_met", KINDS.index(FOREIGN))
    reader = r.not_null(r.api("PyDict_GetItemWithError", readers, type), clear=True)
    with r.owned(r.retain(reader)):
        reading = r.not_null(r.python(reader, a.value), clear=True)
    with r.owned(reading):
        r.require(r.is_a(reading, "tuple"))
        r.require(r.eq(r.size_of(reading), 6))
        _put_reading(r, a, *(r.item(reading, i) for i in range(6)))


def _read_by_function(r: Routine, a: Argument, record: V) -> None:
    """Read a tensor by a C function; the record has its address and the name of the device."""
    function, name = (r.load(PTR, r.gep(PTR, record, i)) for i in range(2))
    reading = r.ref("Reading", r.alloca(array(I64, 4)))
    r.require(r.eq(r.call(function, I32, [a.value, reading.address]), 0), clear=True)
    table = r.rt.at("dlpack_elements")
    element = r.not_null(_lookup(r, table, r.zext(reading["dtype"], I64)))
    marks = r.bit_if(r.ne(reading["read_only"], 0), layout.READ_ONLY)
    device = _number_in(r, "device_numbers", name)
    at, low, high = (reading[field] for field in ("address", "low", "high"))
    _put_extent(r, a, at, element, device, marks, low, high)


def _number_in(r: Routine, numbers: str, name: V) -> V:
    """The number of an element type or device, by its name."""
    found = r.not_null(r.api("PyDict_GetItemWithError", r.rt[numbers], name), clear=True)
    known = small(r, found)
    r.require(r.icmp("sge", known, 0))
    return known


def _put_reading(
    r: Routine, a: Argument, address: V, element: V, device: V, low: V, high: V, writable: V
) -> None:
    def number(name: str, object: V) -> V:
        found = r.api(name, object)
        r.require(r.eq(r.api("PyErr_Occurred"), 0), clear=True)
        return found

    at = number("PyLong_AsUnsignedLongLong", address)
    start, end = (number("PyLong_AsLongLong", object) for object in (low, high))
    element = _number_in(r, "element_numbers", element)
    device = _number_in(r, "device_numbers", device)
    marks = r.bit_if(r.ne(writable, r.rt["true"]), layout.READ_ONLY)
    _put_extent(r, a, at, element, device, marks, start, end)


def _put_extent(
    r: Routine, a: Argument, address: V, element: V, device: V, marks: V, low: V, high: V
) -> None:
    """`put_tensor` for a range of which `low` is negative if it is unknown."""
    unknown = r.icmp("slt", low, 0)
    marks = r.or_(marks, r.bit_if(unknown, layout.UNKNOWN))
    put_tensor(r, a, address, element, device, marks, r.select(unknown, const(I64, 0), low), high)
