"""Callbacks of compiled kernels on the CPU: device_print and failed assertions.

They are called from any thread of the pool, without the GIL; ctypes acquires it for the call.
An exception cannot propagate through native code: it is stored and raised after the launch.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.base.diagnostics import DeviceAssertionError
from tilewright.base.locks import Lock
from tilewright.base.machine_code import address_of
from tilewright.ir.types import BY_SHORT, Pointer, Scalar, numpy_of, scalar_type
from tilewright.ops.debug import failure_text, program_text

_Print: Any = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p
)
_Fail: Any = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)


class HostCalls:
    """The callbacks of one loaded kernel.

    Attributes:
        imports: addresses of the callbacks by symbol name.
    """

    def __init__(self) -> None:
        self._failures: list[BaseException] = []
        self._launching = Lock()
        self._functions = {
            "tilewright_print": _Print(self._guarded(self._print)),
            "tilewright_fail": _Fail(self._guarded(self._fail)),
        }
        self.imports: dict[str, int] = {
            name: address_of(function) for name, function in self._functions.items()
        }

    @contextmanager
    def one_launch(self) -> Generator[None]:
        """Serialise launches of this kernel: a callback cannot tell which launch it belongs to.

        Raises:
            DeviceAssertionError: an assertion of the launch has failed.
            BaseException: an exception in a print, such as KeyboardInterrupt.
        """
        with self._launching:
            yield
            if self._failures:
                first = self._failures[0]
                self._failures.clear()
                raise first

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """The function, with exceptions stored in `_failures`."""

        def guarded(*args: Any) -> None:
            try:
                function(*args)
            except BaseException as error:
                self._failures.append(error)

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
