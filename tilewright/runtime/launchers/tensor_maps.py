"""Tensor maps: the descriptions of tensors for the hardware, from which kernels copy blocks.

    maps = TensorMaps(device(0), kernel.metadata["tensor_maps"])
    addresses = maps.addresses(arguments)       # None where the hardware can't describe a tensor

A map is 128 bytes that the driver encodes from an address, extents and strides. It does not depend
on the contents of memory, so maps are cached by their arguments. The hardware does not support
empty tensors: a tensor without elements is described as a single zero, as copies of blocks outside
of a tensor are zeros.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

from tilewright.base.machine_code import address_of
from tilewright.runtime.devices.cuda import Device
from tilewright.runtime.devices.cuda_function import capture_allowed
from tilewright.runtime.native.layout import (
    MAP_ALIGN,
    MAP_BYTES,
    MAP_SETS,
    MAX_MAP_EXTENT,
    MAX_MAP_STRIDE,
    MAX_MAP_TERMS,
    MAX_MAP_WORDS,
    MAX_MAPS,
    MAX_RANK,
    PROMOTE_TO_128_BYTES,
    STRIDE_ALIGN,
)
from tilewright.runtime.native.structure import Structure

MAX_KEPT: Final = 1024
"""The number of sets of maps in a kernel's cache; a full cache is emptied."""

# Numbers of the driver's CUtensorMapDataType and CUtensorMapSwizzle: copies only move bits, so an
# integer type represents all types of its width.
_TYPES = {1: 0, 2: 1, 4: 2, 8: 4}
_FP32 = 7  # for additions, which do not only move bits
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}

Sum = Sequence[Sequence[Any]]


def value_of(terms: Sum, arguments: Sequence[int]) -> int:
    """A sum of products of arguments: ``value_of([(2, (0, 1)), (5, ())], [3, 4]) == 29``."""
    return sum(factor * prod(arguments[i] for i in numbers) for factor, numbers in terms)


