"""ctypes bindings of the CUDA driver API, with failures as DeviceError.

    api = connect()
    count = ctypes.c_int()
    api.check(api.cuDeviceGetCount(ctypes.byref(count)), "counting the devices")

The library is loaded by the first `connect`. A process that is forked afterwards cannot use CUDA,
as the driver does not support fork; every call in the child raises an error that says so.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from tilewright.base import knobs
from tilewright.base.diagnostics import DeviceError
from tilewright.runtime.devices.driver_api import Connection, DriverApi

_INT, _UNSIGNED, _SIZE, _TEXT = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_char_p
# Handles, device addresses, and pointers to results.
_WORD = ctypes.c_void_p

PROTOTYPES: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (_UNSIGNED,),
    "cuDriverGetVersion": (_WORD,),
    "cuGetErrorName": (_INT, _WORD),
    "cuGetErrorString": (_INT, _WORD),
    "cuDeviceGetCount": (_WORD,),
    "cuDeviceGet": (_WORD, _INT),
    "cuDeviceGetName": (_WORD, _INT, _INT),
    "cuDeviceTotalMem_v2": (_WORD, _INT),
    "cuDeviceGetAttribute": (_WORD, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (_WORD, _INT),
    "cuCtxGetCurrent": (_WORD,),
    "cuCtxSetCurrent": (_WORD,),
    "cuCtxPushCurrent_v2": (_WORD,),
    "cuCtxPopCurrent_v2": (_WORD,),
    "cuCtxGetDevice": (_WORD,),
    "cuCtxSynchronize": (),
    "cuThreadExchangeStreamCaptureMode": (_WORD,),
    "cuModuleLoadDataEx": (_WORD, _WORD, _UNSIGNED, _WORD, _WORD),
    "cuModuleUnload": (_WORD,),
    "cuModuleGetFunction": (_WORD, _WORD, _TEXT),
    "cuFuncGetAttribute": (_WORD, _INT, _WORD),
    "cuFuncSetAttribute": (_WORD, _INT, _INT),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (_WORD, _WORD, _INT, _SIZE),
    "cuLaunchKernel": (_WORD, *[_UNSIGNED] * 7, _WORD, _WORD, _WORD),
    "cuLaunchKernelEx": (_WORD, _WORD, _WORD, _WORD),
    "cuStreamSynchronize": (_WORD,),
    "cuMemAllocAsync": (_WORD, _SIZE, _WORD),
    "cuMemFreeAsync": (_WORD, _WORD),
    "cuMemcpyDtoH_v2": (_WORD, _WORD, _SIZE),
    "cuMemcpyHtoD_v2": (_WORD, _WORD, _SIZE),
    "cuMemcpyDtoDAsync_v2": (_WORD, _WORD, _SIZE, _WORD),
    "cuMemsetD32Async": (_WORD, _UNSIGNED, _SIZE, _WORD),
    "cuMemGetInfo_v2": (_WORD, _WORD),
    "cuStreamIsCapturing": (_WORD, _WORD),
    "cuEventCreate": (_WORD, _UNSIGNED),
    "cuEventRecord": (_WORD, _WORD),
    "cuEventSynchronize": (_WORD,),
    "cuEventElapsedTime": (_WORD, _WORD, _WORD),
    "cuEventDestroy_v2": (_WORD,),
    "cuPointerGetAttribute": (_WORD, _INT, _WORD),
    "cuTensorMapEncodeTiled": (
        _WORD,
        _INT,
        _UNSIGNED,
        _WORD,
        _WORD,
        _WORD,
        _WORD,
        _WORD,
        _INT,
        _INT,
        _INT,
        _INT,
    ),
}
"""Parameter types of the driver's functions; each returns a CUresult, 0 for success."""

COMMON: Final[dict[str, str]] = {
    "count_devices": "cuDeviceGetCount",
    "synchronize": "cuCtxSynchronize",
    "copy_to_host": "cuMemcpyDtoH_v2",
    "copy_to_device": "cuMemcpyHtoD_v2",
    "copy_on_device": "cuMemcpyDtoDAsync_v2",
    "fill_words": "cuMemsetD32Async",
    "pointer_attribute": "cuPointerGetAttribute",
    "memory_info": "cuMemGetInfo_v2",
    "is_capturing": "cuStreamIsCapturing",
    "create_event": "cuEventCreate",
    "record_event": "cuEventRecord",
    "wait_for_event": "cuEventSynchronize",
    "elapsed_time": "cuEventElapsedTime",
    "destroy_event": "cuEventDestroy_v2",
}
"""The functions that all vendors' drivers have; see `DriverApi.common`."""

NO_DRIVER = (
    "there is no CUDA driver: {library} cannot be loaded ({reason}). Kernels run on the GPU where "
    "NVIDIA's driver is installed; with tensors in the CPU's memory they run on the CPU."
)
FORKED = (
    "CUDA was in use before this process was forked, and cannot be used in the child. Start "
    "workers by multiprocessing's 'spawn' or 'forkserver', or fork before the first launch."
)

NOT_INITIALIZED = 3
"""The CUresult of cuInit in a child that was forked after CUDA had started."""

# Hints for failures of cuInit, by CUresult.
_INIT_HINTS = {
    34: "The library found is a stub for linking; put the real driver's folder before it.",
    100: "The driver sees no GPU: look at `nvidia-smi` and at CUDA_VISIBLE_DEVICES.",
    803: "The driver's library and its kernel module are of different versions: restart the "
    "machine, or the container.",
    804: "The compatibility library does not support this GPU.",
}


class Api(DriverApi):
    """The functions of the CUDA driver."""

    prototypes, common = PROTOTYPES, COMMON

    def description(self) -> str:
        return describe_version(self.version())

    def version(self) -> int:
        """The newest CUDA version that the driver supports: 12040 for 12.4."""
        version = ctypes.c_int()
        self.check(self.cuDriverGetVersion(ctypes.byref(version)), "asking the driver's version")
        return version.value

    def error_name(self, status: int) -> str:
        """The name of a CUresult: ``CUDA_ERROR_INVALID_VALUE`` for 1."""
        return self._text(self.cuGetErrorName, status) or f"CUDA error {status}"

    def error_text(self, status: int) -> str:
        """The driver's description of a CUresult, followed by its name."""
        name, text = self.error_name(status), self._text(self.cuGetErrorString, status)
        return f"{text} ({name})" if text else name

    def _text(self, function: Callable[..., int], status: int) -> str:
        text = ctypes.c_char_p()
        if function(status, ctypes.byref(text)) != 0 or text.value is None:
            return ""
        return text.value.decode(errors="replace")


def describe_version(version: int) -> str:
    """A CUDA version as text: ``describe_version(12040) == "CUDA 12.4"``."""
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


# -- the library of this process ------------------------------------------------------------------


def library_name() -> str:
    """The file name of the driver's library on this system."""
    return "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def _open_library() -> Any:
    """The driver's library.

    Raises:
        OSError: it cannot be loaded.
    """
    folder = knobs.nvidia.libcuda_path
    return ctypes.CDLL(os.path.join(folder, library_name()) if folder else library_name())


def _started() -> Api:
    try:
        api = Api(_open_library())
    except OSError as error:
        message = NO_DRIVER.format(library=library_name(), reason=error)
        raise DeviceError(message) from None
    status = api.cuInit(0)
    if status == NOT_INITIALIZED:
        # Another library, such as torch, had started it before this process was forked.
        api.close(FORKED)
    elif status != 0:
        hint = _INIT_HINTS.get(status, "")
        raise api.error(status, "the CUDA driver does not start", hint)
    return api


connect = Connection(_started, FORKED)
