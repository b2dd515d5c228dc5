"""Recognising and reading tensor arguments without importing the libraries they come from.

A tensor is, in order of precedence:

1. an object with `data_ptr()` and `dtype`: a torch tensor or a look-alike (without `device`, it is
   in CPU memory; with the device "", on no device);
2. a NumPy array, including ml_dtypes element types (`numpy.int64(3)` is a scalar, not a tensor);
3. an object with `__cuda_array_interface__` or `__array_interface__`;
4. an object with `__dlpack__` in CPU memory.

The reader for a type is chosen once and kept in a table keyed by exact type, since every launch
reads every tensor.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np

from tilewright.base.lazy_import import lazy_import

if TYPE_CHECKING:
    from tilewright.runtime.devices import cuda
else:
    cuda = lazy_import("tilewright.runtime.devices.cuda")

Reading: TypeAlias = tuple[int, str, str, int, int, bool]
"""The result of a reader: (address, element, device, low, high, writable).

address: of the first element, in bytes.
element: the element type in short form, ``"fp32"``.
device: ``"cpu"``, ``"cuda:0"``, ``"cuda"`` for an unknown GPU, or the name that the tensor's
    library uses. Pinned CPU memory counts as CPU memory.
low, high: the address range of the storage; -1 if unknown, as when a library
    does not report the storage that a tensor shares.
writable: whether kernels may store to it.

A plain tuple: constructing a richer type would take a third of the time of a read.
"""

Reader: TypeAlias = Callable[[Any], Reading]

UNKNOWN = -1
CPU = "cpu"
CUDA = "cuda"


# Interned names: they are compared on each launch, and identity is the fastest comparison.
CUDA_NAMES = [f"{CUDA}:{index}" for index in range(64)]
HIP_NAMES = [f"hip:{index}" for index in range(64)]

_short_names = {
    "bool": "i1",
    "bool_": "i1",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "half": "fp16",
    "float": "fp32",
    "double": "fp64",
    "bfloat16": "bf16",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
    "float8e5": "fp8e5",
    "float8e4nv": "fp8e4nv",
    "float8e4b8": "fp8e4b8",
    "float8e4b15": "fp8e4b15",
    "float8e5b16": "fp8e5b16",
}
for _bits in (8, 16, 32, 64):
    _short_names[f"int{_bits}"] = f"i{_bits}"
    _short_names[f"uint{_bits}"] = f"u{_bits}"
SHORT = frozenset(_short_names.values())
"""All element types, in short form."""

_short_names |= {short: short for short in SHORT} | {"int1": "i1", "u1": "i1"}

NUMPY_ELEMENTS: dict[Any, str] = {
    np.dtype(scalar): _short_names[np.dtype(scalar).name]
    for scalar in (
        *(np.bool_, np.int8, np.int16, np.int32, np.int64),
        *(np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16),
        *(ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn),
        *(ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e4m3fnuz),
    )
}
"""The short form of each supported NumPy type."""

# Foreign dtype objects seen so far, by identity or equality.
_elements: dict[Any, str] = {}


def element_type(dtype: object) -> str:
    """The short form of a dtype of any library: ``element_type(torch.bfloat16) == "bf16"``.

    Raises:
        TypeError: kernels have no such element type, or it is not in native byte order.
    """
    if isinstance(dtype, np.dtype):
        found = NUMPY_ELEMENTS.get(dtype)
    else:
        found = _short_names.get(str(dtype).rpartition(".")[2])
        # The class numpy.float32 stands for its dtype.
        if found is None and isinstance(dtype, type) and issubclass(dtype, np.generic):
            found = NUMPY_ELEMENTS.get(np.dtype(dtype))
    if found is None:
        raise TypeError(f"kernels have no element type for {dtype!r}")
    return found


def _element(dtype: Any) -> str:
    try:
        return _elements[dtype]
    except KeyError:
        return _elements.setdefault(dtype, element_type(dtype))
    except TypeError:  # not hashable
        return element_type(dtype)


# --------------------------------------------------------------------------------------------
# Objects with data_ptr()
# --------------------------------------------------------------------------------------------


def _read_torch(tensor: Any) -> Reading:
    """A torch tensor. A kernel may reach its whole storage, not just the view."""
    if tensor.is_cpu:
        device = CPU
    elif tensor.is_cuda:
        device = CUDA_NAMES[tensor.get_device()]
    else:
        device = str(tensor.device)
        return tensor.data_ptr(), _element(tensor.dtype), device, UNKNOWN, UNKNOWN, True
    try:
        storage = tensor.untyped_storage()
    except NotImplementedError:
        raise TypeError(f"a tensor of layout {tensor.layout} has no storage") from None
    low = storage.data_ptr()
    high = low + storage.nbytes()
    return tensor.data_ptr(), _element(tensor.dtype), device, low, high, True


def is_for_rocm(torch: Any) -> bool:
    """Whether a module is a torch that was built for AMD's GPUs, which it calls ``cuda``, too."""
    return bool(getattr(getattr(torch, "version", None), "hip", None))


