"""Device drivers: ``tilewright.runtime.driver.active``, and look-up of devices by name.

A launch runs on the device that holds its tensors. The active driver provides the device for
launches without tensors, and the current device for programs that query it. By default it is that
of a GPU if a usable one is present, otherwise the CPU's; the setting `runtime.default_backend` and
`set_active` select another. GPUs are detected when the driver is first queried.

Devices are identified by names, as in tensor libraries: ``"cpu"``, ``"cuda:0"``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, SupportsIndex

from tilewright.base import knobs
from tilewright.base.lazy_import import lazy_import
from tilewright.base.plug_ins import DRIVERS as DRIVER_PLUG_INS
from tilewright.base.plug_ins import PlugInError, faults_of, load_plug_in, plug_ins, provider_of
from tilewright.language.target_info import install_host_target
from tilewright.runtime.drivers.protocol import Allocation, Driver
from tilewright.targets.protocol import GPUTarget

if TYPE_CHECKING:
    from tilewright.runtime.drivers import cpu, cuda, hip
else:
    cpu = lazy_import("tilewright.runtime.drivers.cpu")
    cuda = lazy_import("tilewright.runtime.drivers.cuda")
    hip = lazy_import("tilewright.runtime.drivers.hip")

DRIVERS: dict[str, Callable[[], Callable[[], Any]]] = {
    "cpu": lambda: cpu.CpuDriver,
    "cuda": lambda: cuda.CudaDriver,
    "hip": lambda: hip.HipDriver,
}
"""Functions that return the class of the driver of a device type, which is loaded lazily."""


def _exists(device_type: str) -> bool:
    """Whether a driver is built in or a plug-in."""
    return device_type in DRIVERS or device_type in plug_ins(DRIVER_PLUG_INS)


def names() -> list[str]:
    """The device types that there are drivers for."""
    return sorted({*DRIVERS, *plug_ins(DRIVER_PLUG_INS)})


def driver_class(device_type: str) -> Callable[[], Any]:
    """The class of the drivers for a device type.

    Raises:
        ValueError: there is none.
        PlugInError: it is a plug-in that cannot be loaded.
    """
    if device_type in DRIVERS:
        return DRIVERS[device_type]()
    if not _exists(device_type):
        raise ValueError(
            f"there is no driver for devices of type {device_type!r}; there are drivers for "
            f"{', '.join(names())}"
        )
    return load_plug_in(DRIVER_PLUG_INS, device_type)


@cache
def _new_driver(device_type: str) -> Any:
    """The driver of a device type."""
    kind = driver_class(device_type)
    with faults_of(_provider_of(device_type)):
        return kind()


def _provider_of(device_type: str) -> str:
    """The plug-in that provides a driver, in words; "" if none does."""
    return "" if device_type in DRIVERS else provider_of(DRIVER_PLUG_INS, device_type)


# -- members of drivers ---------------------------------------------------------------------------


_ANSWERS: dict[str, tuple[type, str]] = {
    "is_active": (bool, "True or False"),
    "target_of": (GPUTarget, "a GPUTarget"),
    "get_current_device": (SupportsIndex, "an integer"),
    "get_current_stream": (SupportsIndex, "an integer"),
    "allocate": (Allocation, "an Allocation"),
}
"""What members of drivers return, in words."""

NO_DEVICE = ValueError
"""What members of drivers raise for a number that no device has."""


def _answer(driver: Driver, member: str, *args: Any, passed: Sequence[type[Exception]] = ()) -> Any:
    """The result of a member of a driver.

    Args:
        passed: errors of the member that are not faults of its plug-in.
    """
    provider = _provider_of(driver.device_type)
    with faults_of(provider, *passed):
        found = getattr(driver, member)(*args)
    kind, words = _ANSWERS[member]
    if provider and not isinstance(found, kind):
        fault = f"its `{member}` returns {found!r}, not {words}"
        raise PlugInError(f"{provider} is not a driver: {fault}")
    return found


def is_usable(device_type: str) -> bool:
    """Whether there is a usable device of a type, which has a driver.

    Raises:
        PlugInError: the driver is a plug-in that cannot be used.
    """
    return _answer(driver_of(device_type), "is_active")


def current_device(driver: Driver) -> int:
    """The index of the current device of a driver."""
    return _answer(driver, "get_current_device")


def allocate(device: str, size: int) -> Allocation:
    """Uninitialised memory of a device, given its name."""
    device_type, _, index = device.partition(":")
    owner, exhausted = driver_of(device_type), (MemoryError, RuntimeError)
    return _answer(owner, "allocate", int(index or 0), size, passed=[*exhausted, NO_DEVICE])


def current_stream(device: str) -> int:
    """The handle of the current stream of a device, given its name."""
    device_type, _, index = device.partition(":")
    owner = driver_of(device_type)
    return _answer(owner, "get_current_stream", int(index or 0), passed=[NO_DEVICE])


# -- the active driver ----------------------------------------------------------------------------

default: Driver
"""The default driver."""
active: Driver
"""The active driver."""


def __getattr__(name: str) -> Any:
    """`default`; `active` until `set_active` binds it; and `driver`, an alias of this module, which
    programs import from it."""
    if name == "driver":
        return sys.modules[__name__]
    if name in ("active", "default"):
        return _default()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _default() -> Driver:
    name = knobs.runtime.default_backend or _preferred()
    if not _exists(name):
        raise RuntimeError(f"Unknown backend device {name!r}. Available backends: {names()}")
    if not _answer(_new_driver(name), "is_active"):
        raise RuntimeError(f"Backend device {name!r} is not active.")
    return _new_driver(name)


@cache
def _preferred() -> str:
    """The type of the device of programs that name none: a GPU that can be used, else the CPU."""
    return next(
        (name for name in DRIVERS if name != "cpu" and _new_driver(name).is_active()), "cpu"
    )


def is_default() -> bool:
    """Whether no active driver has been set."""
    return "active" not in globals() and not knobs.runtime.default_backend


def set_active(driver: Driver) -> None:
    """Set the active driver."""
    global active
    active = driver
    _call_listeners()


def reset_active() -> None:
    """Restore the default driver, and detect GPUs again."""
    globals().pop("active", None)
    _preferred.cache_clear()
    _call_listeners()


_listeners: list[Callable[[], None]] = []


def when_active_changes(listener: Callable[[], None]) -> None:
    """Call a function after each `set_active` and `reset_active`. The active driver may serve
    devices of a type that another driver serves by default, so data cached by the name of a device
    may be another driver's."""
    _listeners.append(listener)


