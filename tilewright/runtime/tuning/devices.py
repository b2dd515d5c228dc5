"""The device that a kernel is tuned for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tilewright.runtime import driver
from tilewright.runtime.placement import device_of, devices_of
from tilewright.targets.protocol import options_without_effect
from tilewright.targets.registry import target as find_target


class Device(NamedTuple):
    """The device of a call.

    Attributes:
        name: such as ``"cuda:0"``.
        kind: its model, as text.
        target: the key of the target that is compiled for.
        idle: the options that do not affect its code.
    """

    name: str
    kind: str
    target: str
    idle: frozenset[str]


def device_of_call(named: Mapping[str, Any], *, interpreted: bool) -> Device:
    """The device of a call, given its arguments by name, and whether the interpreter runs it."""
    values, names = list(named.values()), list(named)
    if interpreted:
        idle = options_without_effect(find_target("interpreter"))
        return Device("cpu", "interpreter", "interpreter", idle)
    name = device_of(devices_of(values, names), values, names)
    kind, _, index = name.partition(":")
    describe = getattr(driver.driver_of(kind), "describe", None)
    kind = describe(int(index or 0)) if describe else kind
    target = find_target(driver.target_of(name))
    return Device(name, kind, target.key(), options_without_effect(target))
