"""Scopes of the program, to which launches and metrics belong.

Each thread has its own scopes. A thread without any, such as that of torch's backward pass, is in
those of the main thread.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from tilewright.profiler.data import CPU_TIME, Metric, Recorded

Function = TypeVar("Function", bound=Callable[..., Any])

_receivers: list[Callable[[Recorded], None]] = []
"""The sessions' functions for scopes that end."""

_CONTEXT_LIMIT = 64  # frames of Python


class _Entered:
    """A scope that has been entered."""

    __slots__ = ("begin", "metrics", "name", "number")

    def __init__(self, name: str, metrics: Mapping[str, Any] | None, number: int) -> None:
        self.name = name
        self.number = number
        self.metrics: dict[str, Metric] = _plain(metrics)
        self.begin = time.perf_counter_ns()


class _Thread(threading.local):
    """The scopes and states that a thread is in."""

    def __init__(self) -> None:
        self.scopes: list[_Entered] = []
        self.states: list[str] = []


_here = _Thread()
_main: list[list[_Entered]] = []
"""The scopes of the main thread, once it has entered one."""
_count = 0


def connect(receive: Callable[[Recorded], None]) -> None:
    """Pass scopes on to a function; while there is none, scopes are not recorded."""
    _receivers.append(receive)


def disconnect(receive: Callable[[Recorded], None]) -> None:
    _receivers.remove(receive)


def path() -> tuple[str, ...]:
    """The names of the current scopes and states, outermost first."""
    scopes = _here.scopes or (_main[0] if _main else [])
    return (*(entered.name for entered in scopes), *_here.states)


def python_path() -> tuple[str, ...]:
    """The functions of the program that are being called, as ``file:function@line``."""
    frame: Any = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    found: list[str] = []
    while frame is not None and len(found) < _CONTEXT_LIMIT:
        if not frame.f_globals.get("__name__", "").startswith("tilewright."):
            code = frame.f_code
            found.append(f"{code.co_filename}:{code.co_name}@{frame.f_lineno}")
        frame = frame.f_back
    return tuple(reversed(found))


def enter_scope(name: str, *, metrics: Mapping[str, Any] | None = None) -> int | None:
    """Enter a scope; launches until `exit_scope` belong to it.

    Args:
        metrics: numbers to add to those of the scope. One whose name ends with ``(exc)`` is not
            included in the scopes around.

    Returns:
        the number of the scope; None without a session.
    """
    global _count
    if not _receivers:
        return None
    _count += 1
    if not _main and threading.current_thread() is threading.main_thread():
        _main.append(_here.scopes)
    _here.scopes.append(_Entered(name, metrics, _count))
    return _count


def exit_scope(name: str | None = None, *, metrics: Mapping[str, Any] | None = None) -> int | None:
    """Exit the innermost scope.

    Args:
        name: its name, to check that scopes are nested.
        metrics: further metrics of the scope.

    Returns:
        its number; None without a session.

    Raises:
        ValueError: the innermost scope has another name.
    """
    if not _here.scopes:
        return None  # entered before the session was started
    inner = _here.scopes[-1]
    if name is not None and name != inner.name:
        raise ValueError(f"exit_scope({name!r}): the innermost scope is {inner.name!r}")
    inner.metrics.update(_plain(metrics))
    names = tuple(entered.name for entered in _here.scopes)
    _here.scopes.pop()
    duration = time.perf_counter_ns() - inner.begin
    thread = threading.get_ident()
    for receive in list(_receivers):
        receive(Recorded(names, inner.begin, duration, inner.metrics, "", thread))
    return inner.number


def enter_state(name: str) -> None:
    """Add a frame below the scopes, for launches of this thread until `exit_state`."""
    if _receivers:
        _here.states.append(name)


def exit_state() -> None:
    """Remove the innermost state."""
    if _here.states:
        _here.states.pop()


class _Around:
    """A context manager that decorates functions, too."""

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *error: object) -> None:
        raise NotImplementedError

    def again(self) -> _Around:
        """A new one of its kind, so that a decorated function may call itself."""
        raise NotImplementedError

    def __call__(self, function: Function) -> Function:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.again():
                return function(*args, **kwargs)

        return call  # pyright: ignore[reportReturnType]


class scope(_Around):
    """A scope, as a context manager or a decorator.

        with proton.scope("loss", metrics={"tokens": 4096}):
            kernel[grid](...)

    Args:
        name: of its frame.
        metrics: see `enter_scope`.
    """

    def __init__(self, name: str, metrics: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.metrics = metrics
        self.id: int | None = None

    def again(self) -> scope:
        return type(self)(self.name, self.metrics)

    def __enter__(self) -> scope:
        self.id = enter_scope(self.name, metrics=self.metrics)
        return self

    def __exit__(self, *error: object) -> None:
        if self.id is not None:
            exit_scope(self.name)


class cpu_timed_scope(scope):
    """A scope with the metric ``cpu_time (ns)(exc)``: its time on the host.

    Raises:
        ValueError: `metrics` has one of that name.
    """

    def __init__(self, name: str, metrics: Mapping[str, Any] | None = None) -> None:
        if metrics and "cpu_time" in metrics:
            raise ValueError("the metric cpu_time is that of cpu_timed_scope itself")
        super().__init__(name, metrics)
        self._begin = 0

    def __enter__(self) -> scope:
        super().__enter__()
        self._begin = time.perf_counter_ns()
        return self

    def __exit__(self, *error: object) -> None:
        if self.id is not None:
            exit_scope(self.name, metrics={CPU_TIME: time.perf_counter_ns() - self._begin})


class state(_Around):
    """A state, as a context manager or a decorator: a frame below the scopes.

    Args:
        name: of its frame.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def again(self) -> state:
        return state(self.name)

    def __enter__(self) -> state:
        enter_state(self.name)
        return self

    def __exit__(self, *error: object) -> None:
        exit_state()


def _plain(metrics: Mapping[str, Any] | None) -> dict[str, Metric]:
    """Metrics as Python's numbers; tensors of one element are read.

    Raises:
        TypeError: a metric is not a number.
    """
    result: dict[str, Metric] = {}
    for name, value in (metrics or {}).items():
        number = value.item() if hasattr(value, "item") else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise TypeError(f"the metric {name!r} is a number, not {value!r}")
        result[name] = number
    return result
