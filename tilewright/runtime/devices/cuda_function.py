"""Kernels on a CUDA device: loading code, what it uses, and starting it.

    add = Function(device(0), cubin, "add", Shape(threads=128))
    add.n_regs, add.n_spills
    add.launch((64, 1, 1), stream, parameters)      # the driver's array of pointers to arguments

What a kernel needs and the device does not have is an `OutOfResources` when it is loaded, before
anything is launched.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NoReturn

from tilewright.base.diagnostics import DeviceError, OutOfResources
from tilewright.base.machine_code import address_of
from tilewright.runtime.devices.cuda import Device
from tilewright.runtime.devices.cuda_api import describe_version

STATIC_SHARED_LIMIT: Final = 48 << 10
"""Bytes of shared memory that every block may have; a kernel that uses more has to ask."""

PORTABLE_CTAS: Final = 8
"""The largest cluster that every device with clusters takes; a larger one has to be asked for."""

# Numbers of the driver's CUfunction_attribute.
_MAX_THREADS = 0
_STATIC_SHARED = 1
_LOCAL_BYTES = 3
_NUM_REGS = 4
_MAX_DYNAMIC_SHARED = 8
_SHARED_CARVEOUT = 9
_NON_PORTABLE_CLUSTER = 14

# Numbers of the driver's CUlaunchAttributeID.
_COOPERATIVE = 2
_CLUSTER_DIMENSION = 4
_PROGRAMMATIC_STREAM_SERIALIZATION = 6

# Numbers of the driver's CUjit_option.
_ERROR_LOG = 5
_ERROR_LOG_SIZE = 6
_LOG_BYTES = 16384

_RELAXED_CAPTURE = 2  # of CUstreamCaptureMode
_INVALID_VALUE = 1  # of CUresult
_WORD_BYTES = 4

Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """What one program of a kernel is made of.

    Attributes:
        threads: of a block.
        shared: bytes of dynamic shared memory of a block.
        ctas: blocks of a program, which form a cluster when there are several.
        cooperative: all programs of a launch run at the same time, or the launch fails.
        dependent: a launch may begin while the kernel before it in the stream still runs
            (programmatic dependent launch).
    """

    threads: int
    shared: int = 0
    ctas: int = 1
    cooperative: bool = False
    dependent: bool = False


class _AttributeValue(ctypes.Union):
    _fields_ = (("numbers", ctypes.c_uint * 3), ("room", ctypes.c_char * 64))


class _LaunchAttribute(ctypes.Structure):
    """The driver's CUlaunchAttribute. The value stands at byte 8."""

    _fields_ = (
        ("id", ctypes.c_uint),
        ("padding", ctypes.c_char * 4),
        ("value", _AttributeValue),
    )


