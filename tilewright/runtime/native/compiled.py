"""The native `run` of one compiled kernel, and substitutes of functions that call it; see
`call_compiled.py`."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base import knobs
from tilewright.compiler.artifact import CompiledKernel, Run
from tilewright.compiler.source import CONSTEXPR
from tilewright.runtime.native import layout
from tilewright.runtime.native.guard_tables import WatchedName, fill_guards
from tilewright.runtime.native.layout import FIELDS, KNOWN_GRIDS, MAX_PARAMS
from tilewright.runtime.native.parameters import int_limits
from tilewright.runtime.native.records import Start
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
    found = _supported(kernel)
    if found is None:
        return None
    start = _start_of(found, kernel)
    return None if start is None else NativeRun(found, kernel, start, python).run


def _supported(kernel: CompiledKernel) -> Runtime | None:
    """The Runtime; None if native launches are not supported."""
    types = list(kernel.metadata.signature.values())
    if len(types) > MAX_PARAMS or not all(map(_is_plain, types)):
        return None
    return runtime()


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
        self._made = _Structures(runtime, kernel, start)
        self._is_stale = False
        runtime.look_for_torch()
        self.run: Run = runtime.new_compiled(self._made.box, self._fall_back, self)

    def _fall_back(self, *args: Any, **kwargs: Any) -> None:
        self._runtime.look_for_torch()
        self._python(*args, **kwargs)
        self._runtime.know_device(self._kernel.device)
        self._made.note_device()
        if self._is_stale:
            self._is_stale = _start_of(self._runtime, self._kernel) is None

    def forget(self) -> None:
        """Called in a forked child, which lacks the thread pool of the parent until the slow path
        has created one."""
        self._is_stale = True


class _Structures:
    """The structures that native code reads.

    Args:
        flags: of all parameters.

    Attributes:
        state, compiled: State and Compiled.
        box: their addresses.
    """

    def __init__(
        self, runtime: Runtime, kernel: CompiledKernel, start: Start, flags: int = 0
    ) -> None:
        self._kernel = kernel
        self._start = start  # has objects whose addresses are in the record
        self._record = start.record(kernel)
        types = list(kernel.metadata.signature.values())
        self.state = Structure("State")
        self.state.put("runtime", runtime.address)
        self.state.put("count", len(types))
        self.state.keep("params", _params(types, flags))
        self.compiled = Structure("Compiled")
        self.compiled.put("record", id(self._record) + FIELDS["Bytes"]["data"].offset)
        self.note_device()
        self.box = struct.pack("=2Q", self.state.address, self.compiled.address)

    def note_device(self) -> None:
        """Set the device on which the tensors of native launches must be: that of the kernel, which
        its first launch may determine."""
        name = self._kernel.device or self._kernel.metadata.target.backend
        self.compiled.put("device", DEVICES.get(name, UNKNOWN_DEVICE))


class Substitute:
    """A builtin in place of a Python function that launches a compiled kernel:

        function(*arguments, keyword=…)

    Native code reads the arguments, finds the grid, and launches. It calls the function for grids
    that it does not know, and for everything else that it does not support.

    Args:
        function: computes a grid, calls `note`, and launches by `CompiledKernel.run`. Its caller
            vouches for the types and devices of tensors.
        names: the parameter of the kernel that each argument is passed to.
        keyword: the name of an argument that has no effect.
        watched: names whose values must not change: otherwise the function is called.
        is_brief: whether a launch takes so little time that the GIL need not be released for it.

    Attributes:
        run: the builtin; None if native launches are not supported.
    """

    def __init__(
        self,
        kernel: CompiledKernel,
        function: Callable[..., Any],
        names: Sequence[str],
        keyword: str,
        watched: Sequence[WatchedName],
        is_brief: bool,
    ) -> None:
        self.run: Callable[..., Any] | None = None
        self._kernel = kernel
        self._turn = 0
        found = _supported(kernel)
        start = _start_of(found, kernel) if found is not None else None
        if found is None or start is None:
            return
        self._made = _Structures(found, kernel, start, layout.ONLY_ADDRESS)
        self._positions = {name: i for i, name in enumerate(kernel.metadata.signature)}
        self._made.state.put_object("hooks", knobs.launch_hooks)
        fill_guards(self._made.state, (), watched)
        compiled = self._made.compiled
        positions = [self._positions[name] for name in names]
        packed = struct.pack(f"={len(positions)}q", *positions)
        compiled.keep_alive(packed)
        compiled.put("positions", id(packed) + FIELDS["Bytes"]["data"].offset)
        compiled.put("given", len(positions))
        compiled.put("keeps_gil", int(is_brief))
        compiled.put_object("keyword", sys.intern(keyword))
        found.look_for_torch()
        self.run = found.new_substitute(self._made.box, function, self)

    def note(self, grid: Sequence[int], **numbers: int) -> None:
        """Have the next launches with these integers, by the names of their parameters, use a
        grid."""
        if self.run is None:
            return
        types = self._kernel.metadata.signature
        slots = [
            (self._positions[n], number) for n, number in numbers.items() if types[n] != CONSTEXPR
        ]
        words = [*grid, len(slots), *(word for pair in slots for word in pair)]
        packed = struct.pack(f"={len(words)}Q", *(word & (1 << 64) - 1 for word in words))
        self._made.compiled.put_object("grids", packed, skip=self._turn)
        self._turn = (self._turn + 1) % KNOWN_GRIDS


def _params(types: Sequence[str], flags: int) -> Structure:
    params = Structure("Param", len(types))
    for i, type in enumerate(types):
        params.put("flags", layout.IS_CONSTEXPR, i)
        if type != CONSTEXPR:
            params.put("flags", layout.kind_flags(type) | flags, i)
            low, high = int_limits(type)
            params.put("low", low, i)
            params.put("high", high, i)
    return params
