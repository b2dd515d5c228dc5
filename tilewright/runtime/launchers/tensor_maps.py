"""Tensor maps: the descriptions of tensors for the hardware, from which kernels copy blocks.

    maps = TensorMaps(device(0), kernel.metadata["tensor_maps"])
    addresses = maps.addresses(arguments)       # None where the hardware can't describe a tensor

A map is 128 bytes that the driver encodes from an address, extents and strides. It does not depend
on the contents of memory, so maps are cached by the arguments that they were encoded from. The
hardware has no empty tensors: one without elements is described as a single zero, as copies of
blocks outside of a tensor are zeros.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

from tilewright.runtime.devices.cuda import Device
from tilewright.runtime.devices.cuda_function import capture_allowed
from tilewright.runtime.native.layout import MAP_BYTES, MAP_SETS, MAX_MAP_WORDS, map_set_of
from tilewright.runtime.native.structure import Structure

MAP_ALIGN: Final = 64
MAX_KEPT: Final = 1024
"""The number of sets of maps in a kernel's cache; a full cache is emptied."""

# Limits of cuTensorMapEncodeTiled.
_ALIGNMENT = 16
_MAX_EXTENT = 1 << 32
_MAX_STRIDE = 1 << 40

# Numbers of the driver's CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapL2promotion: copies
# only move bits, so an integer type represents all types of its width.
_TYPES = {1: 0, 2: 1, 4: 2, 8: 4}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTE_TO_128_BYTES = 2

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
        self._sets = Structure("MapSet", MAP_SETS)

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
        if kept is None:
            return None
        self._show(key, kept)
        return kept.addresses

    def native_fields(self) -> dict[str, int | Sequence[int]] | None:
        """The fields with which native code looks up cached maps; None if it cannot."""
        if len(self.arguments) > MAX_MAP_WORDS:
            return None
        return {
            "map_sets": self._sets.address,
            "map_count": len(self._facts),
            "map_word_count": len(self.arguments),
            "map_arguments": self.arguments,
        }

    def _show(self, key: tuple[int, ...], kept: _Kept) -> None:
        """Publish maps to native code, under the words that they were encoded from."""
        if len(key) > MAX_MAP_WORDS:
            return
        words = [word % (1 << 64) for word in key]
        padding = [0] * (MAX_MAP_WORDS - len(words))
        entry = [*words, *padding, kept.addresses[0]]
        self._sets.put_words("words", entry, map_set_of(words))

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
            base, extents = _zeros(self._device), [1] * len(extents)
            strides = [_ALIGNMENT] * len(strides)
        if (
            base % _ALIGNMENT
            or any(extent > _MAX_EXTENT for extent in extents)
            or not all(0 < s < _MAX_STRIDE and s % _ALIGNMENT == 0 for s in strides)
        ):
            return False
        rank = len(extents)
        words, numbers = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
        status = self._device.api.cuTensorMapEncodeTiled(
            address,
            _TYPES[size],
            rank,
            base,
            words(*extents),
            words(*strides),
            numbers(*box),
            numbers(*[1] * rank),
            0,
            _SWIZZLES[facts["swizzle"]],
            _PROMOTE_TO_128_BYTES,
            0,
        )
        return status == 0


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