class _LaunchConfig(ctypes.Structure):
    """The driver's CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


def _launch_attributes(shape: Shape) -> ctypes.Array[_LaunchAttribute]:
    """What a launch asks for beyond grid, block and shared memory; mostly nothing."""
    wanted: list[tuple[int, tuple[int, ...]]] = []
    if shape.ctas > 1:
        wanted.append((_CLUSTER_DIMENSION, (shape.ctas, 1, 1)))
    if shape.cooperative:
        wanted.append((_COOPERATIVE, (1,)))
    if shape.dependent:
        wanted.append((_PROGRAMMATIC_STREAM_SERIALIZATION, (1,)))
    attributes = (_LaunchAttribute * len(wanted))()
    for attribute, (number, values) in zip(attributes, wanted, strict=True):
        attribute.id = number
        attribute.value.numbers[: len(values)] = values
    return attributes


class Function:
    """A kernel loaded on a device. It stays loaded as long as this object lives.

    Args:
        device: where to load it.
        image: a cubin, or the text of PTX, which the driver then compiles.
        name: its symbol.
        shape: what a program is made of.

    Attributes:
        handle: the driver's handle of the function.
        n_regs: registers of a thread.
        n_spills: 32-bit registers that a thread keeps in memory for want of room.
        n_max_threads: the most threads that a block of it can have.

    Raises:
        OutOfResources: it needs more shared memory or threads than the device has.
        DeviceError: the driver does not take the code.
    """

    def __init__(self, device: Device, image: bytes | str, name: str, shape: Shape) -> None:
        self.device = device
        self.name = name
        self.shape = shape
        self._module = 0
        limits = device.properties
        _require(shape.shared, limits.max_shared_mem, "shared memory")
        _require(shape.threads, limits.max_threads, "threads")
        self._attributes = _launch_attributes(shape)
        with device.current(), _capture_allowed(device):
            self._module = _load_module(device, image, name)
            try:
                self._prepare()
            except BaseException:
                self._unload()  # now: the error, when it is kept, keeps this object
                raise

    def _prepare(self) -> None:
        """Find the function, ask what it uses, and reserve what it needs."""
        self.handle = self._find()
        self.n_regs = self._attribute(_NUM_REGS)
        self.n_spills = self._attribute(_LOCAL_BYTES) // _WORD_BYTES
        self.n_max_threads = self._attribute(_MAX_THREADS)
        _require(self.shape.threads, self.n_max_threads, "threads")
        self._reserve_shared()
        if self.shape.ctas > PORTABLE_CTAS:
            self._set_attribute(_NON_PORTABLE_CLUSTER, 1)

    def __del__(self) -> None:
        # While Python ends, the driver's own end unloads it; in a forked child there is no driver.
        if self._module and self.device.api.usable and not sys.is_finalizing():
            # After a kernel has failed, not even this works, and there is nobody to tell.
            with suppress(DeviceError), self.device.current(), _capture_allowed(self.device):
                self._unload()

    def _unload(self) -> None:
        module, self._module = self._module, 0
        self.device.api.cuModuleUnload(module)

    @property
    def module(self) -> int:
        """The driver's handle of what has been loaded."""
        return self._module

    def _find(self) -> int:
        handle = ctypes.c_void_p()
        found = self.device.api.cuModuleGetFunction(
            ctypes.byref(handle), self._module, self.name.encode()
        )
        self.device.check(found, f"looking for the kernel {self.name} in its code")
        return handle.value or 0

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        status = self.device.api.cuFuncGetAttribute(ctypes.byref(value), number, self.handle)
        self.device.check(status, f"asking the kernel {self.name} for attribute {number}")
        return value.value

    def _set_attribute(self, number: int, value: int) -> None:
        status = self.device.api.cuFuncSetAttribute(self.handle, number, value)
        self.device.check(status, f"setting attribute {number} of the kernel {self.name}")

    def _reserve_shared(self) -> None:
        """Ask for what is beyond the shared memory that every block may have."""
        shared = self.shape.shared
        required = shared + self._attribute(_STATIC_SHARED)
        _require(required, self.device.properties.max_shared_mem, "shared memory")
        if required > STATIC_SHARED_LIMIT:
            self._set_attribute(_MAX_DYNAMIC_SHARED, shared)
            # In percent: the cache gives way, so that as many blocks fit as there is memory for.
            self._set_attribute(_SHARED_CARVEOUT, 100)

    # -- starting -------------------------------------------------------------------------------

    def launch(self, grid: Grid, stream: int, parameters: int) -> None:
        """Start the programs of a grid on a stream; they run after this returns.

        Args:
            grid: programs along x, y and z.
            stream: the driver's handle of the stream.
            parameters: address of an array with the address of each argument. The driver copies
                the arguments, each as wide as the kernel declares it, before this returns.

        Raises:
            DeviceError: the launch is refused, or a kernel launched earlier has failed.
        """
        device, current = self.device, ctypes.c_void_p()
        status = device.api.cuCtxGetCurrent(ctypes.byref(current))
        if status == 0 and current.value is None and device.index == 0:
            device.make_current()  # CUDA's runtime gives such a thread this context, too
            current.value = device.context
        if status == 0 and current.value == device.context:
            status = self._launch(grid, stream, parameters)
        elif status == 0:
            with device.current():
                status = self._launch(grid, stream, parameters)
        if status != 0:
            raise self._launch_error(status, grid)
        device.last_kernel = self.name

    def _launch(self, grid: Grid, stream: int, parameters: int) -> int:
        """The driver's launch in the current context; its status."""
        x, y, z = grid
        shape = self.shape
        if not self._attributes:
            return self.device.api.cuLaunchKernel(
                self.handle, x, y, z, shape.threads, 1, 1, shape.shared, stream, parameters, None
            )
        config = _LaunchConfig(
            (x * shape.ctas, y, z),
            (shape.threads, 1, 1),
            shape.shared,
            stream,
            ctypes.addressof(self._attributes),
            len(self._attributes),
        )
        return self.device.api.cuLaunchKernelEx(ctypes.byref(config), self.handle, parameters, None)

    def refuse(self, status: int, grid: Grid) -> NoReturn:
        """Raise the DeviceError for a launch that gave this status."""
        raise self._launch_error(status, grid)

    def native_fields(self) -> dict[str, int]:
        """What native code that launches the kernel needs to know, by name; addresses are of the
        driver's functions, and of what this object keeps."""
        api = self.device.api
        launch = api.cuLaunchKernelEx if self._attributes else api.cuLaunchKernel
        return {
            "function": self.handle,
            "threads": self.shape.threads,
            "shared": self.shape.shared,
            "ctas": self.shape.ctas,
            "attributes": ctypes.addressof(self._attributes),
            "attribute_count": len(self._attributes),
            "context": self.device.context,
            "last_kernel": self.device.last_kernel_at,
            "name": self.device.kept_name(self.name),
            "get_current": address_of(api.cuCtxGetCurrent),
            "launch": address_of(launch),
        }

    def _launch_error(self, status: int, grid: Grid) -> DeviceError:
        doing = f"launching {self.name} on {self.device.name} with grid {grid}"
        limits = self.device.properties.max_grid
        hint = ""
        blocks = (grid[0] * self.shape.ctas, *grid[1:])
        if status == _INVALID_VALUE and any(n > m for n, m in zip(blocks, limits, strict=True)):
            hint = f"The device's grids have at most {limits} blocks: put long axes first."
        return self.device.error(status, doing, hint)


