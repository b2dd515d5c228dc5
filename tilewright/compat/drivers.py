"""Base classes of device drivers, the interface of `triton.backends.driver`."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tilewright.targets.protocol import GPUTarget


class Benchmarker(Protocol):
    """Measures a function, as `do_bench` does; times are in milliseconds."""

    def __call__(
        self, kernel_call: Callable[[], Any], *, quantiles: Sequence[float], **kwargs: Any
    ) -> Sequence[float]: ...


class DriverBase(ABC):
    """The base of a driver that a program passes to `runtime.driver.set_active`."""

    @classmethod
    @abstractmethod
    def is_active(cls) -> bool:
        """Whether its device can be used."""

    @abstractmethod
    def get_current_target(self) -> GPUTarget:
        """The target of the current device."""

    @abstractmethod
    def get_active_torch_device(self) -> Any:
        """The current device as a torch device."""

    @abstractmethod
    def get_benchmarker(self) -> Benchmarker:
        """A function that measures functions on the device."""


class GPUDriver(DriverBase):
    """The base of a driver whose current device and stream are those of `torch.cuda`."""

    def __init__(self) -> None:
        self.get_device_capability: Callable[..., Any] = _cuda().get_device_capability
        self.get_current_device: Callable[..., int] = _cuda().current_device
        self.set_current_device: Callable[..., None] = _cuda().set_device

    def get_current_stream(self, index: int | None = None) -> int:
        """The handle of the current stream of a device."""
        return _cuda().current_stream(index).cuda_stream


def _cuda() -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        raise RuntimeError("GPUDriver is for programs that import torch")
    return torch.cuda
