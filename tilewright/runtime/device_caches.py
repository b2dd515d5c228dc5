"""The compiled variants of a kernel for each device, by the keys of their launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from tilewright.compiler.artifact import CompiledKernel
from tilewright.runtime import driver
from tilewright.runtime.observed_dict import ObservedDict
from tilewright.targets.protocol import GPUTarget, Target

if TYPE_CHECKING:
    from tilewright.runtime.launch_steps import StepBinder


class DeviceCache(NamedTuple):
    """The state of a kernel for one device.

    Attributes:
        kernel_cache: compiled kernels by the name of their variant, see `_name_of`.
        key_cache: the name of the variant that is compiled, by the key of the arguments' binder and
            by the variant's own key, which has less where a property of the arguments does not
            matter.
        target: the target.
        backend: the compiler of the target.
        binder: binds the arguments of a launch that is taken in steps; see `launch_steps`.
    """

    kernel_cache: dict[str, CompiledKernel]
    key_cache: dict[Any, str]
    target: GPUTarget
    backend: Target
    binder: StepBinder


class DeviceCaches(ObservedDict[str, DeviceCache]):
    """Creates the state for a device, by name or as torch's device, on first access. ``[0]`` is the
    state for device 0 of the active driver, as in Triton, where devices are numbers."""

    def __init__(self, make: Callable[[str], DeviceCache], changed: Callable[[], None]) -> None:
        super().__init__(changed)
        self._make = make

    def name_of(self, device: Any) -> str:
        """The name of a device in any of these forms."""
        if isinstance(device, int):
            return driver.name_of(driver.active, device)
        return str(device)

    def __missing__(self, device: Any) -> DeviceCache:
        if not isinstance(device, str):
            return self[self.name_of(device)]
        _in_use[id(self)] = self
        return self.setdefault(device, self._make(device))

    def forget_other_targets(self) -> None:
        """Remove the states of devices that now have another target, or none."""
        for name, cache in list(self.items()):
            try:
                kept = driver.target_of(name) == cache.target
            except Exception:  # drivers of programs raise anything; what is removed is made again
                kept = False
            if not kept:
                del self[name]


_in_use: WeakValueDictionary[int, DeviceCaches] = WeakValueDictionary()
"""The states of all kernels that have any, by identity: dictionaries have no hash."""


def _forget_other_targets() -> None:
    for caches in list(_in_use.values()):
        caches.forget_other_targets()


driver.when_active_changes(_forget_other_targets)
