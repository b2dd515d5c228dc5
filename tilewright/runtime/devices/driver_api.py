"""A GPU driver's library bound by ctypes: functions by name, with failures as DeviceError."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tilewright.base.diagnostics import DeviceError


class DriverApi:
    """The driver's functions as attributes, looked up when they are first used.

    Attributes:
        prototypes: parameter types of the functions; each returns a status, 0 for success.
    """

    prototypes: ClassVar[Mapping[str, tuple[Any, ...]]]

    def __init__(self, library: Any) -> None:
        self._library = library
        self._closed = ""

    def __getattr__(self, name: str) -> Callable[..., int]:
        prototype = self.prototypes.get(name)
        if prototype is None:
            raise AttributeError(name)
        self.require_usable()
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise DeviceError(
                f"the installed driver ({self.description()}) has no {name}: a newer driver is "
                "needed"
            ) from None
        function.argtypes = prototype
        function.restype = ctypes.c_int
        self.__dict__[name] = function
        return function

    def close(self, reason: str) -> None:
        """Make every later use raise a DeviceError with this message."""
        for name in self.prototypes:
            self.__dict__.pop(name, None)
        self._closed = reason

    @property
    def usable(self) -> bool:
        """Whether the driver can still be called in this process."""
        return not self._closed

    def require_usable(self) -> None:
        """Raise DeviceError with the reason passed to `close`, unless `usable`."""
        if self._closed:
            raise DeviceError(self._closed)

    def description(self) -> str:
        """The driver's version, for messages: ``CUDA 12.4``."""
        raise NotImplementedError

    def error_name(self, status: int) -> str:
        """The name of a status: ``CUDA_ERROR_INVALID_VALUE``."""
        raise NotImplementedError

    def error_text(self, status: int) -> str:
        """The driver's description of a status, followed by its name."""
        raise NotImplementedError

    def check(self, status: int, doing: str) -> None:
        """Raise DeviceError unless a status is 0; `doing` names the failed action."""
        if status != 0:
            raise self.error(status, doing)

    def error(self, status: int, doing: str, hint: str = "") -> DeviceError:
        """The error for a status; `doing` names the failed action, `hint` suggests a remedy."""
        message = f"{doing}: {self.error_text(status)}"
        return DeviceError(f"{message}. {hint}" if hint else message, self.error_name(status))
