"""Streams and scratch memory of CUDA launches: torch's if the program has loaded torch.

torch is never imported here. A program that has loaded it expects launches on torch's current
stream and memory from torch's allocator. Without torch, launches use the default stream and memory
comes from the driver's stream-ordered memory pool.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tilewright.runtime.devices.cuda import Device

DEFAULT_STREAM = 0
_FAKE_STREAM = 0x7FFFFFF0  # a handle that no stream has
_DL_CUDA = 2  # kDLCUDA of DLPack's DLDeviceType

# Returns the handle of torch's current stream on a device; None until torch is found.
_stream_of: Callable[[int], int] | None = None


def cuda_torch() -> Any:
    """The torch module, if the program has loaded one that was built for CUDA; else None."""
    torch = sys.modules.get("torch")
    # A module that another thread is still importing lacks some attributes.
    version = getattr(torch, "version", None)
    return torch if getattr(version, "cuda", None) and hasattr(torch, "cuda") else None


def current_stream(index: int) -> int:
    """The CUstream that launches on a device currently use."""
    return (_stream_of or _find_streams())(index)


def stream_function() -> Callable[[int], int]:
    """A function from a device's index to its current CUstream. It may be cached: its result stays
    correct if torch is imported later."""
    if _stream_of is None:
        _find_streams()
    return _stream_of or current_stream


def checked_stream_function(address: int, index: int) -> int:
    """Check that a C function of torch returns the same stream as `current_stream`.

    Args:
        address: of torch's DLPackCurrentWorkStream; 0 for none.
        index: of a device.

    Returns:
        `address` if the function works; else 0, and launches call `current_stream` through Python.
    """
    torch = cuda_torch()
    if not address or torch is None or stream_function() is not _raw_function(torch):
        return 0
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)
    function = kind(address)
    stream = ctypes.c_uint64()
    try:
        # No stream has this handle; torch stores it without any call of the driver.
        with torch.cuda.stream(torch.cuda.ExternalStream(_FAKE_STREAM, device=index)):
            status = function(_DL_CUDA, index, ctypes.addressof(stream))
            expected = current_stream(index)
    except Exception:  # an incompatible version of torch
        return 0
    return address if status == 0 and stream.value == expected == _FAKE_STREAM else 0


def _raw_function(torch: Any) -> Callable[[int], int] | None:
    """torch's private function: 0.1 µs; the public API, which creates two objects, takes 1 µs."""
    return getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)


def _find_streams() -> Callable[[int], int]:
    global _stream_of
    torch = cuda_torch()
    if torch is None:
        return _default_stream  # not cached, as torch may be imported later
    result: Callable[[int], int] = _raw_function(torch) or partial(_public_stream, torch)
    _stream_of = result
    return result


def _public_stream(torch: Any, index: int) -> int:
    return torch.cuda.current_stream(index).cuda_stream


def _default_stream(index: int) -> int:
    return DEFAULT_STREAM


@contextmanager
def chosen(device: Device) -> Generator[None]:
    """Make a device the current one inside the block, for torch as well if it is loaded."""
    torch = cuda_torch()
    with device.current() if torch is None else torch.cuda.device(device.index):
        yield


@contextmanager
def scratch(device: Device, size: int, alignment: int, stream: int) -> Generator[int]:
    """Device memory for the work that is enqueued on a stream inside the block: its address.

    The memory is freed in stream order after that work, without synchronisation. Both allocators
    support stream capture; the memory then belongs to the graph.

    Args:
        size, alignment: in bytes.
    """
    room = size + alignment - 1
    torch = cuda_torch()
    if torch is not None:
        memory = torch.empty(room, dtype=torch.uint8, device=device.name)
        yield -(-memory.data_ptr() // alignment) * alignment
        del memory  # torch's allocator reuses it for later work on this stream only
        return
    api, address = device.api, ctypes.c_void_p()
    doing = f"allocating {room} bytes of scratch memory on {device.name}"
    with device.current():
        device.check(api.cuMemAllocAsync(ctypes.byref(address), room, stream), doing)
        try:
            yield -(-(address.value or 0) // alignment) * alignment
        finally:
            api.cuMemFreeAsync(address, stream)