def _read_rocm_torch(tensor: Any) -> Reading:
    """A tensor of a torch that was built for ROCm."""
    address, element, device, low, high, writable = _read_torch(tensor)
    if tensor.is_cuda:
        device = HIP_NAMES[tensor.get_device()]
    return address, element, device, low, high, writable


def _is_fake(kind: type) -> bool:
    """Whether a type is torch's type of tensors without memory, which represent others in a
    trace."""
    return any(
        base.__name__ in ("FakeTensor", "FunctionalTensor")
        and base.__module__.startswith("torch._subclasses.")
        for base in kind.__mro__
    )


def _read_fake(tensor: Any) -> Reading:
    raise TypeError(
        f"a {type(tensor).__name__} has no memory: torch traces the function that launches the "
        "kernel, as torch.compile and torch.export do. Make the kernel an operator of torch, with "
        "tilewright.torch.custom_op or in a torch.library.custom_op that has a fake implementation"
    )


def _cuda_name(address: int) -> str:
    """The name of the GPU that owns an address, according to the driver."""
    index = cuda.index_of(address)
    return CUDA if index is None else CUDA_NAMES[index]


def _device_name(tensor: Any, address: int) -> str:
    device = getattr(tensor, "device", None)
    if device is None:
        return CPU
    kind, _, number = str(getattr(device, "type", device)).partition(":")
    index = int(number) if number else getattr(device, "index", None)
    if kind != CUDA:
        return kind if kind == CPU or not isinstance(index, int) else f"{kind}:{index}"
    return CUDA_NAMES[index] if isinstance(index, int) else _cuda_name(address)


def _read_duck(tensor: Any) -> Reading:
    """An object with data_ptr() and dtype; reports the storage of a wrapped tensor if known."""
    low = high = UNKNOWN
    base = getattr(tensor, "base", None)
    storage_of = getattr(tensor, "untyped_storage", None)
    if storage_of is None:
        storage_of = getattr(base, "untyped_storage", None)
    if isinstance(base, np.ndarray):
        low, high = _extent(base)
    elif storage_of is not None:
        low, high = _storage_extent(storage_of())
    address = int(tensor.data_ptr())
    return address, _element(tensor.dtype), _device_name(tensor, address), low, high, True


def _storage_extent(storage: Any) -> tuple[int, int]:
    """Begin and end of a storage; unknown if it does not provide them."""
    if not hasattr(storage, "data_ptr") or not hasattr(storage, "nbytes"):
        return UNKNOWN, UNKNOWN
    low = int(storage.data_ptr())
    return low, low + int(storage.nbytes())


# --------------------------------------------------------------------------------------------
# NumPy arrays
# --------------------------------------------------------------------------------------------

_HEAD_BYTES = object.__basicsize__
_size_at: Callable[[int], Any] = ctypes.c_size_t.from_address


def _interface_address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def _header_address(array: Any) -> int:
    """The address of an array's data, read from the C struct.

    NumPy's ABI fixes `data` as the first field after the object header (PyArrayObject_fields in
    ndarraytypes.h). The documented ways create a dictionary or an object first: 1.0 µs, not 0.1.
    """
    return _size_at(id(array) + _HEAD_BYTES).value


