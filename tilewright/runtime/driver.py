"""Which device is active: ``tilewright.runtime.driver.active``."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from tilewright.targets.protocol import GPUTarget


class Driver(Protocol):
    """The run side of a backend: what programs ask of the device they run on."""

    def get_current_target(self) -> GPUTarget:
        """What to compile for."""
        ...

    def get_current_device(self) -> int:
        """Index of the device that launches go to."""
        ...

    def get_current_stream(self, device: int | None = None) -> int:
        """Handle of the queue that launches go to."""
        ...

    def get_active_torch_device(self) -> Any:
        """The device as torch names it, for a program that makes its tensors there."""
        ...


class CpuDriver:
    """The processors of this machine: one device, whose launches are complete when they return."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cpu")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        if device != 0:
            raise ValueError(f"the CPU is one device, 0; there is no device {device}")

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        torch = sys.modules.get("torch")
        if torch is None:
            raise RuntimeError("get_active_torch_device is for programs that import torch")
        return torch.device("cpu")


default: Driver = CpuDriver()
active: Driver = default


def set_active(driver: Driver) -> None:
    """Make another driver the active one."""
    global active
    active = driver


def reset_active() -> None:
    """Return to the default driver."""
    set_active(default)