def _require(required: int, limit: int, name: str) -> None:
    if required > limit:
        raise OutOfResources(required, limit, name)


@contextmanager
def _capture_allowed(device: Device) -> Generator[None]:
    """Let this thread load and unload code while a stream is being captured into a graph.

    Neither is part of a graph, but the driver refuses both then unless a thread says it knows.
    """
    mode = ctypes.c_int(_RELAXED_CAPTURE)
    device.api.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        device.api.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


# -- loading --------------------------------------------------------------------------------------


def _load_module(device: Device, image: bytes | str, name: str) -> int:
    """The driver's handle of a module loaded into the current context."""
    code = image.encode() + b"\0" if isinstance(image, str) else image
    module, log = ctypes.c_void_p(), ctypes.create_string_buffer(_LOG_BYTES)
    options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_SIZE)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    status = device.api.cuModuleLoadDataEx(ctypes.byref(module), code, 2, options, values)
    if status != 0:
        said = log.value.decode(errors="replace").strip()
        raise _load_error(device, status, image, name, said)
    return module.value or 0


def _load_error(
    device: Device, status: int, image: bytes | str, name: str, log: str
) -> DeviceError:
    """What the driver has against the code, with the versions that are at odds."""
    form = "PTX" if isinstance(image, str) else "cubin"
    error = device.error(
        status, f"loading the {form} of {name} on {device.name}", _load_hint(device, status, image)
    )
    return DeviceError(f"{error}\n{log}", error.code) if log else error


def _load_hint(device: Device, status: int, image: bytes | str) -> str:
    driver = describe_version(device.api.version())
    properties = device.properties
    gpu = f"{properties.name}, compute capability {properties.capability[0]}." + str(
        properties.capability[1]
    )
    match status:
        case 222:  # CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            version = _directive(image, "version")
            return (
                f"The code is PTX {version}, which is newer than the installed driver ({driver}). "
                "Update the driver, or install an assembler (pip install nvidia-cuda-nvcc), whose "
                "output does not need the driver to know that version."
            )
        case 200 | 209:  # CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU
            return (
                f"The code is for another GPU than this one ({gpu}), or made by tools newer than "
                f"the installed driver ({driver}): compile for this GPU, or update the driver."
            )
        case 218:  # CUDA_ERROR_INVALID_PTX
            target = _directive(image, "target")
            return f"The code is for {target}; the GPU is {gpu}, the driver {driver}."
        case 221:  # CUDA_ERROR_JIT_COMPILER_NOT_FOUND
            return (
                "The driver's compiler, libnvidia-ptxjitcompiler, is not installed. Install it, or "
                "an assembler (pip install nvidia-cuda-nvcc)."
            )
        case _:
            return ""


def _directive(image: bytes | str, name: str) -> str:
    """The value of a directive of PTX: ``_directive(".version 8.7", "version") == "8.7"``."""
    found = re.search(rf"^\s*\.{name}\s+([^\s,]+)", image, re.M) if isinstance(image, str) else None
    return found[1] if found else "of an unknown version"