class _Kept:
    """Maps that follow each other in memory."""

    def __init__(self, count: int) -> None:
        self._room = ctypes.create_string_buffer(MAP_BYTES * count + MAP_ALIGN)
        start = -(-ctypes.addressof(self._room) // MAP_ALIGN) * MAP_ALIGN
        self.addresses = [start + MAP_BYTES * i for i in range(count)]


class TensorMaps:
    """The maps of a kernel's launches.

    Args:
        device: where the kernel runs.
        facts: for each map, as `targets/nvidia/tma.TensorMap` describes it.
    """

    def __init__(self, device: Device, facts: Sequence[Mapping[str, Any]]) -> None:
        self._device = device
        self._facts = facts
        self.arguments = sorted(
            {f["base"] for f in facts}
            | {i for f in facts for terms in _sums(f) for _, numbers in terms for i in numbers}
        )
        self._kept: dict[tuple[int, ...], _Kept | None] = {}
        # The previous sets: a launch in another thread may be reading them.
        self._older: dict[tuple[int, ...], _Kept | None] = {}
        self._native: list[Any] = []  # memory of native code

    def addresses(self, arguments: Sequence[int]) -> list[int] | None:
        """The addresses of the maps for a launch; None where there is no such map.

        Args:
            arguments: all of the kernel's arguments; addresses as ints. Only those listed in
                `self.arguments` are read.
        """
        key = tuple(arguments[i] for i in self.arguments)
        try:
            kept = self._kept[key]
        except KeyError:
            if len(self._kept) >= MAX_KEPT:
                self._kept, self._older = {}, self._kept
            kept = self._kept[key] = self._make(arguments)
        return None if kept is None else kept.addresses

    def native_fields(self) -> dict[str, int | Sequence[int]] | None:
        """The fields with which native code creates and caches maps; None if it cannot."""
        plans = [_plan(facts) for facts in self._facts]
        if len(self.arguments) > MAX_MAP_WORDS or len(plans) > MAX_MAPS or None in plans:
            return None
        table = Structure("MapPlan", len(plans))
        for i, plan in enumerate(plans):
            for field, words in (plan or {}).items():
                table.put_words(field, words, i)
        sets = Structure("MapSet", MAP_SETS)
        room = _Kept(MAP_SETS * len(plans))
        self._native += [table, sets, room]
        return {
            "map_sets": sets.address,
            "map_room": room.addresses[0],
            "map_plans": table.address,
            "map_encode": address_of(self._device.api.cuTensorMapEncodeTiled),
            "map_count": len(plans),
            "map_word_count": len(self.arguments),
            "map_arguments": self.arguments,
        }

    def _make(self, arguments: Sequence[int]) -> _Kept | None:
        kept = _Kept(len(self._facts))
        for facts, address in zip(self._facts, kept.addresses, strict=True):
            if not self._encode(address, facts, arguments):
                return None
        return kept

    def _encode(self, address: int, facts: Mapping[str, Any], arguments: Sequence[int]) -> bool:
        """Encode a map; False if the hardware cannot describe the tensor."""
        size: int = facts["element_bytes"]
        base = arguments[facts["base"]] + value_of(facts["offset"], arguments) * size
        extents = [value_of(terms, arguments) for terms in facts["extents"]]
        strides = [value_of(terms, arguments) * size for terms in facts["strides"][1:]]
        box: Sequence[int] = facts["box"]
        if any(extent <= 0 for extent in extents):
            if facts["added"]:
                return False  # there is no memory that may be added to
            base, extents = _zeros(self._device), [1] * len(extents)
            strides = [STRIDE_ALIGN] * len(strides)
        if (
            base % STRIDE_ALIGN
            or any(extent > MAX_MAP_EXTENT for extent in extents)
            or not all(0 < s < MAX_MAP_STRIDE and s % STRIDE_ALIGN == 0 for s in strides)
        ):
            return False
        rank = len(extents)
        words, numbers = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
        status = self._device.api.cuTensorMapEncodeTiled(
            address,
            _type_of(facts),
            rank,
            base,
            words(*extents),
            words(*strides),
            numbers(*box),
            numbers(*[1] * rank),
            0,
            _SWIZZLES[facts["swizzle"]],
            PROMOTE_TO_128_BYTES,
            0,
        )
        return status == 0


def _type_of(facts: Mapping[str, Any]) -> int:
    return _FP32 if facts["added"] else _TYPES[facts["element_bytes"]]


def _plan(facts: Mapping[str, Any]) -> dict[str, list[int]] | None:
    """The fields of a `MapPlan`; None where a sum has too many terms or factors."""
    offset, extents, strides = facts["offset"], facts["extents"], facts["strides"]
    empty: list[Sum] = [()] * (MAX_RANK - len(extents))
    sums = [_sum_words(terms) for terms in (offset, *extents, *empty, *strides[1:], *empty)]
    if None in sums:
        return None
    box = list(facts["box"])
    return {
        "base": [facts["base"]],
        "type": [_type_of(facts)],
        "rank": [len(extents)],
        "element_bytes": [facts["element_bytes"]],
        "swizzle": [_SWIZZLES[facts["swizzle"]]],
        "box": _packed(box),
        "ones": _packed([1] * len(box)),
        "sums": [word for words in sums for word in words or ()],
    }


def _sum_words(terms: Sum) -> list[int] | None:
    """The words of a `MapSum`."""
    small = all(len(numbers) <= 2 and abs(factor) < 1 << 31 for factor, numbers in terms)
    if len(terms) > MAX_MAP_TERMS or not small:
        return None
    words = [len(terms)]
    for factor, numbers in terms:
        words += [factor, *numbers, *[-1] * (2 - len(numbers))]
    return words + [0] * (1 + 3 * MAX_MAP_TERMS - len(words))


def _packed(numbers: Sequence[int]) -> list[int]:
    """32-bit numbers, two in a word."""
    padded = [*numbers, 0]
    return [padded[i] | padded[i + 1] << 32 for i in range(0, len(numbers), 2)]


_ZEROS: dict[int, int] = {}


def _zeros(device: Device) -> int:
    """The address of an element of zeros on a device, which is never freed."""
    if device.index not in _ZEROS:
        address, doing = ctypes.c_void_p(), f"allocating {MAP_ALIGN} bytes on {device.name}"
        api = device.api
        with device.current(), capture_allowed(device):
            device.check(api.cuMemAllocAsync(ctypes.byref(address), MAP_ALIGN, None), doing)
            device.check(api.cuMemsetD32Async(address, 0, MAP_ALIGN // 4, None), doing)
            device.check(api.cuStreamSynchronize(None), doing)
        _ZEROS[device.index] = address.value or 0
    return _ZEROS[device.index]


def _sums(facts: Mapping[str, Any]) -> list[Sum]:
    return [facts["offset"], *facts["extents"], *facts["strides"]]
