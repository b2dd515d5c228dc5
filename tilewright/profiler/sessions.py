"""Sessions of profiling: from `start` to `finalize`, which writes the profile."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tilewright.base import knobs
from tilewright.base.locks import Lock
from tilewright.profiler import scopes
from tilewright.profiler.clocks import DeviceTimes
from tilewright.profiler.data import Recorded, Trace, Tree
from tilewright.runtime import driver
from tilewright.runtime.launch import LaunchMetadata

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_PROFILE_NAME = "proton"

LAUNCH_METRICS = ("flops", "flops8", "flops16", "flops32", "flops64", "bytes")
"""The numbers of `launch_metadata` that become metrics."""

CONTEXTS: dict[str, Callable[[], tuple[str, ...]]] = {
    "shadow": scopes.path,
    "python": lambda: (*scopes.python_path(), *scopes.path()),
}
DATA: dict[str, type[Tree | Trace]] = {"tree": Tree, "trace": Trace}
FORMATS = tuple(kind.suffix for kind in DATA.values())
HOOKS = (None, "triton")
BACKENDS = (None, "cupti")
"""Both take the times of events; "cupti" is what programs for NVIDIA's GPUs name."""


class Session:
    """A profile being recorded.

    Attributes:
        name: the path of the file to write, without its suffix.
        data: what is recorded.
        context: returns the frames around a launch.
        describes: whether launches have the name and the metrics of `launch_metadata`.
        active: whether launches and scopes are recorded now.
    """

    def __init__(self, name: str, data: str, context: str, describes: bool) -> None:
        self.name = name
        self.data = DATA[data]()
        self.context = CONTEXTS[context]
        self.describes = describes
        self.active = True
        self.devices: set[str] = set()

    def add_launch(self, launch: Recorded) -> None:
        self.devices.add(launch.device)
        self.data.add_launch(launch)

    def add_scope(self, scope: Recorded) -> None:
        if self.active:
            self.data.add_scope(scope)

    def write(self) -> None:
        path = Path(f"{self.name}.{self.data.suffix}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.data.text(_properties(self.devices)), "utf-8")


class _Launch(NamedTuple):
    """A launch that has begun."""

    times: DeviceTimes
    start: Any
    receivers: list[tuple[Session, Recorded]]


class _Thread(threading.local):
    launch: _Launch | None = None


_sessions: dict[int, Session] = {}
_next = 0
_times: dict[str, DeviceTimes] = {}
_here = _Thread()
_lock = Lock()


# -- launches -------------------------------------------------------------------------------------


def _enter_launch(metadata: LaunchMetadata) -> None:
    recording = [session for session in _sessions.values() if session.active]
    if not recording:
        return
    device = metadata.device
    described = metadata.get() if any(s.describes for s in recording) else {}
    metrics = {name: described[name] for name in LAUNCH_METRICS if name in described}
    receivers: list[tuple[Session, Recorded]] = []
    for session in recording:
        name = described["name"] if session.describes else metadata.kernel_name
        found = metrics if session.describes else {}
        path = (*session.context(), str(name))
        receivers.append((session, Recorded(path, 0, 0, found, device, metadata.stream)))
    with _lock:
        if device not in _times:
            _times[device] = DeviceTimes(device)
        times = _times[device]
    _here.launch = _Launch(times, times.mark(), receivers)


def _exit_launch(metadata: LaunchMetadata) -> None:
    launch, _here.launch = _here.launch, None
    if launch is None:
        return

    def receive(begin: int, duration: int) -> None:
        for session, what in launch.receivers:
            session.add_launch(what._replace(begin=begin, duration=duration))

    with _lock:
        launch.times.record(launch.start, receive)


def _update_hooks() -> None:
    """Call the hooks of launches only if a session is active: others pay nothing."""
    enter, end = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    if any(session.active for session in _sessions.values()):
        enter.add(_enter_launch)
        end.add(_exit_launch)
    else:
        enter.remove(_enter_launch)
        end.remove(_exit_launch)


def _resolve() -> None:
    """Complete the times of all launches so far."""
    with _lock:
        for times in _times.values():
            times.resolve()


def _properties(devices: set[str]) -> dict[str, dict[str, Any]]:
    """Facts about devices, by type and index, under proton's names. Rates are in kHz."""
    result: dict[str, dict[str, Any]] = {}
    for device in sorted(devices):
        kind, _, index = device.partition(":")
        owner = driver.driver_of(kind)
        utils: Any = getattr(owner, "utils", None)  # drivers that are plug-ins may lack it
        known = utils.get_device_properties(int(index or 0)) if utils is not None else {}
        result.setdefault(kind.upper(), {})[index or "0"] = {
            "arch": str(owner.target_of(int(index or 0)).arch or platform.machine()),
            "bus_width": known.get("mem_bus_width", 0),
            "clock_rate": known.get("sm_clock_rate", 0),
            "memory_clock_rate": known.get("mem_clock_rate", 0),
            "num_sms": known.get("multiprocessor_count", 0),
        }
    return result


# -- the interface --------------------------------------------------------------------------------


def start(
    name: str | None = None,
    *,
    context: str | None = "shadow",
    data: str | None = "tree",
    backend: str | None = None,
    mode: Any = None,
    hook: str | None = None,
) -> int:
    """Start to record launches, until `finalize`. A session of the same name is activated.

        session = proton.start("matmul", hook="triton")

    Args:
        name: path of the file to write, without its suffix; default: "proton".
        context: to what a launch belongs: "shadow" the scopes, "python" also the functions of the
            program.
        data: "tree": sums for each frame; "trace": each launch and scope with its times.
        backend: None or "cupti"; times are those of events on a GPU, and of the clock on the CPU.
        mode: None; modes of proton's backends are not available.
        hook: "triton" names launches by `launch_metadata`, and records its flops and bytes.

    Returns:
        the number of the session.

    Raises:
        ValueError: an argument has another value.
    """
    global _next
    for what, value, known in (
        ("context", context, tuple(CONTEXTS)), ("data", data, tuple(DATA)),
        ("backend", backend, BACKENDS), ("mode", mode, (None, "")), ("hook", hook, HOOKS),
    ):  # fmt: skip
        if value not in known:
            raise ValueError(f"{what} is one of {', '.join(map(repr, known))}, not {value!r}")
    name = DEFAULT_PROFILE_NAME if name is None else str(name)
    for number, session in _sessions.items():
        if session.name == name:
            activate(number)
            return number
    assert data is not None
    assert context is not None
    made = Session(name, data, context, hook is not None)
    number, _next = _next, _next + 1
    _sessions[number] = made
    scopes.connect(made.add_scope)
    _update_hooks()
    return number


def activate(session: int | None = None) -> None:
    """Record again, after `deactivate`.

    Args:
        session: its number; None for all.
    """
    for found in _selected(session).values():
        found.active = True
    _update_hooks()


def deactivate(session: int | None = None) -> None:
    """Do not record, until `activate`.

    Args:
        session: its number; None for all.
    """
    _resolve()
    for found in _selected(session).values():
        found.active = False
    _update_hooks()


def finalize(session: int | None = None, output_format: str | None = "") -> None:
    """End sessions and write their profiles: ``NAME.hatchet`` for trees, ``NAME.chrome_trace`` for
    traces.

    Args:
        session: its number; None for all.
        output_format: "hatchet" or "chrome_trace"; by default that of the data.

    Raises:
        ValueError: there is no such session, or its data has another format.
    """
    chosen = _selected(session)
    for found in chosen.values():
        if output_format and output_format != found.data.suffix:
            raise ValueError(
                f"output_format is {found.data.suffix!r} for the data of {found.name}, not "
                f"{output_format!r}; {' and '.join(map(repr, FORMATS))} are those of "
                f"data={' and '.join(map(repr, DATA))}"
            )
    _resolve()
    for number, found in chosen.items():
        del _sessions[number]
        scopes.disconnect(found.add_scope)
    _update_hooks()
    if not _sessions:
        with _lock:
            for times in _times.values():
                times.close()
            _times.clear()
    for found in chosen.values():
        found.write()


def profile(func: Any = None, *, name: str | None = None, **options: Any) -> Any:
    """Decorate a function so that a session records while it runs; `finalize` writes the profile.

        @proton.profile(name="step", hook="triton")
        def step(x): ...

    Args:
        options: see `start`.
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            session = start(name, **options)
            try:
                return function(*args, **kwargs)
            finally:
                deactivate(session)

        return call  # pyright: ignore[reportReturnType]

    return decorate if func is None else decorate(func)


def _selected(session: int | None) -> dict[int, Session]:
    """The session of a number, or all."""
    if session is None:
        return dict(_sessions)
    if session not in _sessions:
        known = ", ".join(map(str, _sessions)) or "none"
        raise ValueError(f"there is no session {session}; those started are {known}")
    return {session: _sessions[session]}
