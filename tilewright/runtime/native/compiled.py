"""The native `run` of one compiled kernel; see `call_compiled.py`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from tilewright.compiler.artifact import CompiledKernel, Run
from tilewright.compiler.source import CONSTEXPR
from tilewright.runtime.native import layout
from tilewright.runtime.native.launcher import Start, int_limits
from tilewright.runtime.native.layout import FIELDS, MAX_PARAMS
from tilewright.runtime.native.runtime import DEVICES, Runtime, runtime
from tilewright.runtime.native.structure import Structure

UNKNOWN_DEVICE = -2
"""A value of Compiled.device that is the number of no device."""


def native_run(kernel: CompiledKernel, python: Run) -> Run | None:
    """The builtin `run` of a loaded kernel; None if native launches are not supported: here, or for
    the kernel's arguments, such as tuples, descriptors and floats narrower than fp32.

    Args:
        python: an equivalent, for calls that native code does not support.
    """
    types = list(kernel.metadata.signature.values())
    found = runtime()
    if found is None or len(types) > MAX_PARAMS or not all(map(_is_plain, types)):
        return None
    start = _start_of(found, kernel)
    return None if start is None else NativeRun(found, kernel, start, python).run


def _is_plain(type: Any) -> bool:
    return isinstance(type, str) and not type.startswith("tensordesc")


def _start_of(runtime: Runtime, kernel: CompiledKernel) -> Start | None:
    native_start = getattr(kernel.loaded, "native_start", None)
    return native_start(runtime) if native_start else None


class NativeRun:
    """The structures State and Compiled of a loaded kernel.

    Attributes:
        run: the builtin.
    """

    def __init__(self, runtime: Runtime, kernel: CompiledKernel, start: Start, python: Run) -> None:
        self._runtime = runtime
        self._kernel = kernel
        self._python = python
        self._start = start  # has objects whose addresses are in the record
        self._record = start.record(kernel)
        self._is_stale = False
        types = list(kernel.metadata.signature.values())
        self._state = Structure("State")
        self._state.put("runtime", runtime.address)
        self._state.put("count", len(types))
        self._state.keep("params", _params(types))
        self._compiled = Structure("Compiled")
        self._compiled.put("record", id(self._record) + FIELDS["Bytes"]["data"].offset)
        self._note_device()
        runtime.look_for_torch()
        box = struct.pack("=2Q", self._state.address, self._compiled.address)
        self.run: Run = runtime.new_compiled(box, self._fall_back, self)

    def _note_device(self) -> None:
        """Set the device on which the tensors of native launches must be: that of the kernel, which
        its first launch may determine."""
        name = self._kernel.device or self._kernel.metadata.target.backend
        self._compiled.put("device", DEVICES.get(name, UNKNOWN_DEVICE))

    def _fall_back(self, *args: Any, **kwargs: Any) -> None:
        self._runtime.look_for_torch()
        self._python(*args, **kwargs)
        self._runtime.know_device(self._kernel.device)
        self._note_device()
        if self._is_stale:
            self._is_stale = _start_of(self._runtime, self._kernel) is None

    def forget(self) -> None:
        """Called in a forked child, which lacks the thread pool of the parent until the slow path
        has created one."""
        self._is_stale = True


def _params(types: Sequence[str]) -> Structure:
    params = Structure("Param", len(types))
    for i, type in enumerate(types):
        params.put("flags", layout.IS_CONSTEXPR, i)
        if type != CONSTEXPR:
            params.put("flags", layout.kind_flags(type), i)
            low, high = int_limits(type)
            params.put("low", low, i)
            params.put("high", high, i)
    return params
