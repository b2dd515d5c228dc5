"""The process-wide state of the native code of a launch: the structure Runtime.

It has the addresses of functions and types of Python, NumPy and torch, the settings, and the thread
pool. Memory layouts that are not part of Python's stable ABI are verified with sample objects; if
one differs, or Python is an unsupported build, `runtime()` returns None and launches use the slow
path.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
import weakref
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, Protocol

import numpy as np

from tilewright.base import knobs
from tilewright.base.locks import Lock
from tilewright.base.machine_code import address_of, can_hold_code
from tilewright.ir.types import DType, scalar_type
from tilewright.language.values import constexpr
from tilewright.runtime import driver
from tilewright.runtime.devices.code import LoadedCode
from tilewright.runtime.grid import extents_of
from tilewright.runtime.kinds import KINDS
from tilewright.runtime.native.code import load
from tilewright.runtime.native.guard_tables import cells_are_as_expected
from tilewright.runtime.native.layout import (
    CONTIGUOUS,
    FIELDS,
    FUNCTIONS,
    INT64_MAX,
    INT64_MIN,
    LEAF,
    OWNS_DATA,
    WORD,
    WRITEABLE,
    kind_flags,
    table_of,
)
from tilewright.runtime.native.structure import Structure
from tilewright.runtime.native.torch_tensors import (
    find_torch_tensors,
    stream_function,
    threads_function,
)
from tilewright.runtime.tensors import CPU as CPU_NAME
from tilewright.runtime.tensors import (
    CUDA_NAMES,
    DLPACK_TYPES,
    NATIVE_READERS,
    NUMPY_ELEMENTS,
    SHORT,
    element_type,
)

METH_FASTCALL_KEYWORDS, METH_O = 0x82, 0x8

ELEMENTS = {short: number for number, short in enumerate(sorted(SHORT), 1)}
"""Numbers of the element types in words of a key."""

DEVICES = {name: number for number, name in enumerate((CPU_NAME, *CUDA_NAMES))}
"""Numbers of the devices in words of a key. Devices of other packages are appended when a kernel
has been launched on them."""

_CONSTANT_TYPES = (bool, str, DType)
_ATTRIBUTES = ("value", "best_config")
_PARTS = ("base", "shape", "strides", "block_shape", "padding")


class MethodDef(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("method", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Pool(Protocol):
    """A thread pool that native code can launch on."""

    @property
    def state(self) -> int:
        """Address of the pool."""
        ...

    @property
    def workers_address(self) -> int:
        """Address of the number of its worker threads, an int64."""
        ...

    def address_of(self, function: str) -> int:
        """Address of one of its functions: `pool_launch`, `pool_help`, `pool_cancel`."""
        ...

    def resume(self, job: int) -> None:
        """Continue a launch that `pool_launch` left unfinished."""
        ...


class VariantCache(Protocol):
    """A cache of compiled variants that native code reads; see `Launcher`."""

    def forget(self) -> None:
        """Drop all variants."""
        ...


class Runtime:
    """Owner of the structure Runtime and of the objects that it refers to.

    Attributes:
        code: the machine code.
        address: address of the structure.
        torch_stream: address of torch's DLPackCurrentWorkStream; 0 if there is none.
    """

    def __init__(self, code: LoadedCode) -> None:
        self.code = code
        self._all = Structure("Runtime")
        self.address = self._all.address
        self._launch_method = MethodDef(b"launch", code["launch"], METH_FASTCALL_KEYWORDS, None)
        self._bind_method = MethodDef(b"bind", code["bind"], METH_O, None)
        self._freeze_method = MethodDef(b"freeze", code["freeze"], METH_FASTCALL_KEYWORDS, None)
        self._bound_method = MethodDef(
            b"launch", code["launch_bound"], METH_FASTCALL_KEYWORDS, None
        )
        self._compiled_method = MethodDef(
            b"run", code["launch_compiled"], METH_FASTCALL_KEYWORDS, None
        )
        self._substitute_method = MethodDef(
            b"run", code["launch_substitute"], METH_FASTCALL_KEYWORDS, None
        )
        self._launchers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._late_types: dict[str, type] = {}
        self._torch_sought = False
        self.torch_stream = 0
        self._fill()

    def _fill(self) -> None:
        put, put_object = self._all.put, self._all.put_object
        for name in FUNCTIONS:
            put(name, address_of(getattr(ctypes.pythonapi, name)))
        for name, value in (("none", None), ("true", True), ("false", False)):
            put_object(name, value)
        for kind in (int, float, bool, tuple, dict, np.ndarray):
            put_object(kind.__name__, kind)
        put_object("function", FunctionType)
        put_object("constexpr", constexpr)
        for attribute in (*_ATTRIBUTES, *_PARTS):
            put_object(f"{attribute}_name", sys.intern(attribute))
        put_object("round_name", sys.intern("round_f32_to_tf32"))
        put_object("zero", sys.intern("zero"))
        put_object("nan", sys.intern("nan"))
        put_object("native_readers", NATIVE_READERS)
        put_object("element_numbers", ELEMENTS)
        put_object("device_numbers", DEVICES)
        put_object("home", _home)
        put_object("extents_of", extents_of)
        put_object("launch_hooks", knobs.launch_hooks)
        put_object("enter_chain", knobs.runtime.launch_enter_hook)
        put_object("exit_chain", knobs.runtime.launch_exit_hook)
        put("launch_method", ctypes.addressof(self._launch_method))
        self._all.put_words("constant_types", map(id, _CONSTANT_TYPES))
        self._all.put_words("elements", table_of(_numpy_elements()))
        self._all.put_words("dlpack_elements", table_of(_dlpack_elements()))
        self._all.put_words("element_bytes", _element_bytes())
        leaf = Structure("Param")
        leaf.put("flags", LEAF | kind_flags(""))
        leaf.put("low", INT64_MIN)
        leaf.put("high", INT64_MAX)
        self._all.put_words("leaf", leaf.words())
        put_object("environ", _environment())
        self._fill_kinds()
        self._knobs = [self._knob(name) for name in ("debug", "cpu_threads")]

    def _fill_kinds(self) -> None:
        """Fill in the types and attribute names of the table of kinds. Types that the table has by
        name, of modules that are not imported here, follow in `look_for_torch`."""
        types = [type for kind in KINDS for type in kind.types]
        self._all.put_words("kind_types", [0 if isinstance(t, str) else id(t) for t in types])
        self._all.put_words("kinds_met", [id(k.met) if k.met is not None else 0 for k in KINDS])
        names = [sys.intern(kind.attribute) for kind in KINDS]
        self._all.put_words("kind_attributes", map(id, names))
        self._kept = types, names, list(KINDS)

    def _put_type(self, name: str, type: Any) -> None:
        """Fill in a type that the table of kinds refers to by its name."""
        self._late_types[name] = type
        for i, known in enumerate(t for kind in KINDS for t in kind.types):
            if known == name:
                self._all.put_words("kind_types", [id(type)], skip=i)

    def _knob(self, name: str) -> Structure:
        """Fill in the structure Knob of a setting that is read on each launch."""
        group = knobs.runtime
        variables = [key for key, _ in vars(type(group).table()[name])["_keys"]]
        knob = Structure("Knob")
        knob.put_object("group", group)
        knob.put_object("overrides", vars(group))
        knob.put_object("name", sys.intern(name))
        knob.put_object("variable", variables[0])
        knob.put_object("other_variable", variables[-1])
        self._all.put_words(name, knob.words())
        return knob

    # -- kernels --------------------------------------------------------------------------------

    def new_bind(self, box: bytes, owner: VariantCache) -> Any:
        """The builtin `bind` of a kernel; `box` has the address of the kernel's State."""
        self._launchers.add(owner)
        return _builtin(self._bind_method, (box, owner))

    def new_freeze(self, box: bytes, grid: Any, owner: VariantCache) -> Any:
        """The builtin `freeze` of a kernel and a grid: it reads arguments for `new_bound`."""
        return _builtin(self._freeze_method, (box, grid, owner))

    def new_bound(self, box: bytes, fallback: Callable[[], Any], *kept: Any) -> Any:
        """The builtin `launch_bound`; `box` has the addresses of its State and its Bound.

        Args:
            fallback: the same launch on the slow path.
            kept: objects that the structures refer to.
        """
        return _builtin(self._bound_method, (box, fallback, *kept))

    def new_compiled(self, box: bytes, fallback: Callable[..., Any], owner: VariantCache) -> Any:
        """The builtin `run` of a compiled kernel; `box` has the addresses of its State and its
        Compiled.

        Args:
            fallback: the same launch on the slow path.
            owner: keeps alive what the structures refer to.
        """
        self._launchers.add(owner)
        return _builtin(self._compiled_method, (box, fallback, owner))

    def new_substitute(self, box: bytes, function: Callable[..., Any], owner: object) -> Any:
        """A builtin that launches a compiled kernel as `function` does; see `new_compiled`."""
        return _builtin(self._substitute_method, (box, function, owner))

    @property
    def debug(self) -> int:
        """The setting `runtime.debug` as a word of a key."""
        return int(knobs.runtime.debug)

    # -- devices --------------------------------------------------------------------------------

    def use_pool(self, pool: Pool, slice_ns: int) -> None:
        """Enable launches on a thread pool; `slice_ns` is the time slice of a native call."""
        put = self._all.put
        put("pool_workers", pool.workers_address)
        for function in ("pool_launch", "pool_help", "pool_cancel"):
            put(function, pool.address_of(function))
        put("slice", slice_ns)
        self._all.put_object("resume", pool.resume)
        put("pool", pool.state)

    def use_cuda(self) -> None:
        """Enable launches through the CUDA driver."""
        self._all.put("cuda_usable", 1)

    def after_fork(self) -> None:
        """In a forked child: it has neither the pool's threads nor a CUDA driver, so launches use
        the slow path until that has created a pool."""
        self._all.put("pool", 0)
        self._all.put("cuda_usable", 0)
        for launcher in list(self._launchers):
            launcher.forget()

    def know_device(self, name: str) -> None:
        """Assign a number to a device that has launched a kernel, which enables its fast path."""
        if name not in DEVICES and driver.has_driver(name.partition(":")[0]):
            DEVICES.setdefault(name, len(DEVICES))

    # -- torch ----------------------------------------------------------------------------------

    def look_for_torch(self) -> None:
        """Enable native reading of torch tensors once the program has imported torch."""
        torch: Any = sys.modules.get("torch")
        if self._torch_sought or not hasattr(torch, "nn"):  # or another thread is importing it
            return
        self._torch_sought = True
        self.torch_stream = stream_function(torch)
        self._all.put("torch_threads", threads_function(torch))
        dtypes = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
        named = {dtype: ELEMENTS[short] for dtype in dtypes if (short := _short(dtype))}
        found = find_torch_tensors(torch, named)
        if found is None:
            return
        for field, address in found.functions.items():
            self._all.put(field, address)
        self._all.put("torch_offset", found.offset)
        self._all.put_words("torch_elements", found.elements)
        self._put_type("torch.nn:Parameter", torch.nn.Parameter)
        self._put_type("torch:Tensor", torch.Tensor)


