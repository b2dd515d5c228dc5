"""Callbacks of compiled kernels on the CPU: device_print and failed assertions.

They are called from any thread of the pool, without the GIL; ctypes acquires it for the call.
An exception cannot propagate through native code: it is stored and raised after the launch.

A call does not identify its launch. Hence launches of one such kernel are serialised. Native code
(`native/start_cpu.py`) starts one only if no other runs: holding the GIL, it checks that both words
of `owners` are 0, and stores its thread's number in the first one. Python stores its own in the
second one, which prevents launches in native code, and waits for a running one.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.base.diagnostics import DeviceAssertionError
from tilewright.base.locks import Lock
from tilewright.base.machine_code import address_of
from tilewright.ir.types import BY_SHORT, Pointer, Scalar, numpy_of, scalar_type
from tilewright.ops.debug import failure_text, program_text
from tilewright.runtime.native.layout import OWNERS

_Print: Any = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p
)
_Fail: Any = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)


IN_NATIVE, IN_PYTHON = range(OWNERS)
TURN_SECONDS = 20e-6
"""Between two looks at whether a launch in native code has ended."""

_all: weakref.WeakSet[HostCalls] = weakref.WeakSet()


class HostCalls:
    """The callbacks of one loaded kernel.

    Attributes:
        imports: addresses of the callbacks by symbol name.
        failures: the exceptions of callbacks, in order.
    """

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self._launching = Lock()
        self._owners = (ctypes.c_int64 * OWNERS)()
        _all.add(self)
        self._functions = {
            "tilewright_print": _Print(self._guarded(self._print)),
            "tilewright_fail": _Fail(self._guarded(self._fail)),
        }
        self.imports: dict[str, int] = {
            name: address_of(function) for name, function in self._functions.items()
        }

    @contextmanager
    def one_launch(self) -> Generator[None]:
        """Wait for other launches of this kernel, except one that this thread has interrupted.

        Raises:
            DeviceAssertionError: an assertion of the launch has failed.
            BaseException: an exception in a print, such as KeyboardInterrupt.
        """
        me = threading.get_ident()
        with self._launching:
            outer = self._owners[IN_PYTHON]
            self._owners[IN_PYTHON] = me
            try:
                while self._owners[IN_NATIVE] not in (0, me):
                    time.sleep(TURN_SECONDS)
                if not (outer or self._owners[IN_NATIVE]):
                    self.failures.clear()  # of a launch that ended by another exception
                others = len(self.failures)
                yield
                self.raise_first(others)
            finally:
                self._owners[IN_PYTHON] = outer

    def raise_first(self, others: int = 0) -> None:
        """Raise the first failure, if there is any, and forget those after it.

        Args:
            others: how many failures are of another launch, which goes on.
        """
        failures = self.failures[others:]
        del self.failures[others:]
        if failures:
            raise failures[0]

    @property
    def owners_address(self) -> int:
        return ctypes.addressof(self._owners)

    def free_in_child(self) -> None:
        """End the turns of threads that do not exist in a forked child."""
        for i, owner in enumerate(self._owners):
            if owner != threading.get_ident():
                self._owners[i] = 0

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """The function, with exceptions stored in `failures`."""

        def guarded(*args: Any) -> None:
            try:
                function(*args)
            except BaseException as error:
                self.failures.append(error)

        return guarded

    def _fail(self, text: bytes, x: int, y: int, z: int) -> None:
        raise DeviceAssertionError(failure_text(**json.loads(text), program=(x, y, z)))

    def _print(self, text: bytes, x: int, y: int, z: int, address: int | None) -> None:
        facts = json.loads(text)
        if "type" not in facts:
            sys.stdout.write(program_text((x, y, z), facts["prefix"], False, [], []))
            return
        element = _element(facts["type"])
        dtype = numpy_of(element)
        size = int(np.prod(facts["shape"], dtype=np.int64)) * dtype.itemsize
        array = np.frombuffer(ctypes.string_at(address or 0, size), dtype).reshape(facts["shape"])
        shown = program_text((x, y, z), facts["prefix"], facts["hex"], [element], [array])
        sys.stdout.write(shown)


def _element(short: str) -> Scalar:
    """An element type by its short name. The pointee of pointers is ignored."""
    return scalar_type(short) if short in BY_SHORT else Pointer(scalar_type("i8"))


def _after_fork_in_child() -> None:
    for calls in list(_all):
        calls.free_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