def _pick_address() -> Callable[[Any], int]:
    """The fast way if objects are C structs in this interpreter, which is verified by a test."""
    if sys.implementation.name == "cpython":
        sample = np.zeros(4, np.uint8)
        if all(_header_address(a) == _interface_address(a) for a in (sample, sample[1:])):
            return _header_address
    return _interface_address


_address = _pick_address()


def _extent(array: Any) -> tuple[int, int]:
    """The address range of the array that owns the memory of a view."""
    base = array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            array = base
        # The base of stride_tricks.as_strided is not an array, but has the array as its base.
        base = getattr(base, "base", None)
    if array.flags.forc:  # contiguous; twice as fast as the general case
        low = _address(array)
        return low, low + array.nbytes
    return np.lib.array_utils.byte_bounds(array)


def _read_numpy(array: Any) -> Reading:
    element = NUMPY_ELEMENTS.get(array.dtype)
    if element is None:
        element = element_type(array.dtype)  # raises
    address = _address(array)
    flags = array.flags
    if flags.owndata:  # NumPy's own allocations are contiguous
        return address, element, CPU, address, address + array.nbytes, flags.writeable
    low, high = _extent(array)
    return address, element, CPU, low, high, flags.writeable


# --------------------------------------------------------------------------------------------
# Other protocols
# --------------------------------------------------------------------------------------------


def _read_cuda_interface(tensor: Any) -> Reading:
    """CuPy, Numba and JAX arrays. The interface does not identify the device."""
    interface = tensor.__cuda_array_interface__
    address, read_only = interface["data"]
    element = _element(np.dtype(interface["typestr"]))
    address = int(address)
    return address, element, _cuda_name(address), UNKNOWN, UNKNOWN, not read_only


def _read_interface(tensor: Any) -> Reading:
    return _read_numpy(np.asarray(tensor))


_DLPACK_CPU = (1, 3)  # kDLCPU, kDLCUDAHost


def _read_dlpack(tensor: Any) -> Reading:
    device = int(tensor.__dlpack_device__()[0])
    if device not in _DLPACK_CPU:
        raise TypeError(
            f"a {type(tensor).__name__} supports only DLPack, on a device of DLPack type {device}: "
            "arrays that are not on the CPU require data_ptr() or __cuda_array_interface__"
        )
    array = np.from_dlpack(tensor)
    address, element, _, low, high, writable = _read_numpy(array)
    # Hide memory that the exporter shares with others.
    del low, high
    return address, element, CPU, UNKNOWN, UNKNOWN, writable


READERS: dict[type, Reader] = {np.ndarray: _read_numpy}
"""The readers of the tensor types seen so far. `find_reader` adds types."""


NATIVE_READERS: dict[type, bytes] = {}
"""For classes that native code reads by a C function: the addresses of the function and of the name
of the device; see `read_by_function` (`runtime/launchers/functions.py`)."""

DLPACK_TYPES = {
    **{f"i{bits}": (0, bits) for bits in (8, 16, 32, 64)},
    **{f"u{bits}": (1, bits) for bits in (8, 16, 32, 64)},
    **{f"fp{bits}": (2, bits) for bits in (16, 32, 64)},
    "bf16": (4, 16),
    "i1": (6, 8),
    "fp8e4nv": (10, 8),
    "fp8e4b8": (11, 8),
    "fp8e5": (12, 8),
    "fp8e5b16": (13, 8),
}
"""Code and bits of DLPack's DLDataType by element type in short form."""


def _choose_reader(tensor: object) -> Reader | None:
    if hasattr(tensor, "data_ptr") and hasattr(tensor, "dtype"):
        is_torch = all(hasattr(type(tensor), name) for name in ("untyped_storage", "is_cpu"))
        if is_torch:
            if _is_fake(type(tensor)):
                return _read_fake
            return _read_rocm_torch if is_for_rocm(sys.modules.get("torch")) else _read_torch
        return _read_duck
    if isinstance(tensor, np.ndarray):
        return _read_numpy
    if isinstance(tensor, np.generic):
        return None
    if hasattr(tensor, "__cuda_array_interface__"):
        return _read_cuda_interface
    if hasattr(tensor, "__array_interface__"):
        return _read_interface
    if hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__"):
        return _read_dlpack
    return None