def _builtin(method: MethodDef, self: tuple[Any, ...]) -> Any:
    """A builtin function (PyCFunction); `method` must outlive it."""
    make: Any = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(method), self, None)


def _short(dtype: Any) -> str:
    try:
        return element_type(dtype)
    except TypeError:
        return ""


def _home() -> int:
    """The number of the active driver's device; -1 if it has none."""
    return DEVICES.get(driver.name_of(driver.active), -1)


def _element_bytes() -> list[int]:
    """Element sizes in bytes, by the number of the element type."""
    sizes = [0] * (max(ELEMENTS.values()) + 1)
    for short, number in ELEMENTS.items():
        sizes[number] = scalar_type(short).nbytes_in_memory
    return sizes


def _environment() -> Any:
    """The dict that settings are read from; None if they use os.environ directly."""
    return vars(knobs)["_raw"]


def _numpy_elements() -> dict[int, int]:
    """Element type (lowest byte) and size (the bits above), by the address of a dtype object."""
    every = {id(d): d for d in (*NUMPY_ELEMENTS, *map(np.dtype, np.typecodes["All"]))}
    return {
        address: ELEMENTS[NUMPY_ELEMENTS[dtype]] | dtype.itemsize << 8
        for address, dtype in every.items()
        if dtype in NUMPY_ELEMENTS
    }


