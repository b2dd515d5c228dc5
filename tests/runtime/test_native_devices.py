"""Native launches on a device of another package, by a C function of its driver."""

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runtime.native_cases import Twin, Variant, outcome
from tilewright.runtime import driver
from tilewright.runtime.launchers.functions import start_by_function
from tilewright.runtime.native import runtime as native_runtime
from tilewright.runtime.native.launcher import Start
from tilewright.runtime.native.runtime import Runtime

START = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)


class Tensor:
    """A tensor on the device."""

    dtype = "float32"

    def __init__(self, address: int, device: str = "npu") -> None:
        self.address, self.device = address, device

    def data_ptr(self) -> int:
        return self.address


class Npu:
    """A device that records what it is started with.

    Attributes:
        started: kernel, grid and stream of each launch.
        status: what the device's function gives.
    """

    def __init__(self) -> None:
        self.started: list[tuple[int, tuple[int, ...], int | None]] = []
        self.status = 0
        self.function = START(self.start)
        self.words: list[bytes] = []
        self.size = 0
        self.stream: Any = None

    def start(self, kernel: int, words: int, grid: int, stream: int | None) -> int:
        self.started.append((kernel, tuple((ctypes.c_int64 * 3).from_address(grid)), stream))
        self.words.append(ctypes.string_at(words, self.size))
        return self.status

    def refuse(self, status: int, grid: tuple[int, int, int]) -> None:
        raise RuntimeError(f"status {status} of {grid}")

    def native_start(self, variant: Variant) -> Start | None:
        self.size = 8 * len(variant.arguments)
        address = ctypes.cast(self.function, ctypes.c_void_p).value or 0
        signature = {str(i): kind for i, kind in enumerate(variant.types)}
        metadata = SimpleNamespace(arguments=variant.arguments, signature=signature)
        kernel: Any = SimpleNamespace(metadata=metadata)
        return start_by_function(kernel, address, 4711, self.refuse, self.stream, 3)


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Npu]:
    made = Npu()
    monkeypatch.setitem(driver.DRIVERS, "npu", lambda: lambda: made)
    monkeypatch.setattr(Variant, "device", "npu", raising=False)

    def native_start(self: Variant, runtime: Runtime) -> Start | None:
        return made.native_start(self)

    monkeypatch.setattr(Variant, "native_start", native_start)
    yield made
    native_runtime.DEVICES.pop("npu", None)


def test_function_receives_the_same_as_from_python(npu: Npu) -> None:
    twin = Twin(lambda x, n, f: ...)
    args: tuple[Any, ...] = Tensor(0x1000), 7, 2.5
    expected = twin.bind(*args)
    packed = expected[2].packer(expected[1])
    assert not any(_natively(twin, (2, 3), *args) for _ in range(2))
    assert _natively(twin, (2, 3), *args)
    assert npu.started == [(4711, (2, 3, 1), None)]
    assert npu.words == [packed]
    assert _natively(twin, (5,), Tensor(0x2000), 9, 1.0)
    assert npu.started[1:] == [(4711, (5, 1, 1), None)]


def test_stream_is_looked_up_on_each_launch(npu: Npu) -> None:
    streams = iter([10, 11])
    npu.stream = lambda index: next(streams) + index
    twin = Twin(lambda x: ...)
    for _ in range(4):
        _natively(twin, (1,), Tensor(0x1000))
    assert [stream for _, _, stream in npu.started] == [13, 14]
    with pytest.raises(StopIteration):
        _natively(twin, (1,), Tensor(0x1000))


def test_failed_launch_raises_the_error_of_the_driver(npu: Npu) -> None:
    twin = Twin(lambda x: ...)
    for _ in range(3):
        _natively(twin, (1,), Tensor(0x1000))
    npu.status = -5
    found = outcome(twin.launcher.bind((4, 1, 1)), Tensor(0x1000))
    assert found == (RuntimeError, "status -5 of (4, 1, 1)")


def test_tensors_of_unknown_and_of_several_devices_fall_back_to_python(npu: Npu) -> None:
    twin = Twin(lambda x, y: ...)
    here, there = Tensor(0x1000), Tensor(0x2000, "elsewhere")
    for _ in range(4):
        assert not _natively(twin, (1,), here, there)
        assert not _natively(twin, (1,), there, there)
    assert not _natively(twin, (1,), here, here)
    assert _natively(twin, (1,), here, here)


def _natively(twin: Twin, grid: Any, *args: Any) -> bool:
    """Launch; whether native code did."""
    twin.natively = True
    twin.launcher.bind(grid)(*args)
    return twin.natively


def test_device_type_without_a_driver_is_named() -> None:
    message = r"no driver for devices of type 'tpu'; there are drivers for cpu, cuda"
    with pytest.raises(ValueError, match=message):
        driver.driver_of("tpu")