def find_reader(tensor: object) -> Reader | None:
    """The reader for an object; None if it is not a tensor.

    The reader is recorded for the type, unless the attributes are those of the instance: another
    instance of the type may not have them.
    """
    kind = type(tensor)
    reader = READERS.get(kind)
    if reader is None:
        reader = _choose_reader(tensor)
        attributes = ("data_ptr", "__cuda_array_interface__", "__array_interface__", "__dlpack__")
        offers = any(hasattr(kind, name) for name in attributes)
        # A tuple is never a tensor, regardless of its attributes.
        if reader is not None and offers and not isinstance(tensor, tuple):
            READERS[kind] = reader
    return reader


def read(tensor: object) -> Reading:
    """Address, element type, device and extent of a tensor.

        read(np.zeros(8, np.float32))  # (139…, "fp32", "cpu", 139…, 139… + 32, True)

    Raises:
        TypeError: it is not a tensor, or its element type is not supported.
    """
    reader = find_reader(tensor)
    if reader is None:
        raise TypeError(f"a {type(tensor).__name__} is not a tensor")
    return reader(tensor)


def extent_of(tensor: Any, address: int) -> tuple[int, int]:
    """The address range of a tensor's storage on any device.

    Some readers do not report it, where querying it costs more than the rest of the read.

    Args:
        address: from its reader.

    Raises:
        TypeError: neither the object nor a tensor that it wraps has `untyped_storage()` or
            `__cuda_array_interface__`.
    """
    owner: Any
    for owner in (tensor, getattr(tensor, "base", None)):
        if hasattr(owner, "untyped_storage"):
            storage = owner.untyped_storage()
            low = int(storage.data_ptr())
            return low, low + int(storage.nbytes())
        interface = getattr(owner, "__cuda_array_interface__", None)
        if interface is not None:
            return _interface_extent(interface, address)
    raise TypeError(
        f"a {type(tensor).__name__} does not say how large its memory is; `untyped_storage()` or "
        "`__cuda_array_interface__` would"
    )


def _interface_extent(interface: Any, address: int) -> tuple[int, int]:
    shape, size = interface["shape"], np.dtype(interface["typestr"]).itemsize
    strides = interface.get("strides")
    if 0 in shape:
        return address, address
    if strides is None:
        return address, address + size * prod(shape)
    reaches = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    low = address + sum(min(0, reach) for reach in reaches)
    return low, address + sum(max(0, reach) for reach in reaches) + size


def alias_classes(extents: list[tuple[int, int]]) -> tuple[int, ...]:
    """Alias classes: tensors with equal numbers may overlap; () if none do.

    Args:
        extents: (low, high) of each tensor's storage in bytes; an unknown range may overlap any.

    Numbers are assigned in the order of the tensors, so that equal overlaps give equal classes:
    ``alias_classes([(0, 8), (8, 16), (4, 6)]) == (0, 1, 0)``.
    """
    if len(extents) < 2:
        return ()
    highest = UNKNOWN
    for low, high in sorted(extents):
        if low < highest or low == UNKNOWN:
            return _classes(extents)
        highest = high  # at least `low`, and so the maximum so far
    return ()


def _classes(extents: list[tuple[int, int]]) -> tuple[int, ...]:
    if any(low == UNKNOWN for low, _ in extents):
        return (0,) * len(extents)
    # Sweep over the ranges by their low ends; a group ends where the next range starts after it.
    group_of = [0] * len(extents)
    group, highest = -1, UNKNOWN
    for index in sorted(range(len(extents)), key=extents.__getitem__):
        low, high = extents[index]
        if low >= highest:
            group += 1
        highest = max(highest, high)
        group_of[index] = group
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(group, len(numbers)) for group in group_of)