def _dlpack_elements() -> dict[int, int]:
    """Element types by DLDataType as a word: code, bits, and 1 lane."""
    return {
        code | bits << 8 | 1 << 16: ELEMENTS[short] for short, (code, bits) in DLPACK_TYPES.items()
    }


# -- verification ---------------------------------------------------------------------------------


def _is_supported() -> bool:
    """Whether this build of Python, and NumPy, have the layouts that the code relies on."""
    return (
        sys.implementation.name == "cpython"
        and "t" not in getattr(sys, "abiflags", "")  # free-threaded builds
        and not hasattr(sys, "getobjects")  # builds with Py_TRACE_REFS
        and _environment() is not None
        and all(hasattr(ctypes.pythonapi, name) for name in FUNCTIONS)
        and can_hold_code()
        and _objects_are_as_expected()
        and cells_are_as_expected()
        and _arrays_are_as_expected()
    )


def _word_at(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _objects_are_as_expected() -> bool:
    """Whether objects, tuples and bytes have their fields at the expected offsets."""
    items, data = FIELDS["Tuple"]["items"].offset, FIELDS["Bytes"]["data"].offset
    first, second, text = 12345.5, "second", b"some bytes"
    pair = (first, second)
    at = FIELDS["Object"]["type"].offset
    types = all(_word_at(id(o) + at) == id(type(o)) for o in (first, second, pair))
    return (
        types
        and _references_are_counted()
        and all(_word_at(id(o) + FIELDS["Tuple"]["size"].offset) == 2 for o in (pair, [*pair]))
        and [_word_at(id(pair) + items + WORD * i) for i in (0, 1)] == [id(first), id(second)]
        and ctypes.string_at(id(text) + data, len(text)) == text
    )


def _references_are_counted() -> bool:
    """Whether the reference count of an object is at the expected offset, and has 32 bits."""
    owners: list[object] = [object()]
    at = id(owners[0]) + FIELDS["Object"]["references"].offset
    alone = ctypes.c_uint32.from_address(at).value
    owners.append(owners[0])
    return (alone, ctypes.c_uint32.from_address(at).value) == (1, 2)


def _arrays_are_as_expected() -> bool:
    """Whether NumPy arrays have their fields at the expected offsets."""
    base = np.zeros((3, 5), np.int16)
    view = base[1:, ::2]
    base.flags.writeable = False
    return all(map(_array_is_as_expected, (base, view, base.T)))


def _array_is_as_expected(array: Any) -> bool:
    at = {name: id(array) + field.offset for name, field in FIELDS["Array"].items()}
    flags = ctypes.c_int32.from_address(at["flags"]).value
    dims = ctypes.c_int64 * array.ndim
    return (
        _word_at(at["data"]) == array.__array_interface__["data"][0]
        and ctypes.c_int32.from_address(at["nd"]).value == array.ndim
        and tuple(dims.from_address(_word_at(at["dims"]))) == array.shape
        and tuple(dims.from_address(_word_at(at["strides"]))) == array.strides
        and _word_at(at["base"]) == (0 if array.base is None else id(array.base))
        and _word_at(at["descr"]) == id(array.dtype)
        and bool(flags & OWNS_DATA) == array.flags.owndata
        and bool(flags & WRITEABLE) == array.flags.writeable
        and bool(flags & CONTIGUOUS) == array.flags.forc
    )


_lock = Lock()


@cache
def _instance() -> Runtime | None:
    if not _is_supported():
        return None
    try:
        return Runtime(load())
    except RuntimeError as error:
        warnings.warn(f"kernels are launched by Python: {error}", RuntimeWarning, stacklevel=2)
        return None


def runtime() -> Runtime | None:
    """The Runtime of this process, created by the first call; None if native launches are not
    supported here."""
    with _lock:
        return _instance()


def _after_fork_in_child() -> None:
    if _instance.cache_info().currsize and (made := _instance()) is not None:
        made.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
