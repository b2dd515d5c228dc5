"""Detects how native code can read torch tensors: by C functions that torch exports.

These are torch's stable C ABI for ahead-of-time compiled code (shim.h in
torch/csrc/inductor/aoti_torch/c). They take the address of a C++ tensor, which is the first field
of a tensor's Python object (`THPVariable` in torch/csrc/autograd/python_variable.h), or the second
in older releases. Both assumptions are verified: the functions' results for sample tensors are
compared with the Python attributes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tilewright.base.machine_code import address_of
from tilewright.runtime.native.layout import (
    TORCH_CPU,
    TORCH_CUDA,
    TORCH_DTYPES,
    TORCH_FUNCTIONS,
    TORCH_LAYOUT,
    TORCH_OFFSETS,
)
from tilewright.runtime.tensors import is_for_rocm

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_GET_NUM_THREADS = "_ZN2at15get_num_threadsEv"
# DLPackExchangeAPI of dlpack.h: the major version, and the index of current_work_stream in words.
_DLPACK_MAJOR, _STREAM_FUNCTION = 1, 6


class TorchTensors(NamedTuple):
    """The readers of the tensors of this version of torch.

    Attributes:
        offset: of the C++ tensor in a tensor's Python object, in bytes.
        functions: addresses of torch's C functions, by the fields of the structure Runtime.
        elements: our numbers of element types, indexed by torch's ScalarType; 0: unsupported.
    """

    offset: int
    functions: dict[str, int]
    elements: list[int]


def find_torch_tensors(torch: Any, numbers: dict[Any, int]) -> TorchTensors | None:
    """The readers of the tensors of this version of torch; None if verification fails.

    Args:
        torch: the module.
        numbers: our numbers of the supported element types, by torch's dtypes.
    """
    if is_for_rocm(torch):
        return None  # GPUs of HIP have the numbers of CUDA's: read by Python
    library = ctypes.CDLL(torch._C.__file__)
    try:
        functions = {f: address_of(library[f"aoti_{f}"]) for f in TORCH_FUNCTIONS}
        cpu, cuda = (getattr(library, f"aoti_torch_device_type_{d}")() for d in ("cpu", "cuda"))
    except AttributeError:  # a version of torch without these functions
        return None
    if (cpu, cuda) != (TORCH_CPU, TORCH_CUDA):
        return None
    samples = {dtype: _samples(torch, dtype) for dtype in numbers}
    offset = _offset([tensor for some in samples.values() for tensor in some])
    if offset is None:
        return None
    elements = [0] * TORCH_DTYPES
    for dtype, number in numbers.items():
        theirs = _dtype_number(functions, samples[dtype], offset)
        if theirs is None or not 0 <= theirs < TORCH_DTYPES:
            return None
        elements[theirs] = number
    functions |= _layout_functions(library, next(iter(samples.values())), offset)
    return TorchTensors(offset, functions, elements)


def _samples(torch: Any, dtype: Any) -> list[Any]:
    """Sample tensors in host memory: views that are smaller than their storage."""
    view = torch.empty((4, 3), dtype=dtype, device="cpu")[1:, 1]
    return [view, torch.nn.Parameter(view, requires_grad=False)]


def _offset(tensors: Sequence[Any]) -> int | None:
    """The offset of the C++ tensor in all of these Python objects; None if there is none.

    A C++ tensor is a pointer to its TensorImpl, whose address is the attribute `_cdata`.
    """
    for offset in TORCH_OFFSETS:
        words = (ctypes.c_uint64.from_address(id(tensor) + offset).value for tensor in tensors)
        if all(word == tensor._cdata for word, tensor in zip(words, tensors, strict=True)):
            return offset
    return None


def _dtype_number(functions: dict[str, int], tensors: Iterable[Any], offset: int) -> int | None:
    """torch's ScalarType of the tensors; None if a function's result is not as expected."""
    numbers: set[int] = set()
    for tensor in tensors:
        address = id(tensor) + offset
        found = {name: _call(function, address) for name, function in functions.items()}
        numbers.add(found.pop("torch_get_dtype"))
        del found["torch_get_device_index"]  # 0 or -1 for the CPU
        expected = {
            "torch_get_device_type": TORCH_CPU,
            "torch_get_data_ptr": tensor.data_ptr(),
            "torch_get_storage_size": tensor.untyped_storage().nbytes(),
            "torch_get_storage_offset": tensor.storage_offset(),
        }
        if found != expected:
            return None
    return numbers.pop() if len(numbers) == 1 else None


def _layout_functions(library: Any, tensors: Iterable[Any], offset: int) -> dict[str, int]:
    """The functions that read layouts; empty if one is missing, or returns something else."""
    try:
        functions = {name: address_of(library[f"aoti_{name}"]) for name in TORCH_LAYOUT}
    except AttributeError:
        return {}
    for tensor in tensors:
        rank, sizes, strides = (_call(f, id(tensor) + offset) for f in functions.values())
        if rank != tensor.dim():
            return {}
        numbers = ctypes.c_int64 * rank
        found = tuple(tuple(numbers.from_address(at)) for at in (sizes, strides))
        if found != (tuple(tensor.shape), tensor.stride()):
            return {}
    return functions


def _call(function: int, tensor: int) -> int:
    """The result of a function, of 32 or 64 bits; -1 if it fails."""
    result = ctypes.c_int64(0)
    return -1 if _FUNCTION(function)(tensor, ctypes.addressof(result)) else result.value


def threads_function(torch: Any) -> int:
    """The address of torch's `at::get_num_threads`, which takes no arguments and returns an int;
    0 if there is none."""
    try:
        function = ctypes.CDLL(torch._C.__file__)[_GET_NUM_THREADS]
    except AttributeError:
        return 0
    return address_of(function) if function() == torch.get_num_threads() else 0


def stream_function(torch: Any) -> int:
    """The address of torch's DLPackCurrentWorkStream (DLPack 1.2), which returns a device's current
    stream; 0 if there is none."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return 0
    get: Any = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    api: int = get(capsule, b"dlpack_exchange_api")
    if ctypes.c_uint32.from_address(api).value != _DLPACK_MAJOR:
        return 0
    return (ctypes.c_uint64 * (_STREAM_FUNCTION + 1)).from_address(api)[_STREAM_FUNCTION]
