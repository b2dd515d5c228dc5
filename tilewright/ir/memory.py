"""The interpreter's memory: the bytes of the kernel's arguments, accessed by address.

A pointer is an integer address, as on a device, so pointer arithmetic, casts and pointers stored in
memory need no special treatment. Stores write the caller's arrays directly. Errors that a device
does not detect can be detected here (see :class:`Checks`).
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tilewright.base.record import record
from tilewright.ir.core import Op
from tilewright.ir.races import History, Races, bytes_of
from tilewright.ir.types import Pointer, element_of, numpy_of

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]

# No process can own memory below this address; such an address is an offset from a null pointer.
NULL_PAGE = 4096


class MemoryFault(Exception):
    """An invalid access. The message names the lane, the kind of access and the address.

    The interpreter converts it to an `InterpreterError` with the source line and the program.
    """


class OutOfBounds(MemoryFault):
    """An access outside all buffers."""


@record
class Checks:
    """The run-time errors that the interpreter detects.

    Attributes:
        out_of_bounds: accesses outside all buffers. If disabled, or if the extent of some buffer is
            unknown, other addresses access the memory of the process.
        uninitialised: reads of bytes that have not been written, in buffers that the caller
            declared uninitialised (`Buffer.initialised`).
        races: accesses of two programs to the same byte, at least one of them a non-atomic store,
            that no atomic operations order.
        overflow: signed sums, differences and products in fewer than 64 bits that overflow, such as
            an offset of 2^31 elements.
    """

    out_of_bounds: bool = True
    uninitialised: bool = False
    races: bool = False
    overflow: bool = False


@record
class Buffer:
    """Memory that a kernel may access.

    Attributes:
        address: the value of the kernel's pointer, in bytes.
        extent: the first address of the memory and the one past its end; None if unknown.
        writable: whether stores are allowed.
        initialised: whether the kernel may read bytes that it has not written.
        name: its name in messages; if empty, that of the argument.
        image: for memory of another device, the address of a host copy of the bytes of `extent`;
            None for host memory.
        owner: an object that keeps the memory alive.
    """

    address: int
    extent: tuple[int, int] | None = None
    writable: bool = True
    initialised: bool = True
    name: str = ""
    image: int | None = None
    owner: Any = None

    @property
    def shift(self) -> int:
        """The offset from the address of a byte to its host address."""
        return 0 if self.image is None or self.extent is None else self.image - self.extent[0]

    @classmethod
    def of(cls, array: Array, *, initialised: bool = True, name: str = "") -> Buffer:
        """The bytes spanned by the elements of an array (a view's, not those of its base).

        >>> reverse = Buffer.of(np.zeros(4, np.float32)[::-1])
        >>> [end - reverse.address for end in reverse.extent]
        [-12, 4]
        """
        low, high = np.lib.array_utils.byte_bounds(array)
        return cls(
            address=array.__array_interface__["data"][0],
            extent=(low, high if array.size else low),
            writable=array.flags.writeable,
            initialised=initialised,
            name=name,
            owner=array,
        )


class _Allocation:
    """A contiguous range of addresses: one buffer, or several that overlap."""

    def __init__(self, start: int, stop: int, buffers: list[Buffer], checks: Checks) -> None:
        self.start = start
        self.stop = stop
        self.writable = any(b.writable for b in buffers)
        (shift,) = {b.shift for b in buffers}  # overlapping buffers have one host copy
        self._raw: Any = (ctypes.c_uint8 * (stop - start)).from_address(start + shift)
        self._elements: dict[int, Array] = {}
        self.written: Array | None = None
        if checks.uninitialised and not all(b.initialised for b in buffers):
            self.written = np.zeros(stop - start, np.bool_)
            for b in buffers:
                if b.initialised and b.extent is not None:
                    self.written[b.extent[0] - start : b.extent[1] - start] = True
        self.history = History(stop - start) if checks.races else None

    def elements(self, size: int) -> Array:
        """A view whose item i is the element of `size` bytes at byte offset i, aligned or not."""
        view = self._elements.get(size)
        if view is None:
            count = self.stop - self.start - size + 1
            view = np.ndarray((count,), f"u{size}", self._raw, 0, (1,))
            self._elements[size] = view
        return view


def _merge(buffers: Sequence[Buffer], checks: Checks) -> list[_Allocation]:
    """Allocations in ascending order of address; overlapping buffers share one."""
    known = sorted(
        ((b.extent, b) for b in buffers if b.extent is not None), key=lambda found: found[0]
    )
    groups: list[tuple[int, int, list[Buffer]]] = []
    for (start, stop), buffer in known:
        if groups and start < groups[-1][1]:
            first, last, members = groups[-1]
            groups[-1] = first, max(last, stop), [*members, buffer]
        elif start < stop:
            groups.append((start, stop, [buffer]))
    return [_Allocation(*group, checks) for group in groups]


class _Access(NamedTuple):
    """The lanes and addresses of one execution of a memory op."""

    op: Op
    verb: str
    shape: tuple[int, ...]
    mask: Array | None
    addresses: Array  # of the active lanes, in row-major order
    size: int
    chosen: Array | None = None  # indices of active lanes that `addresses` is restricted to

    def only(self, chosen: Array) -> _Access:
        """This access restricted to some of the active lanes."""
        return self._replace(addresses=self.addresses[chosen], chosen=chosen)

    def lane(self, i: int) -> str:
        """The lane of the i-th address, for messages."""
        if not self.shape:
            return "it"
        if self.chosen is not None:
            i = int(self.chosen[i])
        flat = i if self.mask is None else int(np.flatnonzero(self.mask)[i])
        index = tuple(int(k) for k in np.unravel_index(flat, self.shape))
        return f"lane {index}"


class Memory:
    """The address space of the interpreter.

    Args:
        buffers: all accessible memory.
        checks: the errors to detect.
        grid: the extent of the launch, for the race detector.
    """

    def __init__(
        self,
        buffers: Sequence[Buffer] = (),
        checks: Checks | None = None,
        grid: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        self.buffers = list(buffers)
        self.checks = checks or Checks()
        self._allocations = _merge(buffers, self.checks)
        self._starts = [a.start for a in self._allocations]
        unknown = any(b.extent is None for b in buffers)
        # An address of another device must not be dereferenced by this process.
        copied = any(b.image is not None for b in buffers)
        self._open = (unknown or not self.checks.out_of_bounds) and not copied
        self._grid = grid
        self._races = Races(prod(grid)) if self.checks.races else None

    def begin_program(self, program: tuple[int, int, int]) -> None:
        """Attribute the following accesses to this program."""
        if self._races is not None:
            width, height, _ = self._grid
            x, y, z = program
            self._races.begin_program(x + width * (y + height * z))

    # -- called by ops --------------------------------------------------------------------------

    def load(self, op: Op, ptr: Array, mask: Array | None, other: Array | None) -> Array:
        """The elements at `ptr`; `other`, or 0 if it is None, in lanes where `mask` is false.

        A bool is true if its byte is not 0.
        """
        pointer = element_of(op.operands[0].type)
        assert isinstance(pointer, Pointer)
        dtype = numpy_of(pointer.element_ty)
        access = _access(op, "reads", ptr, mask, dtype.itemsize)
        found = _decode(self._gather(access), dtype)
        if mask is None:
            return found.reshape(ptr.shape)
        out = np.zeros(ptr.shape, dtype) if other is None else np.array(other)
        out[mask] = found
        return out

    def store(self, op: Op, ptr: Array, value: Array, mask: Array | None) -> None:
        """Write `value`; of lanes with the same address the last in row-major order wins."""
        access = _access(op, "writes", ptr, mask, value.dtype.itemsize)
        self._scatter(access, _encode(value.ravel() if mask is None else value[mask]))

    def atomic(self, op: Any, ptr: Array, value: Array, mask: Array | None) -> Array:
        """Read-modify-write by `op.kind`, lane by lane in row-major order; returns the old values.

        Masked-off lanes return 0. Float minima and maxima of a number and a NaN are the number, and
        -0.0 is less than 0.0, as for `arith.min`.
        """
        combine = _COMBINE[op.kind]
        access = _access(op, "updates", ptr, mask, value.dtype.itemsize)
        values = value.ravel() if mask is None else value[mask]
        old = np.zeros(values.shape, value.dtype)
        self._begin_atomic(access, op.sem)
        for lanes in _waves(access.addresses):
            part = access.only(lanes)
            old[lanes] = _decode(self._gather(part), value.dtype)
            self._scatter(part, _encode(combine(old[lanes], values[lanes])))
        self._end_atomic(access, op.sem)
        return _spread(old, ptr.shape, mask)

    def compare_and_swap(
        self, op: Any, ptr: Array, expected: Array, value: Array, mask: Array | None
    ) -> Array:
        """Write `value` where memory equals `expected` bit for bit; returns the old values.

        Masked-off lanes return 0.
        """
        access = _access(op, "updates", ptr, mask, value.dtype.itemsize)
        taken = [a.ravel() if mask is None else a[mask] for a in (expected, value)]
        compared, new = (_encode(a) for a in taken)
        old = np.zeros_like(new)
        self._begin_atomic(access, op.sem)
        for lanes in _waves(access.addresses):
            part = access.only(lanes)
            old[lanes] = self._gather(part)
            self._scatter(part, np.where(old[lanes] == compared[lanes], new[lanes], old[lanes]))
        self._end_atomic(access, op.sem)
        return _spread(_decode(old, value.dtype), ptr.shape, mask)

    def atomic_load(self, op: Any, ptr: Array, mask: Array | None) -> Array:
        """The elements at `ptr`; 0 in masked-off lanes."""
        dtype = numpy_of(op.result.type)
        access = _access(op, "reads atomically", ptr, mask, dtype.itemsize)
        self._begin_atomic(access, op.sem)
        return _spread(_decode(self._gather(access), dtype), ptr.shape, mask)

    def atomic_store(self, op: Any, ptr: Array, value: Array, mask: Array | None) -> None:
        """Write `value`; of lanes with the same address the last in row-major order wins."""
        access = _access(op, "writes atomically", ptr, mask, value.dtype.itemsize)
        self._begin_atomic(access, op.sem)
        self._scatter(access, _encode(value.ravel() if mask is None else value[mask]))
        self._end_atomic(access, op.sem)

    def poll(
        self, op: Any, ptr: Array, expected: Array, mask: Array | None, gives_up: bool
    ) -> Array:
        """Whether memory equals `expected` bit for bit; False in masked-off lanes.

        Programs run sequentially, so memory does not change while this one waits.

        Args:
            gives_up: whether the op has a timeout. Without one, an unequal lane is a deadlock.

        Raises:
            MemoryFault: a deadlock.
        """
        access = _access(op, "waits for", ptr, mask, expected.dtype.itemsize)
        self._begin_atomic(access, op.sem)
        awaited = expected.ravel() if mask is None else expected[mask]
        equal = self._gather(access) == _encode(awaited)
        if not gives_up and not equal.all():
            i = int(np.flatnonzero(~equal)[0])
            address = int(access.addresses[i])
            raise MemoryFault(
                f"deadlock: {access.lane(i)} waits until {awaited[i]} is in "
                f"{self.where(address, access.size)}, but programs run sequentially; a program may "
                "only wait for programs that precede it in the grid"
            )
        return _spread(equal, ptr.shape, mask)

    # -- bytes ----------------------------------------------------------------------------------

    def _gather(self, access: _Access) -> Array:
        """The bits at the addresses, as unsigned integers."""
        bits = np.empty(len(access.addresses), f"u{access.size}")
        for allocation, lanes, addresses in self._places(access):
            if allocation is None:
                raw = b"".join(ctypes.string_at(a, access.size) for a in addresses.tolist())
                bits[lanes] = np.frombuffer(raw, bits.dtype)
            else:
                offsets = (addresses - np.uint64(allocation.start)).astype(np.int64)
                self._check_read(access, allocation, lanes, offsets)
                bits[lanes] = allocation.elements(access.size)[offsets]
        return bits

    def _scatter(self, access: _Access, bits: Array) -> None:
        for allocation, lanes, addresses in self._places(access):
            part = bits[lanes]
            if allocation is None:
                for address, item in zip(addresses.tolist(), part, strict=True):
                    ctypes.memmove(address, item.tobytes(), access.size)
            else:
                offsets = (addresses - np.uint64(allocation.start)).astype(np.int64)
                self._check_write(access, allocation, lanes, offsets)
                # With repeated indices, NumPy's assignment keeps the last value.
                allocation.elements(access.size)[offsets] = part

    def _places(self, access: _Access) -> Iterator[tuple[_Allocation | None, Any, Array]]:
        """The active lanes grouped by allocation: (allocation, lanes, their addresses). The
        allocation is None for addresses outside all of them, if these may be accessed."""
        addresses, size = access.addresses, access.size
        if len(addresses) == 0:
            return
        low, high = int(addresses.min()), int(addresses.max())
        first = bisect_right(self._starts, low) - 1
        if first >= 0 and high + size <= self._allocations[first].stop:
            yield self._allocations[first], slice(None), addresses
            return
        places = np.searchsorted(np.array(self._starts, np.uint64), addresses, "right") - 1
        stops = np.array([a.stop for a in self._allocations] or [0], np.uint64)[places]
        inside = (places >= 0) & (addresses < stops) & (stops - addresses >= np.uint64(size))
        outside = np.flatnonzero(~inside)
        if len(outside):
            self._check_bounds(access, outside)
            yield None, outside, addresses[outside]
        for place in np.unique(places[inside]):
            lanes = np.flatnonzero(inside & (places == place))
            yield self._allocations[place], lanes, addresses[lanes]

    # -- checks ---------------------------------------------------------------------------------

    def _check_bounds(self, access: _Access, outside: Array) -> None:
        addresses = access.addresses[outside]
        bad = addresses < np.uint64(NULL_PAGE) if self._open else np.ones(len(outside), np.bool_)
        if not bad.any():
            return
        i = int(np.flatnonzero(bad)[0])
        address = int(addresses[i])
        count = int(bad.sum())
        others = f" ({count} lanes do so)" if count > 1 else ""
        raise OutOfBounds(
            f"out of bounds: {access.lane(int(outside[i]))} {access.verb} {access.size} bytes at "
            f"{address:#x}, {self.where(address, access.size)}{others}"
        )

    def where(self, address: int, size: int = 1) -> str:
        """A description of an address relative to the nearest buffer, for messages."""
        if address < NULL_PAGE:
            return "a null pointer"
        known = [(*b.extent, b.name or "a buffer") for b in self.buffers if b.extent is not None]
        if not known:
            return "outside all arguments"
        start, stop, name = min(known, key=lambda b: max(b[0] - address, address + size - b[1], 0))
        extent = f"{name} ({stop - start} bytes)"
        if address < start:
            return f"{start - address} bytes before the start of {extent}"
        if address >= stop:
            past = f"{address - stop} bytes" if address > stop else "just"
            return f"{past} past the end of {extent}"
        if address + size > stop:
            return f"{stop - address} bytes before the end of {extent}"
        return f"byte {address - start} of {extent}"

    def _check_read(
        self, access: _Access, allocation: _Allocation, lanes: Any, offsets: Array
    ) -> None:
        if allocation.written is not None:
            ready = allocation.written[bytes_of(offsets, access.size)].all(1)
            if not ready.all():
                i = int(np.flatnonzero(~ready)[0])
                raise MemoryFault(
                    f"uninitialised: {access.lane(_position(lanes, i))} reads "
                    f"{self.where(allocation.start + int(offsets[i]))}, which was never written"
                )
        if self._races is not None and access.verb == "reads":
            self._check_race(access, allocation, lanes, offsets)

    def _check_write(
        self, access: _Access, allocation: _Allocation, lanes: Any, offsets: Array
    ) -> None:
        if not allocation.writable:
            raise MemoryFault(
                f"read-only: {access.lane(_position(lanes, 0))} {access.verb} "
                f"{self.where(allocation.start + int(offsets[0]))}"
            )
        if self._races is not None:
            self._check_race(access, allocation, lanes, offsets)
        if allocation.written is not None:
            allocation.written[bytes_of(offsets, access.size)] = True

    def _check_race(
        self, access: _Access, allocation: _Allocation, lanes: Any, offsets: Array
    ) -> None:
        assert self._races is not None
        assert allocation.history is not None
        found = self._races.record(
            access.op, access.verb == "writes", allocation.history, bytes_of(offsets, access.size)
        )
        if found is None:
            return
        i, number, op = found
        width, height, _ = self._grid
        program = number % width, number // width % height, number // (width * height)
        raise MemoryFault(
            f"race: {access.lane(_position(lanes, i))} {access.verb} "
            f"{self.where(allocation.start + int(offsets[i]))}, which program {program} accessed "
            f"by {op.name} at {op.loc or 'an unknown line'}; nothing orders the two"
        )

    def _begin_atomic(self, access: _Access, sem: str) -> None:
        misaligned = access.addresses % np.uint64(access.size) != 0
        if misaligned.any():
            i = int(np.flatnonzero(misaligned)[0])
            raise MemoryFault(
                f"misaligned: {access.lane(i)} {access.verb} {access.size} bytes at "
                f"{int(access.addresses[i]):#x}, which is not a multiple of {access.size}"
            )
        if self._races is not None and sem in ("acquire", "acq_rel"):
            self._races.acquire(access.addresses.tolist())

    def _end_atomic(self, access: _Access, sem: str) -> None:
        if self._races is not None and sem in ("release", "acq_rel"):
            self._races.release(access.addresses.tolist(), acquired=sem == "acq_rel")


def _position(lanes: Any, i: int) -> int:
    """The index of the active lane that is the i-th of `lanes`, as `_places` yields them."""
    return i if isinstance(lanes, slice) else int(lanes[i])


def _access(op: Op, verb: str, ptr: Array, mask: Array | None, size: int) -> _Access:
    addresses = ptr.ravel() if mask is None else ptr[mask]
    return _Access(op, verb, ptr.shape, mask, addresses, size)


def _spread(found: Array, shape: tuple[int, ...], mask: Array | None) -> Array:
    """The values of the active lanes scattered to all lanes; 0 in masked-off lanes."""
    if mask is None:
        return found.reshape(shape)
    out = np.zeros(shape, found.dtype)
    out[mask] = found
    return out


def _encode(values: Array) -> Array:
    return (
        values.astype(np.uint8)
        if values.dtype == np.bool_
        else values.view(f"u{values.dtype.itemsize}")
    )


def _decode(bits: Array, dtype: np.dtype[Any]) -> Array:
    return bits != 0 if dtype == np.bool_ else bits.view(dtype)


def _waves(addresses: Array) -> Iterator[Any]:
    """A partition of the lanes into groups without repeated addresses. Lanes with equal addresses
    are in consecutive groups, in their original order."""
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    starts = np.r_[True, ordered[1:] != ordered[:-1]] if len(ordered) else np.zeros(0, np.bool_)
    if starts.all():
        if len(ordered):
            yield np.arange(len(ordered))
        return
    positions = np.arange(len(ordered))
    rank = np.empty_like(positions)
    rank[order] = positions - np.maximum.accumulate(np.where(starts, positions, 0))
    by_rank = np.argsort(rank, kind="stable")
    ends = np.cumsum(np.bincount(rank))
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        yield by_rank[begin:end]


def _lesser(a: Array, b: Array, sign: float) -> Array:
    """Whether `a` is the minimum (sign 1) or the maximum (sign -1) of two floats."""
    below = a < b if sign > 0 else a > b
    zero = (a == b) & (np.signbit(a) if sign > 0 else ~np.signbit(a))
    return (b != b) | ((a == a) & (below | zero))


def _minimum(a: Array, b: Array) -> Array:
    return np.minimum(a, b) if a.dtype.kind in "iub" else np.where(_lesser(a, b, 1), a, b)


def _maximum(a: Array, b: Array) -> Array:
    return np.maximum(a, b) if a.dtype.kind in "iub" else np.where(_lesser(a, b, -1), a, b)


_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "max": _maximum,
    "min": _minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": lambda old, new: new,
}
