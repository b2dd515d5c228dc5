"""ctypes bindings of AMD's HIP runtime, with failures as DeviceError.

    api = connect()
    count = ctypes.c_int()
    api.check(api.hipGetDeviceCount(ctypes.byref(count)), "counting the devices")

The library is loaded by the first `connect`: that of torch if the program has loaded a torch that
was built for ROCm, else that of the system. It does not support fork; every call in a child that is
forked afterwards raises an error that says so.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Final

from tilewright.base.diagnostics import DeviceError
from tilewright.runtime.devices.driver_api import Connection, DriverApi

_INT, _UNSIGNED, _SIZE, _TEXT = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_char_p
# Handles, device addresses, and pointers to results.
_WORD = ctypes.c_void_p

PROTOTYPES: Final[dict[str, tuple[Any, ...]]] = {
    "hipInit": (_UNSIGNED,),
    "hipDriverGetVersion": (_WORD,),
    "hipGetDeviceCount": (_WORD,),
    "hipGetDevice": (_WORD,),
    "hipSetDevice": (_INT,),
    "hipGetDevicePropertiesR0600": (_WORD, _INT),
    "hipDeviceSynchronize": (),
    "hipModuleLoadData": (_WORD, _WORD),
    "hipModuleUnload": (_WORD,),
    "hipModuleGetFunction": (_WORD, _WORD, _TEXT),
    "hipModuleLaunchKernel": (_WORD, *[_UNSIGNED] * 7, _WORD, _WORD, _WORD),
    "hipMalloc": (_WORD, _SIZE),
    "hipFree": (_WORD,),
    "hipMemcpyDtoH": (_WORD, _WORD, _SIZE),
    "hipMemcpyHtoD": (_WORD, _WORD, _SIZE),
    "hipMemcpyDtoDAsync": (_WORD, _WORD, _SIZE, _WORD),
    "hipMemsetD32Async": (_WORD, _INT, _SIZE, _WORD),
    "hipMemGetInfo": (_WORD, _WORD),
    "hipStreamIsCapturing": (_WORD, _WORD),
    "hipEventCreateWithFlags": (_WORD, _UNSIGNED),
    "hipEventRecord": (_WORD, _WORD),
    "hipEventSynchronize": (_WORD,),
    "hipEventElapsedTime": (_WORD, _WORD, _WORD),
    "hipEventDestroy": (_WORD,),
    "hipPointerGetAttribute": (_WORD, _INT, _WORD),
}
"""Parameter types of the functions; each returns a hipError_t, 0 for success."""

COMMON: Final[dict[str, str]] = {
    "count_devices": "hipGetDeviceCount",
    "synchronize": "hipDeviceSynchronize",
    "copy_to_host": "hipMemcpyDtoH",
    "copy_to_device": "hipMemcpyHtoD",
    "copy_on_device": "hipMemcpyDtoDAsync",
    "fill_words": "hipMemsetD32Async",
    "pointer_attribute": "hipPointerGetAttribute",
    "memory_info": "hipMemGetInfo",
    "is_capturing": "hipStreamIsCapturing",
    "create_event": "hipEventCreateWithFlags",
    "record_event": "hipEventRecord",
    "wait_for_event": "hipEventSynchronize",
    "elapsed_time": "hipEventElapsedTime",
    "destroy_event": "hipEventDestroy",
}
"""The functions that all vendors' drivers have; see `DriverApi.common`."""

LIBRARY = "libamdhip64.so"
NO_DRIVER = (
    "there is no HIP runtime: {library} cannot be loaded ({reason}). Kernels run on the GPU where "
    "ROCm is installed; with tensors in the CPU's memory they run on the CPU."
)
FORKED = (
    "HIP was in use before this process was forked, and cannot be used in the child. Start workers "
    "by multiprocessing's 'spawn' or 'forkserver', or fork before the first launch."
)


class HipApi(DriverApi):
    """The functions of the HIP runtime."""

    prototypes, common = PROTOTYPES, COMMON

    def description(self) -> str:
        version = ctypes.c_int()
        self.check(self.hipDriverGetVersion(ctypes.byref(version)), "asking HIP's version")
        return f"HIP {version.value // 10_000_000}.{version.value // 100_000 % 100}"

    def error_name(self, status: int) -> str:
        """The name of a hipError_t: ``hipErrorInvalidValue`` for 1."""
        return self._text("hipGetErrorName", status) or f"HIP error {status}"

    def error_text(self, status: int) -> str:
        name, text = self.error_name(status), self._text("hipGetErrorString", status)
        return f"{text} ({name})" if text else name

    def _text(self, name: str, status: int) -> str:
        function = getattr(self._library, name)
        function.argtypes, function.restype = (_INT,), _TEXT
        text = function(status)
        return text.decode(errors="replace") if text else ""


# -- the library of this process ------------------------------------------------------------------


def hip_torch() -> Any:
    """The torch module, if the program has loaded one that was built for ROCm; else None."""
    torch = sys.modules.get("torch")
    # A module that another thread is still importing lacks some attributes.
    version = getattr(torch, "version", None)
    return torch if getattr(version, "hip", None) and hasattr(torch, "cuda") else None


def _open_library() -> Any:
    """The HIP runtime. Two of them in a process would not share memory, so torch's comes first.

    Raises:
        OSError: it cannot be loaded.
    """
    torch = hip_torch()
    if torch is not None:
        own = os.path.join(os.path.dirname(torch.__file__), "lib", LIBRARY)
        if os.path.exists(own):
            return ctypes.CDLL(own)
    return ctypes.CDLL(LIBRARY)


def _started() -> HipApi:
    try:
        api = HipApi(_open_library())
    except OSError as error:
        raise DeviceError(NO_DRIVER.format(library=LIBRARY, reason=error)) from None
    api.check(api.hipInit(0), "the HIP runtime does not start")
    return api


connect = Connection(_started, FORKED)
