"""Kernels on a CUDA device: module loading, resource usage and launches.

    add = Function(device(0), cubin, "add", Shape(threads=128))
    add.n_regs, add.n_spills
    add.launch((64, 1, 1), stream, parameters)      # the driver's array of pointers to arguments

A kernel that exceeds the device's limits raises `OutOfResources` when it is loaded, before any
launch.
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
"""Bytes of shared memory of a block without opt-in (CUDA C++ Programming Guide, "Shared Memory");
a kernel that uses more must set CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""

PORTABLE_CTAS: Final = 8
"""The largest portable cluster size; a larger one needs the attribute
CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED."""

# Values of the driver's enum CUfunction_attribute.
_MAX_THREADS = 0
_STATIC_SHARED = 1
_LOCAL_BYTES = 3
_NUM_REGS = 4
_MAX_DYNAMIC_SHARED = 8
_SHARED_CARVEOUT = 9
_NON_PORTABLE_CLUSTER = 14

# Values of the driver's enum CUlaunchAttributeID.
_COOPERATIVE = 2
_CLUSTER_DIMENSION = 4
_PROGRAMMATIC_STREAM_SERIALIZATION = 6

# Values of the driver's enum CUjit_option.
_ERROR_LOG = 5
_ERROR_LOG_SIZE = 6
_LOG_BYTES = 16384

_RELAXED_CAPTURE = 2  # of CUstreamCaptureMode
_INVALID_VALUE = 1  # of CUresult
_WORD_BYTES = 4
_ALL = (1 << 63) - 1

Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """The launch configuration of one program of a kernel.

    Attributes:
        threads: threads of a program.
        shared: dynamic shared memory of a program, in bytes.
        spare: further shared memory, which launches provide whose blocks are all resident at once
            with it, or if no fewer blocks are resident with it.
        ctas: blocks of a program; they form a cluster if there are several.
        looped_axes: the axes of the grid along which blocks loop over programs: 1, x, or all 3; 0
            if there is a block for each program. The kernel then reads the extents of the grid from
            a parameter, and a launch has at most as many blocks along these axes as are resident
            at once. Along all axes, they are along x.
        packed: the most programs of a block, adjacent ones along x; the y index of a thread is its
            program's in the block. Only launches whose blocks would not all be resident at once
            pack programs.
        cooperative: all programs of a launch must be co-resident, or the launch fails.
        dependent: a launch may begin while the preceding kernel of the stream still runs
            (programmatic dependent launch).
    """

    threads: int
    shared: int = 0
    spare: int = 0
    ctas: int = 1
    looped_axes: int = 0
    packed: int = 1
    cooperative: bool = False
    dependent: bool = False


class _AttributeValue(ctypes.Union):
    _fields_ = (("numbers", ctypes.c_uint * 3), ("room", ctypes.c_char * 64))


class _LaunchAttribute(ctypes.Structure):
    """The driver's CUlaunchAttribute: the value is at byte offset 8."""

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
    """The launch attributes of a shape; empty for most kernels."""
    required: list[tuple[int, tuple[int, ...]]] = []
    if shape.ctas > 1:
        required.append((_CLUSTER_DIMENSION, (shape.ctas, 1, 1)))
    if shape.cooperative:
        required.append((_COOPERATIVE, (1,)))
    if shape.dependent:
        required.append((_PROGRAMMATIC_STREAM_SERIALIZATION, (1,)))
    attributes = (_LaunchAttribute * len(required))()
    for attribute, (number, values) in zip(attributes, required, strict=True):
        attribute.id = number
        attribute.value.numbers[: len(values)] = values
    return attributes


