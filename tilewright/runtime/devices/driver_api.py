"""A GPU driver's library bound by ctypes: functions by name, with failures as DeviceError; and the
connection of a process with it."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from tilewright.base.diagnostics import DeviceError


class DriverApi:
    """The driver's functions as attributes, looked up when they are first used.

    Attributes:
        prototypes: parameter types of the functions; each returns a status, 0 for success.
        common: the names of the functions that `gpu.py` and `gpu_clock.py` call, by the name by
            which they do so for all vendors. The parameters are the same.
    """

    prototypes: ClassVar[Mapping[str, tuple[Any, ...]]]
    common: ClassVar[Mapping[str, str]]

    def __init__(self, library: Any) -> None:
        self._library = library
        self._closed = ""

    def __getattr__(self, name: str) -> Callable[..., int]:
        own = self.common.get(name, name)
        prototype = self.prototypes.get(own)
        if prototype is None:
            raise AttributeError(name)
        self.require_usable()
        try:
            function = getattr(self._library, own)
        except AttributeError:
            raise DeviceError(
                f"the installed driver ({self.description()}) has no {own}: a newer driver is "
                "needed"
            ) from None
        function.argtypes = prototype
        function.restype = ctypes.c_int
        self.__dict__[name] = function
        return function

    def close(self, reason: str) -> None:
        """Make every later use raise a DeviceError with this message."""
        for name in (*self.prototypes, *self.common):
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


AnyApi = TypeVar("AnyApi", bound=DriverApi)


class Connection(Generic[AnyApi]):
    """The driver of this process, which the first call loads and initialises: ``connect()``.

    Drivers do not support fork: in a child that is forked afterwards, every use raises an error.

    Args:
        start: loads and initialises the driver.
        forked: the message of the error in a child.

    Attributes:
        api: the driver's API; None before the first call.
    """

    def __init__(self, start: Callable[[], AnyApi], forked: str) -> None:
        self._start, self._forked = start, forked
        self._lock = threading.Lock()
        self.api: AnyApi | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.close_in_child)

    def __call__(self) -> AnyApi:
        """The driver's API.

        Raises:
            DeviceError: there is no driver, its initialisation fails, or this process was forked
                after it had been initialised.
        """
        api = self.api or self._started()
        api.require_usable()
        return api

    def was_forked(self) -> bool:
        """Whether this process was forked after the driver had started, and cannot use it."""
        return self.api is not None and not self.api.usable

    def _started(self) -> AnyApi:
        with self._lock:
            if self.api is None:
                self.api = self._start()
            return self.api

    def close_in_child(self) -> None:
        """Called in a child that was forked from this process."""
        self._lock = threading.Lock()
        if self.api is not None:
            self.api.close(self._forked)
