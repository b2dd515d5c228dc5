"""Device placement: a launch runs on the device that holds its tensors.

Devices are identified by name, ``"cpu"`` or ``"cuda:0"``. The binder collects those of the tensors
of a launch (`Key.devices`), which is nearly always the answer. This module handles the rest:
launches without tensors, tensors on several devices, and devices that cannot run kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tilewright.runtime import driver
from tilewright.runtime.descriptors import is_descriptor
from tilewright.runtime.tensors import CPU, CUDA, find_reader


def device_of(devices: str, values: Sequence[Any], names: Sequence[str]) -> str:
    """The name of the device that a launch runs on.

    Args:
        devices: the devices of its tensors, as in `Key`.
        values, names: values and names of all parameters.

    Raises:
        ValueError: the tensors are on several devices, or on one that cannot run kernels.
        DeviceError: the tensors are on a GPU that only a driver can identify, and there is none.
    """
    if not devices:
        return driver.name_of(driver.active)
    found = dict.fromkeys(devices.split("+"))
    for device in found:
        if not driver.has_driver(device.partition(":")[0]):
            raise _no_kernels(device, values, names)
    # "cuda" is GPU memory of an unknown device, such as that of an empty tensor.
    home = next((device for device in found if device not in (CPU, CUDA)), None)
    if home is None:
        home = driver.name_of(driver.driver_of(CUDA)) if CUDA in found else CPU
    if len(found) > 1:
        _require_reachable(home, values, names)
    return home


def devices_of(values: Sequence[Any], names: Sequence[str]) -> str:
    """The names of the devices of the tensors among the arguments, joined as in `Key`."""
    return "+".join(dict.fromkeys(t.device for t in _tensors(values, names) if t.device))


class _Tensor(NamedTuple):
    """A tensor argument: position and name of the parameter, the tensor, address and device."""

    position: int
    name: str
    value: Any
    address: int
    device: str

    def __str__(self) -> str:
        return f"argument `{self.name}` is {describe_tensor(self.value, self.device)}"


def _tensors(values: Sequence[Any], names: Sequence[str]) -> Iterator[_Tensor]:
    for i, (value, name) in enumerate(zip(values, names, strict=True)):
        for leaf in leaves_of(value):
            reader = find_reader(leaf)
            if reader is not None:
                address, _, device, *_ = reader(leaf)
                yield _Tensor(i, name, leaf, address, device)


def leaves_of(value: Any) -> Iterator[Any]:
    """The leaves of an argument: tuples are flattened, and a descriptor becomes its tensor."""
    if isinstance(value, tuple):
        for item in value:
            yield from leaves_of(item)
    elif is_descriptor(value):
        yield value.base
    else:
        yield value


def describe_tensor(value: Any, device: str) -> str:
    """Describe the type, shape and device of a tensor for a message."""
    kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
    shape = getattr(value, "shape", None)
    return f"a {kind}{f' of shape {tuple(shape)}' if shape is not None else ''} on {device!r}"


def _no_kernels(device: str, values: Sequence[Any], names: Sequence[str]) -> ValueError:
    at = next(t for t in _tensors(values, names) if t.device == device)
    return ValueError(
        f"Pointer argument (at {at.position}) cannot be accessed ({device} tensor?): {at}, where "
        "no kernel runs. Pass a tensor in the CPU's memory or on a CUDA device."
    )


def _require_reachable(home: str, values: Sequence[Any], names: Sequence[str]) -> None:
    """Raise ValueError if a tensor is not accessible from the device `home`.

    Pinned and managed CPU memory is accessible from a GPU; memory of another GPU is not.
    """
    device_type, _, number = home.partition(":")
    gpu, index = driver.driver_of(device_type), int(number or 0)
    tensors = [t for t in _tensors(values, names) if t.device]
    for tensor in tensors:
        if tensor.device in (home, CUDA):
            continue
        if tensor.device == CPU and gpu.reaches(index, tensor.address):
            continue
        other = next(t for t in tensors if t.device in (home, CUDA))
        raise ValueError(
            f"Pointer argument (at {tensor.position}) cannot be accessed from {home} "
            f"({tensor.device} tensor?): {tensor}, while {other}. The tensors of a launch must be "
            f"on one device: move one of the two, as `{tensor.name}.to({home!r})` does for torch."
        )


def require_cpu(values: Sequence[Any], names: Sequence[str]) -> None:
    """Raise ValueError if a tensor is not in CPU memory."""
    for tensor in _tensors(values, names):
        if tensor.device not in ("", CPU):
            raise ValueError(
                f"Pointer argument (at {tensor.position}) cannot be accessed from the CPU "
                f"({tensor.device} tensor?): {tensor}, and the kernel runs on the CPU. Pass a "
                "tensor in the CPU's memory, for example its `.cpu()`."
            )