def _call_listeners() -> None:
    for listener in _listeners:
        listener()


def _active_target() -> GPUTarget | None:
    """The target of the active driver; None if it has no device."""
    try:
        return (globals().get("active") or __getattr__("active")).get_current_target()
    except RuntimeError:
        return None


install_host_target(_active_target)


# -- devices by name ------------------------------------------------------------------------------


def has_driver(device_type: str) -> bool:
    """Whether there is a driver for a device type."""
    return _is_chosen(device_type) or _exists(device_type)


def driver_of(device_type: str) -> Driver:
    """The driver for a device type, preferably the active one.

    Raises:
        ValueError: there is no driver for it.
    """
    return active if _is_chosen(device_type) else _new_driver(device_type)


def _is_chosen(device_type: str) -> bool:
    chosen: Driver | None = globals().get("active")
    return chosen is not None and chosen.device_type == device_type


def name_of(driver: Driver, index: int | None = None) -> str:
    """The name of a device of a driver, by default of its current one: ``"cpu"``, ``"cuda:0"``."""
    kind = driver.device_type
    if kind == "cpu":
        return kind
    return f"{kind}:{current_device(driver) if index is None else index}"


def target_of(device: str) -> GPUTarget:
    """The target of a device, given its name."""
    device_type, _, index = device.partition(":")
    return _answer(driver_of(device_type), "target_of", int(index or 0), passed=[NO_DEVICE])
