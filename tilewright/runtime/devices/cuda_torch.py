"""Streams and scratch memory of CUDA launches: torch's, when the program has loaded it.

torch is never imported here. A program that has loaded it expects launches in torch's current
stream and memory from torch's allocator; without it they go to the default stream, and memory comes
from the driver's own pool.
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
_MADE_UP = 0x7FFFFFF0  # a handle that no stream has
_DL_CUDA = 2  # DLPack's number of CUDA's devices

# Gives the handle of torch's current stream on a device; None until torch is found.
_stream_of: Callable[[int], int] | None = None


def cuda_torch() -> Any:
    """The torch module, if the program has loaded one that was built for CUDA; else None."""
    torch = sys.modules.get("torch")
    # A module that another thread is just importing lacks its attributes.
    version = getattr(torch, "version", None)
    return torch if getattr(version, "cuda", None) and hasattr(torch, "cuda") else None


def current_stream(index: int) -> int:
    """The handle of the stream that launches on a device go to now."""
    return (_stream_of or _find_streams())(index)


def stream_function() -> Callable[[int], int]:
    """What gives the handle of a device's current stream, for those who keep it: it is right also
    when torch is imported later."""
    if _stream_of is None:
        _find_streams()
    return _stream_of or current_stream


def checked_stream_function(address: int, index: int) -> int:
    """The address of a C function that tells what `current_stream` does; 0 unless it does so.

    Args:
        address: of a DLPackCurrentWorkStream of torch's; 0 for none.
        index: of a device.
    """
    torch = cuda_torch()
    if not address or torch is None or stream_function() is not _raw_function(torch):
        return 0
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)
    function = kind(address)
    told = ctypes.c_uint64()
    try:
        # A stream that does not exist: torch notes its handle and makes no call for it.
        with torch.cuda.stream(torch.cuda.ExternalStream(_MADE_UP, device=index)):
            status = function(_DL_CUDA, index, ctypes.addressof(told))
            expected = current_stream(index)
    except Exception:  # whatever this torch has instead, Python asks it
        return 0
    return address if status == 0 and told.value == expected == _MADE_UP else 0


def _raw_function(torch: Any) -> Callable[[int], int] | None:
    """torch's own: it takes 0.1 µs; the public way, which makes two objects on each call, 1 µs."""
    return getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)


def _find_streams() -> Callable[[int], int]:
    global _stream_of
    torch = cuda_torch()
    if torch is None:
        return _default_stream  # not kept: torch may still come
    found: Callable[[int], int] = _raw_function(torch) or partial(_public_stream, torch)
    _stream_of = found
    return found


def _public_stream(torch: Any, index: int) -> int:
    return torch.cuda.current_stream(index).cuda_stream


def _default_stream(index: int) -> int:
    return DEFAULT_STREAM


@contextmanager
def chosen(device: Device) -> Generator[None]:
    """Have the program's own code find a device to be the current one inside the block."""
    torch = cuda_torch()
    with device.current() if torch is None else torch.cuda.device(device.index):
        yield


@contextmanager
def scratch(device: Device, size: int, alignment: int, stream: int) -> Generator[int]:
    """Memory on a device for what is started on a stream inside the block: its address.

    The memory is given back in the order of the stream, after what was started inside, so nothing
    waits. Both ways may be captured into a graph, to which the memory then belongs.

    Args:
        size, alignment: in bytes.
    """
    room = size + alignment - 1
    torch = cuda_torch()
    if torch is not None:
        memory = torch.empty(room, dtype=torch.uint8, device=device.name)
        yield -(-memory.data_ptr() // alignment) * alignment
        del memory  # torch reuses it only for later work of the stream
        return
    api, address = device.api, ctypes.c_void_p()
    doing = f"allocating {room} bytes of scratch memory on {device.name}"
    with device.current():
        device.check(api.cuMemAllocAsync(ctypes.byref(address), room, stream), doing)
        try:
            yield -(-(address.value or 0) // alignment) * alignment
        finally:
            api.cuMemFreeAsync(address, stream)