class Function:
    """A kernel loaded on a device; its module is unloaded with this object.

    Args:
        device: the device to load it on.
        image: a cubin, or PTX as a str, which the driver compiles.
        name: the kernel's symbol.
        shape: its launch configuration.

    Attributes:
        handle: CUfunction.
        n_regs: 32-bit registers per thread.
        n_spills: local memory per thread, in 32-bit words: spilled registers and stack arrays.
        n_max_threads: the most threads of a block, given the kernel's registers.

    Raises:
        OutOfResources: it needs more shared memory or threads than the device has.
        DeviceError: the driver rejects the code.
    """

    def __init__(self, device: Device, image: bytes | str, name: str, shape: Shape) -> None:
        self.device = device
        self.name = name
        self.shape = shape
        self._module = 0
        limits = device.properties
        _require(shape.shared, limits.max_shared_mem, "shared memory")
        _require(shape.threads, limits.max_threads, "threads")
        self.spare_blocks = 0  # the most blocks of a launch that provides spare memory
        self.packed = 1  # programs of a block, in launches of more programs than these:
        self.packed_above = 0
        self.most_blocks = _ALL  # of a launch along looped axes
        self._attributes = _launch_attributes(shape)
        with device.current(), capture_allowed(device):
            self._module = _load_module(device, image, name)
            try:
                self._prepare()
            except BaseException:
                self._unload()  # not left to __del__: the traceback keeps this object alive
                raise

    def _prepare(self) -> None:
        """Look up the function, query its resource usage, and set its attributes."""
        self.handle = self._find()
        self.n_regs = self._attribute(_NUM_REGS)
        self.n_spills = self._attribute(_LOCAL_BYTES) // _WORD_BYTES
        self.n_max_threads = self._attribute(_MAX_THREADS)
        _require(self.shape.threads, self.n_max_threads, "threads")
        self._reserve_shared()
        self._choose_packing()
        if self.shape.looped_axes:
            self.most_blocks = self._resident_blocks()
        if self.shape.ctas > PORTABLE_CTAS:
            self._set_attribute(_NON_PORTABLE_CLUSTER, 1)

    def __del__(self) -> None:
        # At exit the driver unloads it; a forked child must not call the driver.
        if self._module and self.device.api.usable and not sys.is_finalizing():
            # Unloading fails after a sticky error; a finalizer cannot report that.
            with suppress(DeviceError), self.device.current(), capture_allowed(self.device):
                self._unload()

    def _unload(self) -> None:
        module, self._module = self._module, 0
        self.device.api.cuModuleUnload(module)

    @property
    def module(self) -> int:
        """CUmodule of the loaded code."""
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
        """Opt in to more than 48 KiB of shared memory per block if the kernel needs it."""
        shared = self.shape.shared + self.shape.spare
        required = shared + self._attribute(_STATIC_SHARED)
        _require(required, self.device.properties.max_shared_mem, "shared memory")
        if required > STATIC_SHARED_LIMIT:
            self._set_attribute(_MAX_DYNAMIC_SHARED, shared)
            # 100 %: prefer shared memory over L1 cache, so that it does not limit occupancy.
            self._set_attribute(_SHARED_CARVEOUT, 100)
        if self.shape.spare:
            resident = self._resident(shared)
            same = resident >= self._resident(self.shape.shared)
            few = resident * self.device.properties.multiprocessor_count
            self.spare_blocks = _ALL if same else few

    def _choose_packing(self) -> None:
        """Pack as many programs into a block as leave no fewer programs resident."""
        count, shared = self.shape.packed, self.shape.shared
        if count > 1:
            alone = self._resident(shared)
            self.packed_above = self._resident_blocks()
            while count > 1 and (
                count * shared > STATIC_SHARED_LIMIT
                or count * self._resident(count * shared, count) < alone
            ):
                count //= 2
        self.packed = count

    def _resident_blocks(self) -> int:
        """The number of blocks that are resident on the device at once."""
        each = self._resident(self.shape.shared)
        return each * self.device.properties.multiprocessor_count

    def _resident(self, shared: int, programs: int = 1) -> int:
        """The number of blocks that are resident on a multiprocessor at once."""
        count = ctypes.c_int()
        found = self.device.api.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(count), self.handle, programs * self.shape.threads, shared
        )
        self.device.check(found, f"asking for the resident blocks of the kernel {self.name}")
        return count.value

    # -- launching ------------------------------------------------------------------------------

    def launch(self, grid: Grid, stream: int, parameters: int) -> None:
        """Launch the kernel on a stream, asynchronously.

        Args:
            grid: programs along x, y and z.
            stream: CUstream.
            parameters: address of an array of the arguments' addresses. The driver copies the
                arguments, each with the size that the kernel declares, before this returns.

        Raises:
            DeviceError: the driver rejects the launch, or a kernel launched earlier has failed.
        """
        device, current = self.device, ctypes.c_void_p()
        status = device.api.cuCtxGetCurrent(ctypes.byref(current))
        if status == 0 and current.value is None and device.index == 0:
            device.make_current()  # as the CUDA runtime does in a thread without a context
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
        """Launch in the current context; returns the CUresult."""
        x, y, z = self._blocks(grid)
        shape = self.shape
        count = x * y * z
        packed = self.packed if count > self.packed_above and x % self.packed == 0 else 1
        shared = packed * shape.shared + (shape.spare if count <= self.spare_blocks else 0)
        if not self._attributes:
            block = shape.threads, packed, 1
            return self.device.api.cuLaunchKernel(
                self.handle, x // packed, y, z, *block, shared, stream, parameters, None
            )
        config = _LaunchConfig(
            (x // packed * shape.ctas, y, z),
            (shape.threads, packed, 1),
            shared,
            stream,
            ctypes.addressof(self._attributes),
            len(self._attributes),
        )
        return self.device.api.cuLaunchKernelEx(ctypes.byref(config), self.handle, parameters, None)

    def _blocks(self, grid: Grid) -> Grid:
        """The extents of a launch in blocks, of which some loop over programs."""
        x, y, z = grid
        if self.shape.looped_axes == 3:
            x, y, z = x * y * z, 1, 1
        return (min(x, self.most_blocks), y, z)

    def raise_error(self, status: int, grid: Grid) -> NoReturn:
        """Raise the DeviceError for a native launch that returned this status."""
        raise self._launch_error(status, grid)

    def native_fields(self) -> dict[str, int]:
        """The fields of a native launch record (`native/layout.py`). Addresses are those of driver
        functions and of memory that this object keeps alive."""
        api = self.device.api
        launch = api.cuLaunchKernelEx if self._attributes else api.cuLaunchKernel
        return {
            "function": self.handle,
            "threads": self.shape.threads,
            "shared": self.shape.shared,
            "spare": self.shape.spare,
            "spare_blocks": self.spare_blocks,
            "ctas": self.shape.ctas,
            "looped_axes": self.shape.looped_axes,
            "most_blocks": self.most_blocks,
            "packed": self.packed,
            "packed_above": self.packed_above,
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
def capture_allowed(device: Device) -> Generator[None]:
    """Permit module loading and unloading in this thread during a stream capture.

    Neither becomes part of the graph, but the driver reports an error for such calls during a
    capture unless the thread's capture mode is relaxed.
    """
    mode = ctypes.c_int(_RELAXED_CAPTURE)
    device.api.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        device.api.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


# -- loading --------------------------------------------------------------------------------------


def _load_module(device: Device, image: bytes | str, name: str) -> int:
    """Load code into the current context; returns the CUmodule."""
    code = image.encode() + b"\0" if isinstance(image, str) else image
    module, log = ctypes.c_void_p(), ctypes.create_string_buffer(_LOG_BYTES)
    options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_SIZE)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    status = device.api.cuModuleLoadDataEx(ctypes.byref(module), code, 2, options, values)
    if status != 0:
        log_text = log.value.decode(errors="replace").strip()
        raise _load_error(device, status, image, name, log_text)
    return module.value or 0


def _load_error(
    device: Device, status: int, image: bytes | str, name: str, log: str
) -> DeviceError:
    """The error for code that the driver rejects, with a hint and the driver's log."""
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
    """The operand of a PTX directive: ``_directive(".version 8.7", "version") == "8.7"``."""
    found = re.search(rf"^\s*\.{name}\s+([^\s,]+)", image, re.M) if isinstance(image, str) else None
    return found[1] if found else "of an unknown version"
