"""The memory of a device: buffers with guarded ends, and accesses by addresses of each lane."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.amd_emulator.accesses import Access
from tests.amd_emulator.floats import is_signalling, maximum_number, minimum_number, quiet
from tests.amd_emulator.state import Array, EmulatorError

_BASE = 0x7000_0000_0000
_GAP = 4096  # bytes between buffers, which nothing may access
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class Memory:
    """An address space that consists of buffers.

    memory = Memory()
    address = memory.place(array)
    memory.content(address)  # the bytes of the array
    """

    def __init__(self, base: int = _BASE) -> None:
        self.base = base
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.data = np.zeros(0, np.uint8)
        self._limits: tuple[Array, Array] | None = None

    def place(self, content: Array, align: int = 256) -> int:
        """Copy bytes into a new buffer; returns its address."""
        raw = np.ascontiguousarray(content).view(np.uint8).reshape(-1)
        start = -(-(len(self.data) + _GAP) // align) * align
        grown = np.zeros(-(-(start + len(raw) + _GAP) // 64) * 64, np.uint8)
        grown[: len(self.data)] = self.data
        grown[start : start + len(raw)] = raw
        self.data = grown
        self._starts.append(self.base + start)
        self._ends.append(self.base + start + len(raw))
        self._limits = None
        return self.base + start

    def content(self, address: int) -> Array:
        """The bytes of the buffer that begins at an address."""
        i = self._starts.index(address)
        return self.data[address - self.base : self._ends[i] - self.base]

    def offsets(self, addresses: Array, size: int) -> Array:
        """Where the bytes at addresses are in `data`.

        Raises:
            EmulatorError: an access of `size` bytes would leave the buffers.
        """
        if self._limits is None:
            starts, ends = np.array(self._starts, np.uint64), np.array(self._ends, np.uint64)
            self._limits = starts, ends
        starts, ends = self._limits
        place = np.searchsorted(starts, addresses, side="right") - 1
        wrong = (place < 0) | (addresses + np.uint64(size) > ends[np.maximum(place, 0)])
        if wrong.any():
            bad = int(addresses[wrong][0])
            raise EmulatorError(
                f"access of {size} bytes at {bad:#x}, out of bounds; buffers: "
                + ", ".join(
                    f"{a:#x} to {b:#x}" for a, b in zip(self._starts, self._ends, strict=True)
                )
            )
        return (addresses - np.uint64(self.base)).astype(np.int64)


def load(data: Array, offsets: Array, access: Access) -> list[Array]:
    """The registers of a load for each offset, extended to words."""
    if access.size < 4:
        value = _gather(data, offsets, access.size)
        if access.kind == "i":
            value = value.view(f"i{access.size}").astype(np.int32).view(np.uint32)
        return [value.astype(np.uint32)]
    return [_gather(data, offsets + 4 * i, 4) for i in range(access.words)]


def store(data: Array, offsets: Array, values: list[Array], access: Access) -> None:
    """Write registers at offsets; of several to one place the last one stays."""
    if access.size < 4:
        _scatter(data, offsets, values[0].astype(_WORDS[access.size]), access.size)
        return
    for i, value in enumerate(values):
        _scatter(data, offsets + 4 * i, value, 4)


def _gather(data: Array, offsets: Array, size: int) -> Array:
    if size == 1:
        return data[offsets]
    if not (offsets & (size - 1)).any():
        return data.view(_WORDS[size])[offsets >> (size.bit_length() - 1)]
    rows = data[offsets[:, None] + np.arange(size)]
    return np.ascontiguousarray(rows).view(_WORDS[size])[:, 0]


def _scatter(data: Array, offsets: Array, values: Array, size: int) -> None:
    if size == 1:
        data[offsets] = values
    elif not (offsets & (size - 1)).any():
        data.view(_WORDS[size])[offsets >> (size.bit_length() - 1)] = values
    else:
        rows = np.ascontiguousarray(values)[:, None].view(np.uint8)
        data[offsets[:, None] + np.arange(size)] = rows


# -- atomics --------------------------------------------------------------------------------------

_TYPES: dict[str, Any] = {
    "u32": np.uint32, "i32": np.int32, "u64": np.uint64, "i64": np.int64, "f32": np.float32,
    "f64": np.float64, "v2f16": np.uint32, "v2bf16": np.uint32,
}  # fmt: skip


def atomic(data: Array, offsets: Array, access: Access, values: Array, compare: Array) -> Array:
    """Apply an atomic operation at each offset, one lane after the other; returns what was there.

    Values are unsigned, with the size of the access; `compare` is used by compare-and-swap only.
    """
    if (offsets % access.size).any():
        raise EmulatorError("an atomic access is not aligned")
    words = data.view(f"u{access.size}")
    places = offsets // access.size
    before = np.zeros(len(places), words.dtype)
    left = np.arange(len(places))
    while len(left):
        # The first lane of each address in turn, so that all of a round are apart.
        unique, first = np.unique(places[left], return_index=True)
        now = left[first]
        before[now] = words[unique]
        words[unique] = _updated(access, before[now], values[now], compare[now])
        left = np.delete(left, first)
    return before


def _updated(access: Access, old: Array, value: Array, compare: Array) -> Array:
    action, kind = access.action, access.kind
    if action in ("cmpswap", "cmpst", "cmpstore"):
        return np.where(old == compare, value, old)
    if action in ("swap", "wrxchg", "storexchg"):
        return value
    if action in ("and", "or", "xor"):
        return {"and": old & value, "or": old | value, "xor": old ^ value}[action]
    if kind.startswith("v2"):
        return _add_pairs(kind, old, value)
    form = _TYPES[kind]
    a, b = old.view(form), value.view(form)
    return _combined(action, a, b).astype(form).view(old.dtype)


def _combined(action: str, a: Array, b: Array) -> Array:
    if action == "add":
        return a + b
    if action == "sub":
        return a - b
    if action == "inc":
        return np.where(a >= b, a.dtype.type(0), a + a.dtype.type(1))
    if action == "dec":
        return np.where((a == 0) | (a > b), b, a - a.dtype.type(1))
    if action not in ("min", "max", "fmin", "fmax"):
        raise NotImplementedError(f"no semantics of atomic {action}")
    if a.dtype.kind != "f":
        return np.minimum(a, b) if action.endswith("min") else np.maximum(a, b)
    found = minimum_number(a, b) if action.endswith("min") else maximum_number(a, b)
    return np.where(is_signalling(a), quiet(a), found)


def _add_pairs(kind: str, old: Array, value: Array) -> Array:
    a, b = (np.ascontiguousarray(x)[:, None].view(np.uint16) for x in (old, value))
    if kind == "v2f16":
        total = (a.view(np.float16) + b.view(np.float16)).view(np.uint16)
    else:
        wide = (a.astype(np.uint32) << 16).view(np.float32)
        wide = wide + (b.astype(np.uint32) << 16).view(np.float32)
        raw = wide.view(np.uint32)
        rounded = raw + 0x7FFF + (raw >> 16 & 1) >> 16
        total = np.where(np.isnan(wide), raw >> 16 | 0x40, rounded).astype(np.uint16)
    return np.ascontiguousarray(total).view(np.uint32)[:, 0]
